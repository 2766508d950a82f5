"""Transforms that turn, bend or hide parts of an image at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidType, InvalidValue, require_type
from . import functional as F
from .base import BaseTransform, check, is_number
from .images import image_size, is_pil, num_channels

_ROTATION_FILTERS = ("nearest", "bilinear", "bicubic")


def _span(name: str, value: Any, lengths: tuple[int, ...] = (2,)) -> list[float]:
    """Return a range as floats; a number v means -v to v."""
    if is_number(value):
        if value < 0:
            raise InvalidValue(f"{name} must not be negative as a single number, got {value}.")
        return [-float(value), float(value)]
    require_type(value, Sequence, f"{name} must be a number or a sequence")
    if len(value) not in lengths:
        raise InvalidValue(f"{name} must have {lengths} values, got {value!r}.")
    return [float(v) for v in value]


class RandomAffine(BaseTransform):
    """Rotate, translate, scale and shear at random: see :func:`~.functional.affine`.

    Args:
        degrees: (low, high) of the angle, or v for (-v, v).
        translate: largest shifts to the sides as shares of width and height, 0 to 1.
        scale: (low, high) of the factor.
        shear: degrees (low, high) along x, or v for (-v, v), or four numbers along x and y.
        interpolation: "nearest", "bilinear" or "bicubic".
        fill: value outside the image.
        center: (x, y); by default the middle.
        keys: see :class:`BaseTransform`.

    Raises:
        InvalidType: an argument is no sequence.
        InvalidValue: one of another length, or out of range.
        InvalidArgument: an unknown interpolation.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: str = "nearest",
        fill: Any = 0,
        center: Sequence[float] | None = None,
        keys: Sequence[str] | None = None,
    ) -> None:
        self.degrees = _span("degrees", degrees)
        super().__init__(keys)
        _check_filter(interpolation)
        for name, pair in (("translate", translate), ("scale", scale), ("center", center)):
            if is_number(pair):
                raise InvalidType(f"{name} must be a sequence of 2 numbers, got {pair!r}.")
            if pair is not None:
                _span(name, pair)
        if translate is not None and not all(0 <= t <= 1 for t in translate):
            raise InvalidValue(f"translate must lie between 0 and 1, got {translate}.")
        if scale is not None and min(scale) <= 0:
            raise InvalidValue(f"scale must be positive, got {scale}.")
        self.translate, self.scale, self.center = translate, scale, center
        self.shear = None if shear is None else _span("shear", shear, (2, 4))
        self.interpolation, self.fill = interpolation, 0 if fill is None else fill

    def _get_param(
        self, img_size: Sequence[int]
    ) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
        """Draw the angle, the translation, the scale and the shears."""
        angle, move, scale, shear_y = random.uniform(*self.degrees), (0, 0), 1.0, 0.0
        if self.translate is not None:
            dx, dy = (float(t * n) for t, n in zip(self.translate, img_size, strict=True))
            move = (int(random.uniform(-dx, dx)), int(random.uniform(-dy, dy)))
        if self.scale is not None:
            scale = random.uniform(*self.scale)
        shears = self.shear
        shear_x = random.uniform(*shears[:2]) if shears is not None else 0.0
        if shears is not None and len(shears) == 4:
            shear_y = random.uniform(*shears[2:])
        return angle, move, scale, (shear_x, shear_y)

    def _apply_image(self, img: Any) -> Any:
        params = self._get_param(image_size(img))
        return F.affine(img, *params, self.interpolation, self.fill, self.center)


