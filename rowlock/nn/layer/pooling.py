"""Pooling."""

from __future__ import annotations

from ...names import publish_definitions
from .. import functional as F
from .function_layer import FunctionLayer

_WINDOW = ("kernel_size", "stride", "padding")


class AvgPool1D(FunctionLayer, of=F.avg_pool1d, shown=_WINDOW): ...


class AvgPool2D(FunctionLayer, of=F.avg_pool2d, shown=_WINDOW): ...


class MaxPool1D(FunctionLayer, of=F.max_pool1d, shown=_WINDOW): ...


class MaxPool2D(FunctionLayer, of=F.max_pool2d, shown=_WINDOW): ...


class AvgPool3D(FunctionLayer, of=F.avg_pool3d, shown=_WINDOW): ...


class MaxPool3D(FunctionLayer, of=F.max_pool3d, shown=_WINDOW): ...


class LPPool1D(FunctionLayer, of=F.lp_pool1d, shown=("norm_type", *_WINDOW)): ...


class LPPool2D(FunctionLayer, of=F.lp_pool2d, shown=("norm_type", *_WINDOW)): ...


class AdaptiveAvgPool1D(FunctionLayer, of=F.adaptive_avg_pool1d, shown=("output_size",)): ...


class AdaptiveAvgPool2D(FunctionLayer, of=F.adaptive_avg_pool2d, shown=("output_size",)): ...


class AdaptiveMaxPool1D(
    FunctionLayer, of=F.adaptive_max_pool1d, shown=("output_size", "return_mask")
): ...


class AdaptiveMaxPool2D(
    FunctionLayer, of=F.adaptive_max_pool2d, shown=("output_size", "return_mask")
): ...


class AdaptiveAvgPool3D(FunctionLayer, of=F.adaptive_avg_pool3d, shown=("output_size",)): ...


class AdaptiveMaxPool3D(
    FunctionLayer, of=F.adaptive_max_pool3d, shown=("output_size", "return_mask")
): ...


class MaxUnPool1D(FunctionLayer, of=F.max_unpool1d, shown=("output_size",)): ...


class MaxUnPool2D(FunctionLayer, of=F.max_unpool2d, shown=("output_size",)): ...


class MaxUnPool3D(FunctionLayer, of=F.max_unpool3d, shown=("output_size",)): ...


publish_definitions(__name__)
