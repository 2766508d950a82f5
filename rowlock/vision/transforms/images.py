"""Tell images of Pillow from arrays, and resample arrays with Pillow, which is imported when it is needed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ...strategies.errors import InvalidType, InvalidValue, Unsupported, require_type

Array = np.ndarray[Any, Any]
_INTERPOLATION = ("nearest", "bilinear", "bicubic", "box", "area", "lanczos", "hamming")


def pillow(module: str = "Image") -> Any:
    """Import a module of Pillow.

    Raises:
        Unsupported: Pillow is not installed.
    """
    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError:
        raise Unsupported(
            "this transform needs Pillow: pip install '.[vision]' in Rowlock's folder."
        ) from None


def is_pil(image: Any) -> bool:
    """Return whether an image is Pillow's, without importing Pillow."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(image, module.Image)


def check_image(image: Any) -> bool:
    """Return whether an image is Pillow's, else check that it is an array H x W or H x W x C.

    Raises:
        InvalidType: it is neither.
        InvalidValue: the array is C x H x W.
    """
    if is_pil(image):
        return True
    if not isinstance(image, np.ndarray) or image.ndim not in (2, 3):
        shape = f" of shape {image.shape}" if isinstance(image, np.ndarray) else ""
        raise InvalidType(
            f"an image must be Pillow's or an array H x W or H x W x C, got {type(image).__name__}{shape}."
        )
    if image.ndim == 3 and image.shape[2] > 4 and image.shape[0] in (1, 3, 4):
        raise InvalidValue(
            f"an array of shape {image.shape} looks like C x H x W, where H x W x C is expected: "
            "put this transform before ToTensor or Transpose."
        )
    return False


def image_size(image: Any) -> tuple[int, int]:
    """Return the width and the height."""
    if check_image(image):
        return int(image.size[0]), int(image.size[1])
    return int(image.shape[1]), int(image.shape[0])


def num_channels(image: Any) -> int:
    """Return the number of channels."""
    if check_image(image):
        return len(image.getbands())
    return int(image.shape[2]) if image.ndim == 3 else 1


def resampling(interpolation: str) -> Any:
    """Return Pillow's filter of a name; "area" is "box".

    Raises:
        InvalidValue: no filter has this name.
    """
    if interpolation not in _INTERPOLATION:
        raise InvalidValue(f"interpolation must be one of {_INTERPOLATION}, got {interpolation!r}.")
    name = "BOX" if interpolation == "area" else interpolation.upper()
    return getattr(pillow().Resampling, name)


def channel_fill(fill: Any, channels: int) -> tuple[Any, ...]:
    """Return the fill value of each channel, from one number for all or one for each.

    Raises:
        InvalidType: it is neither a number nor a sequence.
        InvalidValue: the number of values is neither 1 nor that of the channels.
    """
    if isinstance(fill, int | float | np.number):
        return (fill,) * channels
    require_type(fill, list | tuple, "fill must be a number, a list or a tuple")
    if len(fill) not in (1, channels):
        raise InvalidValue(f"fill must have 1 value or {channels}, got {fill!r}.")
    return tuple(fill) * (channels // len(fill))


def pil_fill(image: Any, fill: Any) -> Any:
    """Return a fill value as Pillow takes it for an image; of RGBA, a number leaves alpha at 255."""
    if isinstance(fill, str):
        return fill
    bands = image.getbands()
    if isinstance(fill, list | tuple) and len(fill) == 3 and len(bands) == 4:
        return tuple(fill)
    if isinstance(fill, int | float | np.number) and image.mode == "RGBA":
        return (int(fill),) * 3
    values = channel_fill(fill, len(bands))
    values = values if image.mode == "F" else tuple(int(value) for value in values)
    return values[0] if len(bands) == 1 else values


def resample(image: Array, transform: Callable[[Any, Any], Any], fill: Any = 0) -> Array:
    """Apply ``transform(image of one channel, fill value)`` of Pillow to each channel of an array.

    uint8 and bool are computed as Pillow's "L", other dtypes in float32 ("F"), integers rounded and clipped.
    """
    planes = np.atleast_3d(image)
    fills = channel_fill(fill, planes.shape[2])
    small = image.dtype in (np.uint8, np.bool_)
    planes = np.ascontiguousarray(np.moveaxis(planes, 2, 0), np.uint8 if small else np.float32)
    fills = tuple(int(value) if small else float(value) for value in fills)
    of_plane = pillow().fromarray
    pictures = [
        transform(of_plane(plane), value) for plane, value in zip(planes, fills, strict=True)
    ]
    result = np.stack([np.asarray(picture) for picture in pictures], -1)
    if not small and image.dtype.kind in "iu":
        bounds = np.iinfo(image.dtype)
        result = np.clip(np.rint(result), bounds.min, bounds.max)
    return (result[..., 0] if image.ndim == 2 else result).astype(image.dtype)
