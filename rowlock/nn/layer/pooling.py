"""Pooling."""

from __future__ import annotations

from .. import functional as F
from .function_layer import FunctionLayer

_WINDOW = ("kernel_size", "stride", "padding")


class AvgPool1D(FunctionLayer, of=F.avg_pool1d, shown=_WINDOW): ...


class AvgPool2D(FunctionLayer, of=F.avg_pool2d, shown=_WINDOW): ...


class MaxPool1D(FunctionLayer, of=F.max_pool1d, shown=_WINDOW): ...


class MaxPool2D(FunctionLayer, of=F.max_pool2d, shown=_WINDOW): ...


class AdaptiveAvgPool1D(FunctionLayer, of=F.adaptive_avg_pool1d, shown=("output_size",)): ...


class AdaptiveAvgPool2D(FunctionLayer, of=F.adaptive_avg_pool2d, shown=("output_size",)): ...


class AdaptiveMaxPool1D(
    FunctionLayer, of=F.adaptive_max_pool1d, shown=("output_size", "return_mask")
): ...


class AdaptiveMaxPool2D(
    FunctionLayer, of=F.adaptive_max_pool2d, shown=("output_size", "return_mask")
): ...