class RandomRotation(BaseTransform):
    """Rotate by an angle from ``degrees``, (low, high) or v for (-v, v): see :func:`~.functional.rotate`.

    Raises:
        InvalidValue: a negative number, or not two of them.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: str = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
        keys: Sequence[str] | None = None,
    ) -> None:
        self.degrees = _span("degrees", degrees)
        super().__init__(keys)
        self.interpolation, self.expand, self.center = interpolation, expand, center
        self.fill = fill

    def _get_param(self, degrees: Sequence[float]) -> float:
        """Draw the angle."""
        return random.uniform(degrees[0], degrees[1])

    def _apply_image(self, img: Any) -> Any:
        angle = self._get_param(self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)


class RandomPerspective(BaseTransform):
    """With a probability, move the corners by up to ``distortion_scale`` of half the sides.

    Raises:
        InvalidArgument: an argument out of its range.
    """

    def __init__(
        self,
        prob: float = 0.5,
        distortion_scale: float = 0.5,
        interpolation: str = "nearest",
        fill: Any = 0,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        for name, value in (("prob", prob), ("distortion_scale", distortion_scale)):
            check(0 <= value <= 1, f"{name} must lie between 0 and 1, got {value}.")
        _check_filter(interpolation)
        check(is_number(fill) or isinstance(fill, str | list | tuple), f"fill is {fill!r}.")
        self.prob, self.distortion_scale = prob, distortion_scale
        self.interpolation, self.fill = interpolation, fill

    def get_params(
        self, width: int, height: int, distortion_scale: float
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the corners from the top left clockwise, [x, y] each, and where they go."""
        dx, dy = (int(distortion_scale * (side // 2)) + 1 for side in (width, height))
        spans = {0: (0, dx), 1: (width - dx, width)}, {0: (0, dy), 1: (height - dy, height)}
        corners = [(0, 0), (1, 0), (1, 1), (0, 1)]
        starts = [[x * (width - 1), y * (height - 1)] for x, y in corners]
        ends = [
            [int(random.uniform(*spans[0][x])), int(random.uniform(*spans[1][y]))]
            for x, y in corners
        ]
        return starts, ends

    def _apply_image(self, img: Any) -> Any:
        width, height = image_size(img)
        if random.random() >= self.prob:
            return img
        starts, ends = self.get_params(width, height, self.distortion_scale)
        return F.perspective(img, starts, ends, self.interpolation, self.fill)


class RandomErasing(BaseTransform):
    """With a probability, set a box to ``value``. Zhong et al., arXiv 1708.04896. Stands before ToTensor.

    Args:
        prob: probability.
        scale: (low, high) of the box's share of the area.
        ratio: (low, high) of its height over its width.
        value: a number, one for each channel, or "random" for noise.
        inplace: change the array that is given.
        keys: see :class:`BaseTransform`.

    Raises:
        InvalidArgument: an argument out of its range.
        InvalidValue: another string, or, when called, another number of values.
    """

    def __init__(
        self,
        prob: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
        inplace: bool = False,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        for name, span in (("scale", scale), ("ratio", ratio)):
            check(isinstance(span, tuple | list), f"{name} must be (min, max), got {span!r}.")
        check(0 <= scale[0] <= scale[1] <= 1, f"scale must rise in 0 to 1, got {scale}.")
        check(0 <= ratio[0] <= ratio[1], f"ratio must rise from 0 or more, got {ratio}.")
        check(0 <= prob <= 1, f"prob must lie between 0 and 1, got {prob}.")
        fits = is_number(value) or isinstance(value, str | tuple | list)
        check(fits, f"value must be a number, a sequence or 'random', got {value!r}.")
        if isinstance(value, str) and value != "random":
            raise InvalidValue(f"value must be 'random' if it is a string, got {value!r}.")
        self.prob, self.scale, self.ratio = prob, scale, ratio
        self.value, self.inplace = value, inplace

    def _get_param(self, img: Any) -> tuple[int, int, int, int, Any] | None:
        """Draw top, left, height, width and the box's values; None if ten boxes do not fit."""
        (width, height), channels = image_size(img), num_channels(img)
        values = np.atleast_1d(0 if self.value == "random" else self.value)
        if len(values) not in (1, channels):
            raise InvalidValue(f"value has {len(values)} numbers for {channels} channels.")
        low, high = np.log(self.ratio)
        for _ in range(10):
            area = np.random.uniform(self.scale[0], self.scale[1]) * (height * width)
            aspect = np.exp(np.random.uniform(low, high))
            h, w = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
            if h >= height or w >= width:
                continue
            box: Any = values
            if self.value == "random":
                box = np.random.normal(size=[h, w, channels]) * 255
            flat = np.ndim(img) == 2 if not is_pil(img) else channels == 1
            box = np.broadcast_to(box, (h, w, channels))[..., 0] if flat else box
            top = np.random.randint(0, height - h + 1)
            return top, np.random.randint(0, width - w + 1), h, w, box
        return None

    def _apply_image(self, img: Any) -> Any:
        if random.random() >= self.prob:
            return img
        params = self._get_param(img)
        return img if params is None else F.erase(img, *params, self.inplace)


def _check_filter(interpolation: str) -> None:
    check(
        interpolation in _ROTATION_FILTERS,
        f"interpolation must be one of {_ROTATION_FILTERS}, got {interpolation!r}.",
    )
