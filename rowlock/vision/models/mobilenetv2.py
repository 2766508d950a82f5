"""MobileNet v2: Sandler et al., arXiv 1801.04381."""

from __future__ import annotations

from typing import Any

from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import BatchNorm2D, Conv2D, Dropout, Layer, Linear, ReLU6, Sequential
from .blocks import Classifier, ConvNormActivation, divisible, refuse_pretrained

# Expansion, output channels, number of blocks, and stride of the first.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(Layer):
    """More channels, a convolution of 3 x 3 within each, fewer channels; the input is added where it fits."""

    def __init__(self, inp: int, oup: int, stride: int, expand_ratio: float) -> None:
        super().__init__()
        hidden = round(inp * expand_ratio)
        self.stride, self.use_res_connect = stride, stride == 1 and inp == oup
        layers: list[Layer] = []
        if expand_ratio != 1:
            layers.append(ConvNormActivation(inp, hidden, 1, activation_layer=ReLU6))
        layers += [
            ConvNormActivation(hidden, hidden, 3, stride, groups=hidden, activation_layer=ReLU6),
            Conv2D(hidden, oup, 1, bias_attr=False),
            BatchNorm2D(oup),
        ]
        self.conv = Sequential(*layers)

    def forward(self, x: Variable) -> Any:
        """Return images with ``oup`` channels."""
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(Classifier):
    """Images [N, 3, H, W] to [N, num_classes]; ``scale`` multiplies channels, the last only above 1."""

    _ends = ("pool2d_avg", "classifier")

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        channels = divisible(32 * scale)
        self.last_channel = divisible(1280 * max(1.0, scale))
        features: list[Layer] = [ConvNormActivation(3, channels, stride=2, activation_layer=ReLU6)]
        for expansion, width, blocks, stride in _STAGES:
            outputs = divisible(width * scale)
            for number in range(blocks):
                step = 1 if number else stride
                features.append(InvertedResidual(channels, outputs, step, expansion))
                channels = outputs
        features.append(ConvNormActivation(channels, self.last_channel, 1, activation_layer=ReLU6))
        self.features = Sequential(*features)
        self._finish(lambda: Sequential(Dropout(0.2), Linear(self.last_channel, num_classes)))

    def _features(self, x: Variable) -> Any:
        return self.features(x)


def mobilenet_v2(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> MobileNetV2:
    """Build mobilenet_v2, untrained; keywords are those of :class:`MobileNetV2`."""
    refuse_pretrained(pretrained, "mobilenet_v2")
    return MobileNetV2(scale, **kwargs)


publish_definitions(__name__, withhold=(InvertedResidual,))
