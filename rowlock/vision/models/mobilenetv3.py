"""MobileNet v3: Howard et al., arXiv 1905.02244."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import (
    AdaptiveAvgPool2D,
    BatchNorm2D,
    Conv2D,
    Dropout,
    Hardsigmoid,
    Hardswish,
    Layer,
    Linear,
    ReLU,
    Sequential,
)
from .blocks import Classifier, ConvNormActivation, divisible, refuse_pretrained

_NORM = partial(BatchNorm2D, epsilon=0.001, momentum=0.99)
# A block: kernel size, expanded and output channels, whether channels are weighed, activation, stride.
_Block = tuple[int, int, int, bool, type[Layer], int]


class SqueezeExcitation(Layer):
    """Multiply each channel by a factor in [0, 1] that the means of all decide. Hu et al., arXiv 1709.01507."""

    def __init__(self, input_channels: int, squeeze_channels: int) -> None:
        super().__init__()
        self.avgpool = AdaptiveAvgPool2D(1)
        self.fc1 = Conv2D(input_channels, squeeze_channels, 1)
        self.fc2 = Conv2D(squeeze_channels, input_channels, 1)
        self.activation = ReLU()
        self.scale_activation = Hardsigmoid()

    def forward(self, input: Variable) -> Any:
        """Return images of the same shape."""
        factors = self.fc2(self.activation(self.fc1(self.avgpool(input))))
        return self.scale_activation(factors) * input


class InvertedResidual(Layer):
    """More channels, a convolution within each, a factor for each, fewer channels."""

    def __init__(self, channels: int, scale: float, block: _Block) -> None:
        super().__init__()
        size, expanded, outputs, weighed, activation, stride = block
        expanded, outputs = divisible(expanded * scale), divisible(outputs * scale)
        conv = partial(ConvNormActivation, norm_layer=_NORM)
        self.use_res_connect = stride == 1 and channels == outputs
        self.use_se, self.expand = weighed, channels != expanded
        if self.expand:
            self.expand_conv = conv(channels, expanded, 1, activation_layer=activation)
        self.bottleneck_conv = conv(
            expanded, expanded, size, stride, groups=expanded, activation_layer=activation
        )
        if weighed:
            self.mid_se = SqueezeExcitation(expanded, divisible(expanded // 4))
        self.linear_conv = conv(expanded, outputs, 1, activation_layer=None)

    def forward(self, x: Variable) -> Any:
        """Return images with the block's output channels."""
        out = self.bottleneck_conv(self.expand_conv(x) if self.expand else x)
        if self.use_se:
            out = self.mid_se(out)
        out = self.linear_conv(out)
        return x + out if self.use_res_connect else out


class _MobileNetV3(Classifier):
    _ends = ("avgpool", "classifier")
    _blocks: ClassVar[tuple[_Block, ...]]
    _last: ClassVar[int]

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        self.scale, self.last_channel = scale, divisible(self._last * scale)
        conv = partial(ConvNormActivation, norm_layer=_NORM, activation_layer=Hardswish)
        channels = divisible(16 * scale)
        self.conv = conv(3, channels, 3, 2)
        self.blocks = Sequential()
        for block in self._blocks:
            self.blocks.append(InvertedResidual(channels, scale, block))
            channels = divisible(block[2] * scale)
        self.lastconv = conv(channels, channels * 6, 1)
        self._finish(lambda: self._classifier(channels * 6))

    def _classifier(self, channels: int) -> Sequential:
        return Sequential(
            Linear(channels, self.last_channel),
            Hardswish(),
            Dropout(0.2),
            Linear(self.last_channel, self.num_classes),
        )

    def _features(self, x: Variable) -> Any:
        return self.lastconv(self.blocks(self.conv(x)))


class MobileNetV3Small(_MobileNetV3):
    """Images [N, 3, H, W] to [N, num_classes], by 11 blocks; ``scale`` multiplies the channels."""

    _last = 1024
    _blocks = (
        (3, 16, 16, True, ReLU, 2),
        (3, 72, 24, False, ReLU, 2),
        (3, 88, 24, False, ReLU, 1),
        (5, 96, 40, True, Hardswish, 2),
        (5, 240, 40, True, Hardswish, 1),
        (5, 240, 40, True, Hardswish, 1),
        (5, 120, 48, True, Hardswish, 1),
        (5, 144, 48, True, Hardswish, 1),
        (5, 288, 96, True, Hardswish, 2),
        (5, 576, 96, True, Hardswish, 1),
        (5, 576, 96, True, Hardswish, 1),
    )


class MobileNetV3Large(_MobileNetV3):
    """Images [N, 3, H, W] to [N, num_classes], by 15 blocks; ``scale`` multiplies the channels."""

    _last = 1280
    _blocks = (
        (3, 16, 16, False, ReLU, 1),
        (3, 64, 24, False, ReLU, 2),
        (3, 72, 24, False, ReLU, 1),
        (5, 72, 40, True, ReLU, 2),
        (5, 120, 40, True, ReLU, 1),
        (5, 120, 40, True, ReLU, 1),
        (3, 240, 80, False, Hardswish, 2),
        (3, 200, 80, False, Hardswish, 1),
        (3, 184, 80, False, Hardswish, 1),
        (3, 184, 80, False, Hardswish, 1),
        (3, 480, 112, True, Hardswish, 1),
        (3, 672, 112, True, Hardswish, 1),
        (5, 672, 160, True, Hardswish, 2),
        (5, 960, 160, True, Hardswish, 1),
        (5, 960, 160, True, Hardswish, 1),
    )


def mobilenet_v3_small(
    pretrained: bool = False, scale: float = 1.0, **kwargs: Any
) -> MobileNetV3Small:
    """Build mobilenet_v3_small, untrained; keywords are those of :class:`MobileNetV3Small`."""
    refuse_pretrained(pretrained, "mobilenet_v3_small")
    return MobileNetV3Small(scale, **kwargs)


def mobilenet_v3_large(
    pretrained: bool = False, scale: float = 1.0, **kwargs: Any
) -> MobileNetV3Large:
    """Build mobilenet_v3_large, untrained; keywords are those of :class:`MobileNetV3Large`."""
    refuse_pretrained(pretrained, "mobilenet_v3_large")
    return MobileNetV3Large(scale, **kwargs)


publish_definitions(__name__, withhold=(InvertedResidual, SqueezeExcitation))
