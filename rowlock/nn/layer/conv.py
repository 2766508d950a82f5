"""Convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from ...functions.framework import get_default_dtype
from ...graph.layers.initializer import NormalInitializer
from ...graph.layers.numbers import integer
from ...graph.program.variable import Variable
from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue
from .. import functional as F
from .function_layer import DimensionedLayer

_MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(DimensionedLayer):
    """Weights are [out_channels, in_channels / groups, *kernel_size], normal as He et al. propose."""

    _function: ClassVar[Callable[..., Variable]]

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
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "",
    ) -> None:
        super().__init__(dtype=dtype)
        kind = type(self).__name__
        if weight_attr is False:
            raise InvalidArgument(f"{kind}: weight_attr cannot be False.")
        if padding_mode not in _MODES:
            raise InvalidValue(f"{kind}: padding_mode is one of {_MODES}, got {padding_mode!r}.")
        if padding_mode != "zeros" and not isinstance(padding, int):
            raise InvalidType(f"{kind}: with padding_mode={padding_mode!r} padding is an int.")
        if integer(in_channels, "in_channels", kind) % integer(groups, "groups", kind):
            raise InvalidValue(f"{kind}: {in_channels} channels do not divide by {groups} groups.")
        self._in_channels, self._out_channels, self._groups = in_channels, out_channels, groups
        self._padding, self._padding_mode, self._data_format = padding, padding_mode, data_format
        self._kernel_size = self._sizes(kernel_size, "kernel_size")
        self._stride = self._sizes(stride, "stride")
        self._dilation = self._sizes(dilation, "dilation")
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

    def _sizes(self, sizes: Any, argument: str) -> list[int]:
        numbers = list(sizes) if isinstance(sizes, (list, tuple)) else [sizes] * self._dims
        if len(numbers) != self._dims:
            raise InvalidValue(
                f"{type(self).__name__}: {argument} has {self._dims} numbers, got {sizes!r}."
            )
        return [integer(number, argument, type(self).__name__) for number in numbers]

    def forward(self, x: Variable) -> Variable:
        """Convolve images or sequences."""
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

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        ones = [1] * self._dims
        settings = [
            f"{self._in_channels}, {self._out_channels}, kernel_size={self._kernel_size}",
            f"stride={self._stride}" if self._stride != ones else "",
            f"padding={self._padding}" if self._padding != 0 else "",
            f"padding_mode={self._padding_mode}" if self._padding_mode != "zeros" else "",
            f"dilation={self._dilation}" if self._dilation != ones else "",
            f"groups={self._groups}" if self._groups != 1 else "",
            f"data_format={self._data_format}",
        ]
        return ", ".join(filter(None, settings))


class Conv1D(_Conv, data_format="NCL"):
    """Convolution of sequences [N, C, L] with a weight [out_channels, in_channels / groups, width].

    Raises:
        InvalidArgument: ``weight_attr`` is False.
        InvalidType: a size is no int.
        InvalidValue: sizes, groups or modes do not fit.
    """

    _function, _dims = staticmethod(F.conv1d), 1


class Conv2D(_Conv, data_format="NCHW"):
    """Convolution of images with a weight [out_channels, in_channels / groups, height, width].

    Raises:
        InvalidArgument: ``weight_attr`` is False.
        InvalidType: a size is no int.
        InvalidValue: sizes, groups or modes do not fit.
    """

    _function, _dims = staticmethod(F.conv2d), 2
