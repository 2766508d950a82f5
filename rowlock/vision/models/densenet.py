"""DenseNet: Huang et al., arXiv 1608.06993."""

from __future__ import annotations

from typing import Any

from ...functions.manipulation import concat
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import AvgPool2D, BatchNorm, Conv2D, Dropout, Layer, Linear, MaxPool2D
from ...strategies.errors import InvalidValue
from .blocks import Classifier, builder, uniform

# Channels at first, channels that each layer adds, and layers of each block.
_SHAPES = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
    264: (64, 32, (6, 12, 64, 48)),
}


class BNACConvLayer(Layer):
    """A norm, relu, and a convolution."""

    def __init__(self, inputs: int, outputs: int, size: int) -> None:
        super().__init__()
        self._batch_norm = BatchNorm(inputs, act="relu")
        self._conv = Conv2D(inputs, outputs, size, padding=size // 2, bias_attr=False)

    def forward(self, x: Variable) -> Any:
        """Return images of the same size."""
        return self._conv(self._batch_norm(x))


class ConvBNLayer(Layer):
    """The first convolution, a norm, and relu."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self._conv = Conv2D(3, outputs, 7, 2, 3, bias_attr=False)
        self._batch_norm = BatchNorm(outputs, act="relu")

    def forward(self, x: Variable) -> Any:
        """Return images of half the size."""
        return self._batch_norm(self._conv(x))


class DenseLayer(Layer):
    """Append ``growth`` channels to the input's."""

    def __init__(self, inputs: int, growth: int, bn_size: int, dropout: float) -> None:
        super().__init__()
        self.bn_ac_func1 = BNACConvLayer(inputs, bn_size * growth, 1)
        self.bn_ac_func2 = BNACConvLayer(bn_size * growth, growth, 3)
        self.dropout = dropout
        if dropout:
            self.dropout_func = Dropout(dropout, mode="downscale_in_infer")

    def forward(self, x: Variable) -> Any:
        """Return images of the same size."""
        more = self.bn_ac_func2(self.bn_ac_func1(x))
        return concat([x, self.dropout_func(more) if self.dropout else more], axis=1)


class TransitionLayer(Layer):
    """Halve the channels, and images."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.conv_ac_func = BNACConvLayer(inputs, inputs // 2, 1)
        self.pool2d_avg = AvgPool2D(2, 2)

    def forward(self, x: Variable) -> Any:
        """Return images of half the size."""
        return self.pool2d_avg(self.conv_ac_func(x))


class DenseBlock(Layer):
    """Layers of which each sees the outputs of all before it."""

    def __init__(
        self, inputs: int, count: int, growth: int, bn_size: int, dropout: float, name: str
    ) -> None:
        super().__init__()
        for number in range(count):
            layer = DenseLayer(inputs + number * growth, growth, bn_size, dropout)
            self.add_sublayer(f"{name}_{number + 1}", layer)

    def forward(self, x: Variable) -> Any:
        """Return images of the same size."""
        for layer in self.children():
            x = layer(x)
        return x


class DenseNet(Classifier):
    """Images [N, 3, H, W] to [N, num_classes].

    Args:
        layers: number of layers with parameters.
        bn_size: channels of a layer's first convolution, in numbers of the channels that it adds.
        dropout: probability of what a layer adds to be zero.

    Raises:
        InvalidValue: no table says how many blocks ``layers`` are.
    """

    _ends = ("pool2d_avg", "out")

    def __init__(
        self,
        layers: int = 121,
        bn_size: int = 4,
        dropout: float = 0.0,
        num_classes: int = 1000,
        with_pool: bool = True,
    ) -> None:
        if layers not in _SHAPES:
            raise InvalidValue(f"DenseNet: layers is one of {[*_SHAPES]}, got {layers!r}.")
        super().__init__(num_classes, with_pool)
        channels, growth, blocks = _SHAPES[layers]
        self.conv1_func = ConvBNLayer(channels)
        self.pool2d_max = MaxPool2D(3, 2, 1)
        self._path: list[Layer] = []
        for number, count in enumerate(blocks, 2):
            block = DenseBlock(channels, count, growth, bn_size, dropout, f"conv{number}")
            channels += count * growth
            self.add_sublayer(f"db_conv_{number}", block)
            self._path.append(block)
            if number <= len(blocks):
                transition = TransitionLayer(channels)
                channels //= 2
                self.add_sublayer(f"tr_conv{number}_blk", transition)
                self._path.append(transition)
        self.batch_norm = BatchNorm(channels, act="relu")
        self._finish(lambda: Linear(channels, num_classes, uniform(channels)))

    def _features(self, x: Variable) -> Any:
        x = self.pool2d_max(self.conv1_func(x))
        for layer in self._path:
            x = layer(x)
        return self.batch_norm(x)


densenet121 = builder(__name__, "densenet121", DenseNet, 121)
densenet161 = builder(__name__, "densenet161", DenseNet, 161)
densenet169 = builder(__name__, "densenet169", DenseNet, 169)
densenet201 = builder(__name__, "densenet201", DenseNet, 201)
densenet264 = builder(__name__, "densenet264", DenseNet, 264)

_PARTS = (BNACConvLayer, ConvBNLayer, DenseBlock, DenseLayer, TransitionLayer)
publish_definitions(__name__, withhold=_PARTS)
