"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from ...functions.framework import get_default_dtype
from ...functions.signatures import reordered
from ...graph.layers.arguments import integer
from ...graph.layers.initializer import NormalInitializer
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue
from .. import functional as F
from .function_layer import DimensionedLayer

_RAISES = """

    Raises:
        InvalidArgument: ``weight_attr`` is False.
        InvalidType: a size is no int.
        InvalidValue: sizes, groups or modes do not fit.
    """


class _ConvBase(DimensionedLayer):
    """A convolution ``of`` nn.functional, and the arguments that all check and store."""

    _function: ClassVar[Callable[..., Variable]]
    _padding: Any
    _data_format: str
    _padding_mode: Any = "zeros"
    output_padding: Any = 0

    def __init_subclass__(cls, of: Callable[..., Variable] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if of is not None:
            cls._function, cls.__doc__ = staticmethod(of), f"{cls.__doc__}{_RAISES}"

    def _store(
        self,
        in_channels: int,
        out_channels: int,
        windows: tuple[Any, Any, Any],
        groups: int,
        weight_attr: Any = None,
    ) -> None:
        """Check and store arguments; ``windows``: kernel_size, stride, dilation."""
        kind = type(self).__name__
        if weight_attr is False:
            raise InvalidArgument(f"{kind}: weight_attr cannot be False.")
        counts = {"in_channels": in_channels, "out_channels": out_channels, "groups": groups}
        for argument, count in counts.items():
            if count < 1:
                raise InvalidValue(f"{kind}: {argument} must be above 0, got {count}.")
        if in_channels % groups:
            raise InvalidValue(f"{kind}: {in_channels} channels do not divide by {groups} groups.")
        self._in_channels, self._out_channels, self._groups = in_channels, out_channels, groups
        self._kernel_size = self._sizes(windows[0], "kernel_size")
        self._stride = self._sizes(windows[1], "stride")
        self._dilation = self._sizes(windows[2], "dilation")

    def _sizes(self, sizes: Any, argument: str) -> list[int]:
        numbers = list(sizes) if isinstance(sizes, (list, tuple)) else [sizes] * self._dims
        if len(numbers) != self._dims:
            raise InvalidValue(
                f"{type(self).__name__}: {argument} has {self._dims} numbers, got {sizes!r}."
            )
        numbers = [integer(number, argument, type(self).__name__) for number in numbers]
        if min(numbers) < 1:
            raise InvalidValue(f"{type(self).__name__}: {argument} must be above 0, got {sizes!r}.")
        return numbers

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        ones = [1] * self._dims
        settings = [
            f"{self._in_channels}, {self._out_channels}, kernel_size={self._kernel_size}",
            f"stride={self._stride}" if self._stride != ones else "",
            f"padding={self._padding}" if self._padding != 0 else "",
            f"padding_mode={self._padding_mode}" if self._padding_mode != "zeros" else "",
            f"output_padding={self.output_padding}" if self.output_padding != 0 else "",
            f"dilation={self._dilation}" if self._dilation != ones else "",
            f"groups={self._groups}" if self._groups != 1 else "",
            f"data_format={self._data_format}",
        ]
        return ", ".join(filter(None, settings))


class _Conv(_ConvBase):
    """Weights are [out_channels, in_channels / groups, *kernel_size], normal as He et al. propose."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        *,
        bias: bool = True,
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        device: Any = None,
        dtype: Any = None,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "",
    ) -> None:
        super().__init__(dtype=dtype)
        kind = type(self).__name__
        if padding_mode != "zeros" and not isinstance(padding, int):
            raise InvalidType(f"{kind}: with padding_mode={padding_mode!r} padding is an int.")
        self._store(in_channels, out_channels, (kernel_size, stride, dilation), groups, weight_attr)
        self._padding, self._padding_mode, self._data_format = padding, padding_mode, data_format
        deviation = math.sqrt(2.0 / (math.prod(self._kernel_size) * in_channels))
        self.weight = self.create_parameter(
            [out_channels, in_channels // groups, *self._kernel_size],
            weight_attr,
            dtype or get_default_dtype(),
            default_initializer=NormalInitializer(0.0, deviation),
        )
        self.bias = self.create_parameter(
            [out_channels], bias_attr if bias else False, dtype or get_default_dtype(), is_bias=True
        )

    def forward(self, x: Variable) -> Variable:
        """Convolve sequences, images or volumes."""
        padding = self._padding
        if self._padding_mode != "zeros":
            sides = [padding] * (2 * self._dims)
            x = F.pad(x, sides, self._padding_mode, data_format=self._data_format)
            padding = 0
        return type(self)._function(
            x,
            self.weight,
            self.bias,
            self._stride,
            padding,
            self._dilation,
            self._groups,
            self._data_format,
        )


class Conv1D(_Conv, of=F.conv1d, data_format="NCL"):
    """Convolution of sequences [N, C, L] with a weight [out_channels, in_channels / groups, width]."""


class Conv2D(_Conv, of=F.conv2d, data_format="NCHW"):
    """Convolution of images with a weight [out_channels, in_channels / groups, height, width]."""


class Conv3D(_Conv, of=F.conv3d, data_format="NCDHW"):
    """Convolution of volumes with a weight [out_channels, in_channels / groups, depth, height, width]."""


class _ConvTranspose(_ConvBase):
    """Weights are [in_channels, out_channels / groups, *kernel_size], Xavier uniform."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "",
    ) -> None:
        super().__init__()
        self._store(in_channels, out_channels, (kernel_size, stride, dilation), groups, weight_attr)
        self._padding, self.output_padding = padding, output_padding
        self._data_format = data_format
        shape = [in_channels, out_channels // groups, *self._kernel_size]
        self.weight = self.create_parameter(shape, weight_attr, get_default_dtype())
        self.bias = self.create_parameter(
            [out_channels], bias_attr, get_default_dtype(), is_bias=True
        )

    def forward(self, x: Variable, output_size: Any = None) -> Variable:
        """Convolve; ``output_size`` takes the place of ``output_padding``."""
        return type(self)._function(
            x,
            self.weight,
            self.bias,
            stride=self._stride,
            padding=self._padding,
            output_padding=self.output_padding if output_size is None else 0,
            dilation=self._dilation,
            groups=self._groups,
            output_size=output_size,
            data_format=self._data_format,
        )


class Conv1DTranspose(_ConvTranspose, of=F.conv1d_transpose, data_format="NCL"):
    """Transposed convolution of sequences with a weight [in_channels, out_channels / groups, width]."""

    __init__ = reordered(
        _ConvTranspose.__init__,
        "self in_channels out_channels kernel_size stride padding output_padding groups dilation "
        "weight_attr bias_attr data_format",
    )


class Conv2DTranspose(_ConvTranspose, of=F.conv2d_transpose, data_format="NCHW"):
    """Transposed convolution of images with a weight [in_channels, out_channels / groups, height, width]."""


class Conv3DTranspose(_ConvTranspose, of=F.conv3d_transpose, data_format="NCDHW"):
    """Transposed convolution of volumes with a weight [in_channels, out_channels / groups, *kernel_size]."""


publish_definitions(__name__)
