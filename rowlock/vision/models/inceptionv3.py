"""Inception v3: Szegedy et al., arXiv 1512.00567."""

from __future__ import annotations

from typing import Any

from ...functions.manipulation import concat, reshape
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import AdaptiveAvgPool2D, AvgPool2D, Dropout, Layer, LayerList, Linear, MaxPool2D
from .blocks import ConvNormActivation, builder, uniform

# A convolution: its attribute, channels, size, and stride. A branch is a chain of these, which may begin with a
# pool and end with a pair of convolutions side by side.
_Conv = tuple[str, int, Any, int]
_Branch = tuple[Any, ...]
_WIDE, _TALL = (1, 7), (7, 1)


def _one(name: str, channels: int) -> _Conv:
    return name, channels, 1, 1


def _a(pooled: int) -> tuple[_Branch, ...]:
    doubled = _one("branch3x3dbl_1", 64), ("branch3x3dbl_2", 96, 3, 1), ("branch3x3dbl_3", 96, 3, 1)
    return (
        (_one("branch1x1", 64),),
        (_one("branch5x5_1", 48), ("branch5x5_2", 64, 5, 1)),
        doubled,
        ("mean", _one("branch_pool_conv", pooled)),
    )


def _b() -> tuple[_Branch, ...]:
    doubled = _one("branch3x3dbl_1", 64), ("branch3x3dbl_2", 96, 3, 1), ("branch3x3dbl_3", 96, 3, 2)
    return (("branch3x3", 384, 3, 2),), doubled, ("max",)


def _c(width: int) -> tuple[_Branch, ...]:
    return (
        (_one("branch1x1", 192),),
        (
            _one("branch7x7_1", width),
            ("branch7x7_2", width, _WIDE, 1),
            ("branch7x7_3", 192, _TALL, 1),
        ),
        (
            _one("branch7x7dbl_1", width),
            ("branch7x7dbl_2", width, _TALL, 1),
            ("branch7x7dbl_3", width, _WIDE, 1),
            ("branch7x7dbl_4", width, _TALL, 1),
            ("branch7x7dbl_5", 192, _WIDE, 1),
        ),
        ("mean", _one("branch_pool_conv", 192)),
    )


def _d() -> tuple[_Branch, ...]:
    return (
        (_one("branch3x3_1", 192), ("branch3x3_2", 320, 3, 2)),
        (
            _one("branch7x7x3_1", 192),
            ("branch7x7x3_2", 192, _WIDE, 1),
            ("branch7x7x3_3", 192, _TALL, 1),
            ("branch7x7x3_4", 192, 3, 2),
        ),
        ("max",),
    )


def _e() -> tuple[_Branch, ...]:
    def pair(name: str) -> list[_Conv]:
        return [(f"{name}a", 384, (1, 3), 1), (f"{name}b", 384, (3, 1), 1)]

    return (
        (_one("branch1x1", 320),),
        (_one("branch3x3_1", 384), pair("branch3x3_2")),
        (_one("branch3x3dbl_1", 448), ("branch3x3dbl_2", 384, 3, 1), pair("branch3x3dbl_3")),
        ("mean", _one("branch_pool_conv", 192)),
    )


class InceptionStem(Layer):
    """Images [N, 3, H, W] to [N, 192, H / 8, W / 8], a little less at the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_1a_3x3 = ConvNormActivation(3, 32, 3, 2, 0)
        self.conv_2a_3x3 = ConvNormActivation(32, 32, 3, 1, 0)
        self.conv_2b_3x3 = ConvNormActivation(32, 64, 3)
        self.max_pool = MaxPool2D(3, 2)
        self.conv_3b_1x1 = ConvNormActivation(64, 80, 1)
        self.conv_4a_3x3 = ConvNormActivation(80, 192, 3, 1, 0)

    def forward(self, x: Variable) -> Any:
        """Return images with 192 channels."""
        x = self.max_pool(self.conv_2b_3x3(self.conv_2a_3x3(self.conv_1a_3x3(x))))
        return self.max_pool(self.conv_4a_3x3(self.conv_3b_1x1(x)))


class Inception(Layer):
    """Branches of convolutions side by side."""

    def __init__(self, inputs: int, branches: tuple[_Branch, ...]) -> None:
        super().__init__()
        self._branches, self.outputs = branches, 0
        for branch in branches:
            channels = inputs
            for step in branch:
                channels = self._create(step, channels)
            self.outputs += channels

    def _create(self, step: Any, channels: int) -> int:
        """Create a step of a branch, and return how many channels it has."""
        if isinstance(step, list):
            return sum(self._create(conv, channels) for conv in step)
        if isinstance(step, str):
            self.branch_pool = (
                AvgPool2D(3, 1, 1, exclusive=False) if step == "mean" else MaxPool2D(3, 2)
            )
            return channels
        name, outputs, size, stride = step
        padding = 0 if stride == 2 else None
        setattr(self, name, ConvNormActivation(channels, outputs, size, stride, padding))
        return int(outputs)

    def _apply(self, step: Any, x: Variable) -> Any:
        if isinstance(step, list):
            return concat([self._apply(conv, x) for conv in step], axis=1)
        return self.branch_pool(x) if isinstance(step, str) else getattr(self, step[0])(x)

    def forward(self, x: Variable) -> Any:
        """Return the branches' channels, one branch after the other."""
        outputs = []
        for branch in self._branches:
            out = x
            for step in branch:
                out = self._apply(step, out)
            outputs.append(out)
        return concat(outputs, axis=1)


class InceptionV3(Layer):
    """Images [N, 3, 299, 299], or others of at least 75 x 75, to [N, num_classes]."""

    def __init__(self, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__()
        self.num_classes, self.with_pool = num_classes, with_pool
        self.inception_stem = InceptionStem()
        self.inception_block_list = LayerList()
        channels = 192
        blocks = [*map(_a, (32, 64, 64)), _b(), *map(_c, (128, 160, 160, 192)), _d(), _e(), _e()]
        for branches in blocks:
            block = Inception(channels, branches)
            self.inception_block_list.append(block)
            channels = block.outputs
        if with_pool:
            self.avg_pool = AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.dropout = Dropout(0.2, mode="downscale_in_infer")
            self.fc = Linear(channels, num_classes, uniform(channels))

    def forward(self, x: Variable) -> Any:
        """Return scores before softmax, or features."""
        x = self.inception_stem(x)
        for block in self.inception_block_list:
            x = block(x)
        if self.with_pool:
            x = self.avg_pool(x)
        if self.num_classes > 0:
            # Without the pool, as in Paddle, each place has scores of its own.
            x = self.fc(self.dropout(reshape(x, [-1, 2048])))
        return x


inception_v3 = builder(__name__, "inception_v3", InceptionV3)

publish_definitions(__name__, withhold=(Inception, InceptionStem))
