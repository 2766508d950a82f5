"""Transforms as objects, whose parameters are fixed or drawn at each call, for an image or a tuple of inputs.

Draws come from Python's ``random`` and from ``numpy.random``, in Paddle's order: seeds of both give Paddle's
images.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidValue
from . import functional as F
from .base import BaseTransform, Compose, check, is_number
from .colours import (
    BrightnessTransform,
    ColorJitter,
    ContrastTransform,
    Grayscale,
    HueTransform,
    SaturationTransform,
)
from .distortions import RandomAffine, RandomErasing, RandomPerspective, RandomRotation
from .images import Array, image_size


class ToTensor(BaseTransform):
    """Image to an array C x H x W (or H x W x C), ready to be fed: see :func:`~.functional.to_tensor`."""

    def __init__(self, data_format: str = "CHW", keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.data_format = data_format

    def _apply_image(self, img: Any) -> Array:
        return F.to_tensor(img, self.data_format)


class Resize(BaseTransform):
    """Resize to (height, width), or the shorter side to an int: see :func:`~.functional.resize`."""

    def __init__(
        self, size: Any, interpolation: str = "bilinear", keys: Sequence[str] | None = None
    ) -> None:
        super().__init__(keys)
        fits = isinstance(size, int) or (isinstance(size, Sequence) and len(size) == 2)
        check(fits, f"size must be an int or (height, width), got {size!r}.")
        self.size, self.interpolation = size, interpolation

    def _apply_image(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation)


class RandomResizedCrop(BaseTransform):
    """Crop a share of the area (``scale``) of a random aspect ``ratio``, and resize it to ``size``.

    Szegedy et al., arXiv 1409.4842. Ten draws that do not fit end in a crop of the middle.

    Raises:
        InvalidArgument: a range whose ends are in the wrong order.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4, 4.0 / 3),
        interpolation: str = "bilinear",
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.size = F.pair(size)
        check(scale[0] <= scale[1], f"scale must be (min, max), got {scale}.")
        check(0 < ratio[0] <= ratio[1], f"ratio must be (min, max) above 0, got {ratio}.")
        self.scale, self.ratio, self.interpolation = scale, ratio, interpolation

    def _get_param(self, image: Any, attempts: int = 10) -> tuple[int, int, int, int]:
        """Draw top, left, height and width."""
        width, height = image_size(image)
        low, high = (math.log(bound) for bound in self.ratio)
        for _ in range(attempts):
            area = np.random.uniform(self.scale[0], self.scale[1]) * (height * width)
            aspect = math.exp(np.random.uniform(low, high))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                return random.randint(0, height - h), random.randint(0, width - w), h, w
        narrow, wide = min(self.ratio), max(self.ratio)
        w, h = width, height
        if width / height < narrow:
            h = round(w / narrow)
        elif width / height > wide:
            w = round(h * wide)
        return (height - h) // 2, (width - w) // 2, h, w

    def _apply_image(self, img: Any) -> Any:
        cropped = F.crop(img, *self._get_param(img))
        return F.resize(cropped, self.size, self.interpolation)


class CenterCrop(BaseTransform):
    """Cut a box of (height, width), or a square, out of the middle."""

    def __init__(self, size: Any, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.size = F.pair(size)

    def _apply_image(self, img: Any) -> Any:
        return F.center_crop(img, self.size)


class RandomHorizontalFlip(BaseTransform):
    """Exchange left and right with a probability.

    Raises:
        InvalidArgument: the probability is not between 0 and 1.
    """

    def __init__(self, prob: float = 0.5, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        check(0 <= prob <= 1, f"prob must lie between 0 and 1, got {prob}.")
        self.prob = prob

    def _apply_image(self, img: Any) -> Any:
        return F.hflip(img) if random.random() < self.prob else img


class RandomVerticalFlip(RandomHorizontalFlip):
    """Exchange top and bottom with a probability.

    Raises:
        InvalidArgument: the probability is not between 0 and 1.
    """

    def _apply_image(self, img: Any) -> Any:
        return F.vflip(img) if random.random() < self.prob else img


class Normalize(BaseTransform):
    """(image - mean) / std, with one value for all channels or one each: see :func:`~.functional.normalize`."""

    def __init__(
        self,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        data_format: str = "CHW",
        to_rgb: bool = False,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.mean, self.std = mean, std
        self.data_format, self.to_rgb = data_format, to_rgb

    def _apply_image(self, img: Any) -> Array:
        return F.normalize(img, self.mean, self.std, self.data_format, self.to_rgb)


class Transpose(BaseTransform):
    """Array whose axes stand in another order, C x H x W by default; an image of one channel gets its axis."""

    def __init__(self, order: Sequence[int] = (2, 0, 1), keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.order = order

    def _apply_image(self, img: Any) -> Array:
        return np.atleast_3d(np.asarray(img)).transpose(self.order)


class RandomCrop(BaseTransform):
    """Cut out a box of (height, width), or a square, at random.

    Args:
        size: of the box.
        padding: pixels around the image first: see :func:`~.functional.pad`.
        pad_if_needed: pad both sides of what is too small by what it lacks.
        fill: value of pixels that are padded.
        padding_mode: as in :func:`~.functional.pad`.
        keys: see :class:`BaseTransform`.

    Raises:
        InvalidValue: when called, the image is smaller than the box.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.size, self.padding, self.pad_if_needed = F.pair(size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    def _get_param(self, img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Draw top, left, height and width."""
        (width, height), (h, w) = image_size(img), output_size
        if (width, height) == (w, h):
            return 0, 0, h, w
        if width < w or height < h:
            raise InvalidValue(
                f"RandomCrop: a box {h} x {w} does not fit an image {height} x {width}; pad_if_needed helps."
            )
        return random.randint(0, height - h), random.randint(0, width - w), h, w

    def _apply_image(self, img: Any) -> Any:
        height, width = self.size
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        columns, rows = image_size(img)
        if self.pad_if_needed and columns < width:
            img = F.pad(img, (width - columns, 0), self.fill, self.padding_mode)
        if self.pad_if_needed and rows < height:
            img = F.pad(img, (0, height - rows), self.fill, self.padding_mode)
        return F.crop(img, *self._get_param(img, self.size))


class Pad(BaseTransform):
    """Pad an image: see :func:`~.functional.pad`.

    Raises:
        InvalidArgument: an argument of another type, or an unknown mode.
        InvalidValue: ``padding`` has neither 2 nor 4 values.
    """

    def __init__(
        self,
        padding: Any,
        fill: Any = 0,
        padding_mode: str = "constant",
        keys: Sequence[str] | None = None,
    ) -> None:
        check(isinstance(padding, int | list | tuple), f"padding must be pixels, got {padding!r}.")
        check(is_number(fill) or isinstance(fill, str | list | tuple), f"fill is {fill!r}.")
        if not isinstance(padding, int) and len(padding) not in (2, 4):
            raise InvalidValue(f"padding must have 2 or 4 values, got {padding!r}.")
        modes = ("constant", "edge", "reflect", "symmetric")
        check(padding_mode in modes, f"padding_mode must be one of {modes}, got {padding_mode!r}.")
        super().__init__(keys)
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def _apply_image(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


__all__ = [
    "BaseTransform",
    "BrightnessTransform",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ContrastTransform",
    "Grayscale",
    "HueTransform",
    "Normalize",
    "Pad",
    "RandomAffine",
    "RandomCrop",
    "RandomErasing",
    "RandomHorizontalFlip",
    "RandomPerspective",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
    "SaturationTransform",
    "ToTensor",
    "Transpose",
]
