"""ShuffleNet v2: Ma et al., arXiv 1807.11164."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...functions.manipulation import concat, split
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import Layer, Linear, MaxPool2D, ReLU, Swish
from ...nn import functional as F
from ...strategies.errors import InvalidValue
from .blocks import Classifier, ConvNormActivation, builder

# Channels of the three stages and of the last convolution, by scale.
_WIDTHS = {
    0.25: (24, 48, 96, 512),
    0.33: (32, 64, 128, 512),
    0.5: (48, 96, 192, 1024),
    1.0: (116, 232, 464, 1024),
    1.5: (176, 352, 704, 1024),
    2.0: (224, 488, 976, 2048),
}
_BLOCKS = (4, 8, 4)
_ACTIVATIONS: dict[str | None, type[Layer] | None] = {"relu": ReLU, "swish": Swish, None: None}
_Activation = Callable[[], Layer] | None


def _depthwise(channels: int, stride: int) -> ConvNormActivation:
    """Return a convolution of 3 x 3 within each channel."""
    return ConvNormActivation(channels, channels, 3, stride, groups=channels, activation_layer=None)


class InvertedResidual(Layer):
    """Half of the channels through convolutions, half as they are, and all shuffled."""

    def __init__(self, channels: int, activation: _Activation) -> None:
        super().__init__()
        half = channels // 2
        self._conv_pw = ConvNormActivation(half, half, 1, activation_layer=activation)
        self._conv_dw = _depthwise(half, 1)
        self._conv_linear = ConvNormActivation(half, half, 1, activation_layer=activation)

    def forward(self, x: Variable) -> Any:
        """Return images of the same shape."""
        same, changed = split(x, 2, axis=1)
        changed = self._conv_linear(self._conv_dw(self._conv_pw(changed)))
        return F.channel_shuffle(concat([same, changed], axis=1), 2)


class InvertedResidualDS(Layer):
    """Two ways of convolutions that halve images, side by side, and their channels shuffled."""

    def __init__(self, inputs: int, outputs: int, activation: _Activation) -> None:
        super().__init__()
        half = outputs // 2
        self._conv_dw_1 = _depthwise(inputs, 2)
        self._conv_linear_1 = ConvNormActivation(inputs, half, 1, activation_layer=activation)
        self._conv_pw_2 = ConvNormActivation(inputs, half, 1, activation_layer=activation)
        self._conv_dw_2 = _depthwise(half, 2)
        self._conv_linear_2 = ConvNormActivation(half, half, 1, activation_layer=activation)

    def forward(self, x: Variable) -> Any:
        """Return images of half the size."""
        short = self._conv_linear_1(self._conv_dw_1(x))
        long = self._conv_linear_2(self._conv_dw_2(self._conv_pw_2(x)))
        return F.channel_shuffle(concat([short, long], axis=1), 2)


class ShuffleNetV2(Classifier):
    """Images [N, 3, H, W] to [N, num_classes]; ``scale`` chooses the channels, ``act`` the activation.

    Raises:
        InvalidValue: no table has the scale, or ``act`` is neither "relu", "swish" nor None.
    """

    _ends = ("_pool2d_avg", "_fc")

    def __init__(
        self,
        scale: float = 1.0,
        act: str | None = "relu",
        num_classes: int = 1000,
        with_pool: bool = True,
    ) -> None:
        for value, table, name in ((scale, _WIDTHS, "scale"), (act, _ACTIVATIONS, "act")):
            if value not in table:
                raise InvalidValue(f"ShuffleNetV2: {name} is one of {[*table]}, got {value!r}.")
        super().__init__(num_classes, with_pool)
        self.scale = scale
        activation: Any = _ACTIVATIONS[act]
        *widths, last = _WIDTHS[scale]
        channels = 24
        self._conv1 = ConvNormActivation(3, channels, 3, 2, activation_layer=activation)
        self._max_pool = MaxPool2D(3, 2, 1)
        self._block_list: list[Layer] = []
        for stage, (width, count) in enumerate(zip(widths, _BLOCKS, strict=True), 2):
            for number in range(1, count + 1):
                block: Layer = (
                    InvertedResidualDS(channels, width, activation)
                    if number == 1
                    else InvertedResidual(width, activation)
                )
                self.add_sublayer(f"{stage}_{number}", block)
                self._block_list.append(block)
            channels = width
        self._last_conv = ConvNormActivation(channels, last, 1, activation_layer=activation)
        self._finish(lambda: Linear(last, num_classes))

    def _features(self, x: Variable) -> Any:
        x = self._max_pool(self._conv1(x))
        for block in self._block_list:
            x = block(x)
        return self._last_conv(x)


shufflenet_v2_x0_25 = builder(__name__, "shufflenet_v2_x0_25", ShuffleNetV2, 0.25)
shufflenet_v2_x0_33 = builder(__name__, "shufflenet_v2_x0_33", ShuffleNetV2, 0.33)
shufflenet_v2_x0_5 = builder(__name__, "shufflenet_v2_x0_5", ShuffleNetV2, 0.5)
shufflenet_v2_x1_0 = builder(__name__, "shufflenet_v2_x1_0", ShuffleNetV2, 1.0)
shufflenet_v2_x1_5 = builder(__name__, "shufflenet_v2_x1_5", ShuffleNetV2, 1.5)
shufflenet_v2_x2_0 = builder(__name__, "shufflenet_v2_x2_0", ShuffleNetV2, 2.0)
shufflenet_v2_swish = builder(__name__, "shufflenet_v2_swish", ShuffleNetV2, 1.0, "swish")

publish_definitions(__name__, withhold=(InvertedResidual, InvertedResidualDS))
