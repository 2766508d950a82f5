"""Transforms of one image as functions: Pillow's images and NumPy arrays, H x W or H x W x C.

An image of Pillow gives the same pixels as in Paddle. Arrays, for which Paddle takes OpenCV, give the pixels of
the same image of Pillow, which also resamples them and turns their hue: ``resize`` smooths when it shrinks, and
channels are red, green, blue. Colours of float arrays reach from 0 to 255.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...names import publish_definitions
from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, require_type
from . import images

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
_PADDING_MODES = ("constant", "edge", "reflect", "symmetric")


def to_tensor(pic: Any, data_format: str = "CHW") -> images.Array:
    """Return an image as an array C x H x W or H x W x C: uint8 as float32 in 0 to 1, other dtypes as they are.

    Raises:
        InvalidValue: ``data_format`` is neither "CHW" nor "HWC".
    """
    _check_format(data_format)
    pil = images.check_image(pic) if not isinstance(pic, np.ndarray) or pic.ndim != 3 else False
    if pil and pic.mode in ("I", "I;16"):
        pic = np.asarray(pic, np.int32)
    elif pil and pic.mode == "1":
        pic = np.asarray(pic, np.uint8) * 255
    image = np.atleast_3d(np.asarray(pic))
    if image.dtype == np.uint8:
        image = image.astype(np.float32) / np.float32(255)
    return np.ascontiguousarray(image.transpose(2, 0, 1) if data_format == "CHW" else image)


def resize(img: Any, size: int | Sequence[int], interpolation: str = "bilinear") -> Any:
    """Resize to (height, width), or the shorter side to an int with the other in proportion.

    ``interpolation``: "nearest", "bilinear", "bicubic", "box" (or "area"), "lanczos" or "hamming".

    Raises:
        InvalidType: ``size`` is neither an int nor of length 2.
        InvalidValue: an unknown interpolation, or a size that is not positive.
    """
    width, height = images.image_size(img)
    if isinstance(size, int):
        short = min(width, height)
        if short == size:
            return img
        target = (int(size * width / short), int(size * height / short))
    elif isinstance(size, Sequence) and len(size) == 2:
        target = (int(size[1]), int(size[0]))
    else:
        raise InvalidType(f"size must be an int or (height, width), got {size!r}.")
    if min(target) <= 0:
        raise InvalidValue(f"size must be positive, got {size}.")
    mode = images.resampling(interpolation)
    if images.check_image(img):
        return img.resize(target, mode)
    return images.resample(img, lambda plane, fill: plane.resize(target, mode))


def pad(
    img: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant"
) -> Any:
    """Pad all sides by one number, by (left and right, top and bottom) or by (left, top, right, bottom).

    Args:
        img: image.
        padding: pixels.
        fill: value for "constant": a number for all channels, or one for each.
        padding_mode: "constant", "edge", "reflect" (without the edge) or "symmetric" (with it).

    Raises:
        InvalidType: an argument of another type.
        InvalidValue: ``padding`` has another length.
        InvalidArgument: an unknown mode.
    """
    pil = images.check_image(img)
    left, top, right, bottom = _sides(padding)
    if not isinstance(fill, int | float | str | list | tuple):
        raise InvalidType(f"fill must be a number or one for each channel, got {fill!r}.")
    require_type(padding_mode, str, "padding_mode must be a string")
    if padding_mode not in _PADDING_MODES:
        raise InvalidArgument(
            f"padding_mode must be one of {_PADDING_MODES}, got {padding_mode!r}."
        )
    if pil and padding_mode == "constant":
        size = (img.width + left + right, img.height + top + bottom)
        result = images.pillow().new(img.mode, size, images.pil_fill(img, fill))
        if img.palette:
            result.putpalette(img.getpalette())
        result.paste(img, (left, top))
        return result
    image = np.asarray(img)
    widths = ((top, bottom), (left, right), (0, 0))[: image.ndim]
    if padding_mode != "constant":
        padded = np.pad(image, widths, padding_mode)  # type: ignore[call-overload]
        return _like(img, padded) if pil else padded
    result = np.empty([n + sum(w) for n, w in zip(image.shape, widths, strict=True)], image.dtype)
    result[...] = images.channel_fill(fill, images.num_channels(img)) if image.ndim == 3 else fill
    result[top : top + image.shape[0], left : left + image.shape[1]] = image
    return result


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """Cut out a box; what lies outside the image is 0."""
    if images.check_image(img):
        return img.crop((left, top, left + width, top + height))
    rows, columns = img.shape[:2]
    sides = [-left, -top, left + width - columns, top + height - rows]
    if any(side > 0 for side in sides):
        sides = [max(side, 0) for side in sides]
        img, left, top = pad(img, sides), left + sides[0], top + sides[1]
    return img[top : top + height, left : left + width]


def center_crop(img: Any, output_size: int | Sequence[int]) -> Any:
    """Cut a box of (height, width), or a square, out of the middle."""
    height, width = pair(output_size)
    columns, rows = images.image_size(img)
    return crop(img, round((rows - height) / 2), round((columns - width) / 2), height, width)


def hflip(img: Any) -> Any:
    """Exchange left and right."""
    if images.check_image(img):
        return img.transpose(images.pillow().Transpose.FLIP_LEFT_RIGHT)
    return np.ascontiguousarray(img[:, ::-1])


def vflip(img: Any) -> Any:
    """Exchange top and bottom."""
    if images.check_image(img):
        return img.transpose(images.pillow().Transpose.FLIP_TOP_BOTTOM)
    return np.ascontiguousarray(img[::-1])


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """Multiply an image by a factor: 0 gives black, 1 the image."""
    if images.check_image(img):
        return images.pillow("ImageEnhance").Brightness(img).enhance(brightness_factor)
    return _blend(img, np.float32(0), brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Blend an image with the mean of its luma: factor 0 gives that grey, 1 the image."""
    if images.check_image(img):
        return images.pillow("ImageEnhance").Contrast(img).enhance(contrast_factor)
    mean = _luma(img).mean(dtype=np.float64)
    return _blend(img, int(mean + 0.5) if img.dtype == np.uint8 else mean, contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Blend an image with its luma: factor 0 gives shades of grey, 1 the image."""
    if images.check_image(img):
        return images.pillow("ImageEnhance").Color(img).enhance(saturation_factor)
    return _blend(img, _luma(img), saturation_factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Turn the hue by a share of the circle, -0.5 to 0.5, in 8 bits; images of one channel stay as they are.

    Raises:
        InvalidValue: the factor is out of range.
    """
    if not -0.5 <= hue_factor <= 0.5:
        raise InvalidValue(f"hue_factor must lie between -0.5 and 0.5, got {hue_factor}.")
    if images.num_channels(img) == 1:
        return img
    if not images.check_image(img):
        picture = images.pillow().fromarray(np.clip(img, 0, 255).astype(np.uint8))
        return np.asarray(adjust_hue(picture, hue_factor)).astype(img.dtype)
    hsv = np.array(img.convert("HSV"))
    hsv[..., 0] = (hsv[..., 0].astype(np.int16) + int(hue_factor * 255)) % 256
    return images.pillow().frombytes("HSV", img.size, hsv.tobytes()).convert(img.mode)


def affine(
    img: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: str = "nearest",
    fill: Any = 0,
    center: Sequence[float] | None = None,
) -> Any:
    """Rotate clockwise by ``angle`` degrees, shear, scale about a center, then translate; the size stays.

    Args:
        img: image.
        angle: degrees.
        translate: pixels to the right and down.
        scale: factor above 0.
        shear: degrees along x, or along x and y.
        interpolation: "nearest", "bilinear" or "bicubic".
        fill: value outside: a number for all channels, or one for each.
        center: (x, y); by default the middle.

    Raises:
        InvalidType: an argument of another type.
        InvalidValue: a scale that is not positive, or sequences of another length.
    """
    width, height = images.image_size(img)
    if not isinstance(angle, int | float):
        raise InvalidType(f"angle must be a number, got {angle!r}.")
    shear = (shear, 0.0) if isinstance(shear, int | float) else shear
    middle = (width * 0.5, height * 0.5) if center is None else center
    for name, value in (("translate", translate), ("shear", shear), ("center", middle)):
        require_type(value, list | tuple, f"{name} must be a list or a tuple")
    shear = tuple(shear) * 2 if len(shear) == 1 else shear
    for name, value in (("translate", translate), ("shear", shear), ("center", middle)):
        if len(value) != 2:
            raise InvalidValue(f"{name} must have 2 values, got {value!r}.")
    if scale <= 0:
        raise InvalidValue(f"scale must be positive, got {scale}.")
    matrix = _inverse_affine(middle, angle, translate, scale, shear)
    return _transform(img, "AFFINE", matrix, interpolation, fill)


def rotate(
    img: Any,
    angle: float,
    interpolation: str = "nearest",
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = 0,
) -> Any:
    """Rotate counter-clockwise by ``angle`` degrees about ``center`` (x, y), by default the middle.

    ``expand`` makes room for all of the image; ``fill`` is for what lies outside, see :func:`affine`.
    """
    mode, center = images.resampling(interpolation), None if center is None else tuple(center)
    if images.check_image(img):
        return img.rotate(angle, mode, expand, center, fillcolor=images.pil_fill(img, fill))
    return images.resample(
        img, lambda plane, value: plane.rotate(angle, mode, expand, center, fillcolor=value), fill
    )


def perspective(
    img: Any,
    startpoints: Sequence[Sequence[float]],
    endpoints: Sequence[Sequence[float]],
    interpolation: str = "nearest",
    fill: Any = 0,
) -> Any:
    """Move four corners (x, y) of an image from ``startpoints`` to ``endpoints``; see :func:`affine`.

    Raises:
        InvalidValue: not four points each.
    """
    if np.shape(startpoints) != (4, 2) or np.shape(endpoints) != (4, 2):
        raise InvalidValue(f"four (x, y) each are needed, got {startpoints!r} and {endpoints!r}.")
    # x' = (a x + b y + c) / (g x + h y + 1), y' = (d x + e y + f) / (g x + h y + 1), for each corner.
    rows = []
    for (x, y), (u, v) in zip(endpoints, startpoints, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    target = np.array(startpoints).reshape(8)
    coefficients = np.linalg.lstsq(np.array(rows, np.float64), target, rcond=None)[0]
    return _transform(img, "PERSPECTIVE", coefficients.tolist(), interpolation, fill)


def to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Return the luma of an image in 1 channel or in 3 equal ones.

    Raises:
        InvalidValue: another number of channels.
    """
    if num_output_channels not in (1, 3):
        raise InvalidValue(f"num_output_channels must be 1 or 3, got {num_output_channels}.")
    if images.check_image(img):
        gray = img.convert("L")
        return gray if num_output_channels == 1 else images.pillow().merge("RGB", (gray,) * 3)
    return np.repeat(_luma(img).astype(img.dtype), num_output_channels, 2)


def normalize(
    img: Any,
    mean: float | Sequence[float],
    std: float | Sequence[float],
    data_format: str = "CHW",
    to_rgb: bool = False,
) -> images.Array:
    """Return (img - mean) / std by channel, in float32 or the array's own float dtype.

    ``data_format`` says where the array's channels are (an image of Pillow is "HWC"); ``to_rgb`` reverses them.

    Raises:
        InvalidValue: an unknown format, or neither one value nor one for each channel.
    """
    _check_format(data_format)
    image = np.asarray(img, np.float32 if not isinstance(img, np.ndarray) else None)
    axis, shape = (-3, (-1, 1, 1)) if data_format == "CHW" else (-1, (-1,))
    image = np.expand_dims(image, axis) if image.ndim == 2 else image
    shift, scale = (np.array(v, np.float64).astype(np.float32).reshape(shape) for v in (mean, std))
    for name, values in (("mean", shift), ("std", scale)):
        if values.size not in (1, image.shape[axis]):
            raise InvalidValue(
                f"{name} has {values.size} values for {image.shape[axis]} channels of an array "
                f"{image.shape} in {data_format}; data_format may be wrong."
            )
    return np.asarray(((np.flip(image, axis) if to_rgb else image) - shift) / scale)


def erase(img: Any, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Any:
    """Set the box of height ``h`` and width ``w`` whose top is ``i`` and whose left is ``j`` to ``v``.

    ``v`` is a number or an array that broadcasts to the box; a number too large for the image's integers keeps
    its low bits, as in Paddle. ``inplace`` changes an array itself.
    """
    pil = images.check_image(img)
    image = np.array(img) if pil or not inplace else img
    value = np.asarray(v)
    if image.dtype.kind in "iu":
        value = value.astype(np.int64)
    image[i : i + h, j : j + w] = value.astype(image.dtype)
    return _like(img, image) if pil else image


def pair(size: Any) -> tuple[int, int]:
    """Return (height, width) of an int or a pair."""
    if isinstance(size, int | float):
        return int(size), int(size)
    if not isinstance(size, list | tuple) or len(size) != 2:
        raise InvalidType(f"size must be an int or (height, width), got {size!r}.")
    return int(size[0]), int(size[1])


def _check_format(data_format: str) -> None:
    if data_format not in ("CHW", "HWC"):
        raise InvalidValue(f"data_format must be 'CHW' or 'HWC', got {data_format!r}.")


def _sides(padding: Any) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom."""
    if isinstance(padding, int):
        padding = (padding,)
    require_type(padding, list | tuple, "padding must be an int, a list or a tuple")
    if len(padding) not in (1, 2, 4):
        raise InvalidValue(f"padding must have 2 or 4 values, got {padding!r}.")
    if min(padding) < 0:
        raise InvalidValue(f"padding must not be negative, got {padding!r}.")
    left, top, right, bottom = (tuple(padding) * 4)[:4]
    return left, top, right, bottom


def _like(img: Any, pixels: images.Array) -> Any:
    """Return an image of the mode and palette of Pillow's ``img``."""
    result = images.pillow().new(img.mode, pixels.shape[1::-1])
    if img.palette:
        result.putpalette(img.getpalette())
    if img.mode == "1":
        pixels = np.packbits(pixels, axis=1)
    result.frombytes(pixels.tobytes())
    return result


def _transform(
    img: Any, method: str, matrix: Sequence[float], interpolation: str, fill: Any
) -> Any:
    kind, mode = getattr(images.pillow().Transform, method), images.resampling(interpolation)
    if images.check_image(img):
        return img.transform(img.size, kind, matrix, mode, fillcolor=images.pil_fill(img, fill))
    return images.resample(
        img,
        lambda plane, value: plane.transform(plane.size, kind, matrix, mode, fillcolor=value),
        fill,
    )


def _inverse_affine(
    center: Sequence[float],
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
) -> list[float]:
    """Return the matrix, 2 x 3 by rows, that leads from a pixel of the result to one of the image."""
    turn, (shear_x, shear_y) = math.radians(angle), (math.radians(s) for s in shear)
    # The linear part is a rotation by turn times a shear; [a, b; c, d], of determinant 1.
    a = math.cos(turn - shear_y) / math.cos(shear_y)
    b = -a * math.tan(shear_x) - math.sin(turn)
    c = math.sin(turn - shear_y) / math.cos(shear_y)
    d = -c * math.tan(shear_x) + math.cos(turn)
    x, y = -center[0] - translate[0], -center[1] - translate[1]
    rows = ((d / scale, -b / scale, center[0]), (-c / scale, a / scale, center[1]))
    return [v for p, q, middle in rows for v in (p, q, p * x + q * y + middle)]


def _colours(image: images.Array) -> images.Array:
    """Return the channels of an array H x W x C without alpha."""
    channels = image.shape[2]
    if channels > 4:
        raise InvalidValue(f"colours need 1 to 4 channels, got an array of shape {image.shape}.")
    return image[..., : channels - 1] if channels in (2, 4) else image


def _luma(img: images.Array) -> images.Array:
    """Return the luma H x W x 1 in float32: of uint8 whole numbers, rounded as Pillow does."""
    colours = _colours(np.atleast_3d(img))
    if colours.shape[2] == 1:
        return colours.astype(np.float32)
    if img.dtype == np.uint8:
        weights = np.array([19595, 38470, 7471])  # the weights in 16 bits
        rounded: images.Array = (colours @ weights + 0x8000) >> 16
        return rounded[..., None].astype(np.float32)
    luma: images.Array = colours.astype(np.float32) @ np.array(_LUMA, np.float32)
    return luma[..., None]


def _blend(img: images.Array, other: Any, factor: float) -> images.Array:
    """Return other + factor (img - other) between 0 and 255, cut to the dtype; alpha stays."""
    result = np.atleast_3d(img).copy()
    colours = _colours(result)
    start = np.float32(other)
    values = start + np.float32(factor) * (colours.astype(np.float32) - start)
    colours[...] = np.clip(values, 0, 255).astype(img.dtype)
    return result.reshape(img.shape)


publish_definitions(__name__, withhold=(pair,))
