"""GoogLeNet: Szegedy et al., arXiv 1409.4842."""

from __future__ import annotations

from typing import Any

from ...functions.manipulation import concat, flatten
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import AdaptiveAvgPool2D, AvgPool2D, Conv2D, Dropout, Layer, Linear, MaxPool2D
from ...nn import functional as F
from .blocks import builder, uniform

# Channels of 1 x 1; of 1 x 1 and 3 x 3; of 1 x 1 and 5 x 5; of 1 x 1 after a pool.
_BLOCKS = {
    "_ince3a": (64, 96, 128, 16, 32, 32),
    "_ince3b": (128, 128, 192, 32, 96, 64),
    "_ince4a": (192, 96, 208, 16, 48, 64),
    "_ince4b": (160, 112, 224, 24, 64, 64),
    "_ince4c": (128, 128, 256, 24, 64, 64),
    "_ince4d": (112, 144, 288, 32, 64, 64),
    "_ince4e": (256, 160, 320, 32, 128, 128),
    "_ince5a": (256, 160, 320, 32, 128, 128),
    "_ince5b": (384, 192, 384, 48, 128, 128),
}


class ConvLayer(Layer):
    """A convolution without bias."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self._conv = Conv2D(inputs, outputs, size, stride, size // 2, bias_attr=False)

    def forward(self, x: Variable) -> Any:
        """Return images of the same size, divided by the stride."""
        return self._conv(x)


class Inception(Layer):
    """Convolutions of 1 x 1, 3 x 3 and 5 x 5, and a pool, side by side."""

    def __init__(self, inputs: int, widths: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        one, before_three, three, before_five, five, projection = widths
        self._conv1 = ConvLayer(inputs, one, 1)
        self._conv3r = ConvLayer(inputs, before_three, 1)
        self._conv3 = ConvLayer(before_three, three, 3)
        self._conv5r = ConvLayer(inputs, before_five, 1)
        self._conv5 = ConvLayer(before_five, five, 5)
        self._pool = MaxPool2D(3, 1, 1)
        self._convprj = ConvLayer(inputs, projection, 1)
        self.outputs = one + three + five + projection

    def forward(self, x: Variable) -> Any:
        """Return images of the same size."""
        branches = [
            self._conv1(x),
            self._conv3(self._conv3r(x)),
            self._conv5(self._conv5r(x)),
            self._convprj(self._pool(x)),
        ]
        return F.relu(concat(branches, axis=1))


class GoogLeNet(Layer):
    """Images [N, 3, 224, 224] to three times [N, num_classes]: the scores, and those of two earlier layers.

    Without classes, to three features.
    """

    def __init__(self, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__()
        self.num_classes, self.with_pool = num_classes, with_pool
        self._conv = ConvLayer(3, 64, 7, 2)
        self._pool = MaxPool2D(3, 2)
        self._conv_1 = ConvLayer(64, 64, 1)
        self._conv_2 = ConvLayer(64, 192, 3)
        channels = 192
        for name, widths in _BLOCKS.items():
            block = Inception(channels, widths)
            setattr(self, name, block)
            channels = block.outputs
        if with_pool:
            self._pool_5 = AdaptiveAvgPool2D(1)
            self._pool_o1, self._pool_o2 = AvgPool2D(5, 3), AvgPool2D(5, 3)
        if num_classes > 0:
            self._drop = Dropout(0.4, mode="downscale_in_infer")
            self._fc_out = Linear(1024, num_classes, uniform(1024, 3))
            for number, width in ((1, 512), (2, 528)):
                drop = Dropout(0.7, mode="downscale_in_infer")
                setattr(self, f"_conv_o{number}", ConvLayer(width, 128, 1))
                setattr(self, f"_fc_o{number}", Linear(1152, 1024, uniform(2048, 3)))
                setattr(self, f"_drop_o{number}", drop)
                setattr(self, f"_out{number}", Linear(1024, num_classes, uniform(1024, 3)))

    def forward(self, inputs: Variable) -> tuple[Variable, Variable, Variable]:
        """Return scores before softmax, or features: of the last, the first and the second branch."""
        features: dict[str, Any] = {}
        x = self._pool(self._conv_2(self._conv_1(self._pool(self._conv(inputs)))))
        for name in _BLOCKS:
            x = features[name] = getattr(self, name)(x)
            if name in ("_ince3b", "_ince4e"):
                x = self._pool(x)
        out, out1, out2 = x, features["_ince4a"], features["_ince4d"]
        if self.with_pool:
            out, out1, out2 = self._pool_5(out), self._pool_o1(out1), self._pool_o2(out2)
        if self.num_classes > 0:
            out = self._fc_out(flatten(self._drop(out), 1))
            out1 = self._drop_o1(F.relu(self._fc_o1(flatten(self._conv_o1(out1), 1))))
            # Paddle has relu in the first of these branches only.
            out2 = self._drop_o2(self._fc_o2(flatten(self._conv_o2(out2), 1)))
            out1, out2 = self._out1(out1), self._out2(out2)
        return out, out1, out2


googlenet = builder(__name__, "googlenet", GoogLeNet)

publish_definitions(__name__, withhold=(ConvLayer, Inception))
