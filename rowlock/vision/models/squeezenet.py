"""SqueezeNet: Iandola et al., arXiv 1602.07360."""

from __future__ import annotations

from typing import Any

from ...functions.manipulation import concat, squeeze
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import AdaptiveAvgPool2D, Conv2D, Dropout, Layer, MaxPool2D
from ...nn import functional as F
from ...strategies.errors import InvalidValue
from .blocks import builder

# First convolution (channels, size, padding), and the numbers of the blocks that a pool follows.
_VERSIONS = {"1.0": ((96, 7, 0), (3, 7)), "1.1": ((64, 3, 1), (2, 4))}
_SQUEEZED = (16, 16, 32, 32, 48, 48, 64, 64)


class MakeFireConv(Layer):
    """A convolution and relu."""

    def __init__(self, inputs: int, outputs: int, size: int) -> None:
        super().__init__()
        self._conv = Conv2D(inputs, outputs, size, padding=size // 2)

    def forward(self, x: Variable) -> Any:
        """Return images of the same size."""
        return F.relu(self._conv(x))


class MakeFire(Layer):
    """Few channels, then four times as many each of 1 x 1 and of 3 x 3 convolutions."""

    def __init__(self, inputs: int, squeezed: int) -> None:
        super().__init__()
        self._conv = MakeFireConv(inputs, squeezed, 1)
        self._conv_path1 = MakeFireConv(squeezed, 4 * squeezed, 1)
        self._conv_path2 = MakeFireConv(squeezed, 4 * squeezed, 3)

    def forward(self, x: Variable) -> Any:
        """Return images with eight times ``squeezed`` channels."""
        x = self._conv(x)
        return concat([self._conv_path1(x), self._conv_path2(x)], axis=1)


class SqueezeNet(Layer):
    """Images [N, 3, H, W] to [N, num_classes]; without classes, to 512 channels.

    Raises:
        InvalidValue: ``version`` is neither "1.0" nor "1.1".
    """

    def __init__(self, version: str, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__()
        if version not in _VERSIONS:
            raise InvalidValue(f"SqueezeNet: version is one of {[*_VERSIONS]}, got {version!r}.")
        self.version, self.num_classes, self.with_pool = version, num_classes, with_pool
        channels, size, padding = _VERSIONS[version][0]
        self._conv = Conv2D(3, channels, size, stride=2, padding=padding)
        self._pool = MaxPool2D(3, 2)
        for number, squeezed in enumerate(_SQUEEZED, 1):
            setattr(self, f"_conv{number}", MakeFire(channels, squeezed))
            channels = 8 * squeezed
        self._drop = Dropout(0.5, mode="downscale_in_infer")
        if num_classes > 0:
            self._conv9 = Conv2D(channels, num_classes, 1)
        self._avg_pool = AdaptiveAvgPool2D(1)

    def forward(self, inputs: Variable) -> Any:
        """Return scores before softmax, or features."""
        x = self._pool(F.relu(self._conv(inputs)))
        for number in range(1, len(_SQUEEZED) + 1):
            x = getattr(self, f"_conv{number}")(x)
            if number in _VERSIONS[self.version][1]:
                x = self._pool(x)
        if self.num_classes > 0:
            x = self._conv9(self._drop(x))
        return squeeze(self._avg_pool(F.relu(x)), [2, 3]) if self.with_pool else x


squeezenet1_0 = builder(__name__, "squeezenet1_0", SqueezeNet, "1.0")
squeezenet1_1 = builder(__name__, "squeezenet1_1", SqueezeNet, "1.1")

publish_definitions(__name__, withhold=(MakeFire, MakeFireConv))
