"""MobileNet: Howard et al., arXiv 1704.04861."""

from __future__ import annotations

from typing import Any

from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import Layer, Linear
from .blocks import Classifier, ConvNormActivation, refuse_pretrained

# Name, output channels and stride of each pair of convolutions.
_PAIRS = (
    ("conv2_1", 64, 1),
    ("conv2_2", 128, 2),
    ("conv3_1", 128, 1),
    ("conv3_2", 256, 2),
    ("conv4_1", 256, 1),
    ("conv4_2", 512, 2),
    *((f"conv5_{number}", 512, 1) for number in range(1, 6)),
    ("conv5_6", 1024, 2),
    ("conv6", 1024, 1),
)


class DepthwiseSeparable(Layer):
    """A convolution of 3 x 3 within each channel, then one of 1 x 1 across them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self._depthwise_conv = ConvNormActivation(inputs, inputs, 3, stride, 1, inputs)
        self._pointwise_conv = ConvNormActivation(inputs, outputs, 1)

    def forward(self, x: Variable) -> Any:
        """Return images with ``outputs`` channels."""
        return self._pointwise_conv(self._depthwise_conv(x))


class MobileNetV1(Classifier):
    """Images [N, 3, H, W] to [N, num_classes]; ``scale`` multiplies the channels."""

    _ends = ("pool2d_avg", "fc")

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        self.scale = scale
        channels = int(32 * scale)
        self.conv1 = ConvNormActivation(3, channels, 3, 2, 1)
        for name, width, stride in _PAIRS:
            outputs = int(width * scale)
            self.add_sublayer(name, DepthwiseSeparable(channels, outputs, stride))
            channels = outputs
        self._finish(lambda: Linear(channels, num_classes))

    def _features(self, x: Variable) -> Any:
        x = self.conv1(x)
        for name, _, _ in _PAIRS:
            x = getattr(self, name)(x)
        return x


def mobilenet_v1(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> MobileNetV1:
    """Build mobilenet_v1, untrained; keywords are those of :class:`MobileNetV1`."""
    refuse_pretrained(pretrained, "mobilenet_v1")
    return MobileNetV1(scale, **kwargs)


publish_definitions(__name__, withhold=(DepthwiseSeparable,))
