"""Resizing of images."""

from __future__ import annotations

from ...names import publish_definitions
from .. import images
from .function_layer import FunctionLayer


class Upsample(FunctionLayer, of=images.interpolate, without=("antialias",)): ...


class UpsamplingNearest2D(FunctionLayer, of=images.upsampling_nearest2d): ...


class UpsamplingBilinear2D(FunctionLayer, of=images.upsampling_bilinear2d): ...


publish_definitions(__name__)
