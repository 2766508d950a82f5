"""ResNet: He et al., arXiv 1512.03385; ResNeXt: arXiv 1611.05431; wide ResNet: arXiv 1605.07146."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar, NamedTuple

from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...nn import BatchNorm2D, Conv2D, Layer, Linear, MaxPool2D, ReLU, Sequential
from ...nn import functional as F
from ...strategies.errors import InvalidValue, Unsupported
from .blocks import Classifier, builder

# Blocks of each width, by the number of layers with parameters.
_BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}


class _Shape(NamedTuple):
    """Of a convolution in a block."""

    channels: int
    size: int
    stride: int = 1
    groups: int = 1
    dilation: int = 1


class _Residual(Layer):
    """Convolutions with norms, to which the input is added, as ``downsample`` shapes it."""

    expansion: ClassVar[int]

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: Layer | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Callable[[int], Layer] | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or BatchNorm2D
        channels = inplanes
        shapes = self._shapes(planes, stride, groups, base_width, dilation)
        for number, shape in zip(count(1), shapes, strict=False):
            conv = Conv2D(
                channels,
                shape.channels,
                shape.size,
                shape.stride,
                shape.size // 2 * shape.dilation,
                shape.dilation,
                shape.groups,
                bias_attr=False,
            )
            setattr(self, f"conv{number}", conv)
            setattr(self, f"bn{number}", norm(shape.channels))
            channels = shape.channels
        self._count = len(shapes)
        self.relu = ReLU()
        self.downsample, self.stride = downsample, stride

    def _shapes(
        self, planes: int, stride: int, groups: int, base_width: int, dilation: int
    ) -> list[_Shape]:
        raise NotImplementedError

    def forward(self, x: Variable) -> Any:
        """Return images with ``expansion * planes`` channels."""
        out = x
        for number in range(1, self._count + 1):
            out = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(out))
            if number < self._count:
                out = self.relu(out)
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class BasicBlock(_Residual):
    """Two convolutions of 3 x 3.

    Raises:
        Unsupported: ``dilation`` is above 1.
    """

    expansion = 1

    def _shapes(
        self, planes: int, stride: int, groups: int, base_width: int, dilation: int
    ) -> list[_Shape]:
        if dilation > 1:
            raise Unsupported(
                f"BasicBlock: dilation must be 1, got {dilation}; BottleneckBlock has others."
            )
        return [_Shape(planes, 3, stride), _Shape(planes, 3)]


class BottleneckBlock(_Residual):
    """A convolution of 3 x 3, in ``groups``, between two of 1 x 1."""

    expansion = 4

    def _shapes(
        self, planes: int, stride: int, groups: int, base_width: int, dilation: int
    ) -> list[_Shape]:
        width = int(planes * (base_width / 64.0)) * groups
        return [
            _Shape(width, 1),
            _Shape(width, 3, stride, groups, dilation),
            _Shape(planes * self.expansion, 1),
        ]


class ResNet(Classifier):
    """Images [N, 3, H, W] to [N, num_classes], by ``depth`` layers with parameters.

    Args:
        block: :class:`BasicBlock` or :class:`BottleneckBlock`.
        width: of a group in the first bottlenecks.
        groups: of the middle convolution of bottlenecks.

    Raises:
        InvalidValue: no table says how many blocks make ``depth``.
    """

    _ends = ("avgpool", "fc")

    def __init__(
        self,
        block: type[_Residual],
        depth: int = 50,
        width: int = 64,
        num_classes: int = 1000,
        with_pool: bool = True,
        groups: int = 1,
    ) -> None:
        if depth not in _BLOCKS:
            raise InvalidValue(f"ResNet: depth is one of {[*_BLOCKS]}, got {depth!r}.")
        super().__init__(num_classes, with_pool)
        self.groups, self.base_width, self.inplanes = groups, width, 64
        self.conv1 = Conv2D(3, 64, 7, stride=2, padding=3, bias_attr=False)
        self.bn1 = BatchNorm2D(64)
        self.relu = ReLU()
        self.maxpool = MaxPool2D(3, 2, 1)
        for stage, blocks in enumerate(_BLOCKS[depth]):
            layers = self._stage(block, 64 << stage, blocks, 2 if stage else 1)
            setattr(self, f"layer{stage + 1}", layers)
        self._finish(lambda: Linear(512 * block.expansion, num_classes))

    def _stage(self, block: type[_Residual], planes: int, blocks: int, stride: int) -> Sequential:
        outputs = planes * block.expansion
        downsample = None
        if stride != 1 or self.inplanes != outputs:
            downsample = Sequential(
                Conv2D(self.inplanes, outputs, 1, stride=stride, bias_attr=False),
                BatchNorm2D(outputs),
            )
        layers = Sequential()
        for number in range(blocks):
            first = (stride, downsample) if number == 0 else (1, None)
            layers.append(block(self.inplanes, planes, *first, self.groups, self.base_width))
            self.inplanes = outputs
        return layers

    def _features(self, x: Variable) -> Any:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))


def _bottlenecks(name: str, depth: int, **fixed: int) -> Callable[..., ResNet]:
    return builder(__name__, name, ResNet, BottleneckBlock, depth, **fixed)


resnet18 = builder(__name__, "resnet18", ResNet, BasicBlock, 18)
resnet34 = builder(__name__, "resnet34", ResNet, BasicBlock, 34)
resnet50 = _bottlenecks("resnet50", 50)
resnet101 = _bottlenecks("resnet101", 101)
resnet152 = _bottlenecks("resnet152", 152)
resnext50_32x4d = _bottlenecks("resnext50_32x4d", 50, groups=32, width=4)
resnext50_64x4d = _bottlenecks("resnext50_64x4d", 50, groups=64, width=4)
resnext101_32x4d = _bottlenecks("resnext101_32x4d", 101, groups=32, width=4)
resnext101_64x4d = _bottlenecks("resnext101_64x4d", 101, groups=64, width=4)
resnext152_32x4d = _bottlenecks("resnext152_32x4d", 152, groups=32, width=4)
resnext152_64x4d = _bottlenecks("resnext152_64x4d", 152, groups=64, width=4)
wide_resnet50_2 = _bottlenecks("wide_resnet50_2", 50, width=128)
wide_resnet101_2 = _bottlenecks("wide_resnet101_2", 101, width=128)

publish_definitions(__name__, withhold=(BasicBlock, BottleneckBlock))
