"""Transforms of colours."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue
from . import functional as F
from .base import BaseTransform, Compose


class _Jitter(BaseTransform):
    """Change a colour by a factor drawn from ``value``: (low, high), or a distance from ``center``.

    Raises:
        InvalidType: ``value`` is neither.
        InvalidValue: it is out of ``bounds``.
    """

    center, bounds = 1.0, (0.0, math.inf)

    def __init__(self, value: float | Sequence[float], keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        low, high = self.bounds
        if isinstance(value, list | tuple) and len(value) == 2:
            span = [*value]
        elif isinstance(value, int | float):
            span = [max(self.center - value, low) if low == 0 else -value, self.center + value]
        else:
            raise InvalidType(f"value must be a number or (low, high), got {value!r}.")
        if not low <= span[0] <= span[1] <= high:
            raise InvalidValue(f"{type(self).__name__}: {value} leads out of {low} to {high}.")
        self.value = None if span[0] == span[1] == self.center else span

    def _adjust(self, img: Any, factor: float) -> Any:
        raise NotImplementedError

    def _apply_image(self, img: Any) -> Any:
        return img if self.value is None else self._adjust(img, random.uniform(*self.value))


class BrightnessTransform(_Jitter):
    """Multiply an image by a factor from (low, high), or from 1 - value to 1 + value."""

    def _adjust(self, img: Any, factor: float) -> Any:
        return F.adjust_brightness(img, factor)


class ContrastTransform(_Jitter):
    """Change the contrast by a factor from (low, high), or from 1 - value to 1 + value."""

    def _adjust(self, img: Any, factor: float) -> Any:
        return F.adjust_contrast(img, factor)


class SaturationTransform(_Jitter):
    """Change the saturation by a factor from (low, high), or from 1 - value to 1 + value."""

    def _adjust(self, img: Any, factor: float) -> Any:
        return F.adjust_saturation(img, factor)


class HueTransform(_Jitter):
    """Turn the hue by a share of the circle from (low, high), or from -value to value; at most 0.5."""

    center, bounds = 0.0, (-0.5, 0.5)

    def _adjust(self, img: Any, factor: float) -> Any:
        return F.adjust_hue(img, factor)


class ColorJitter(BaseTransform):
    """Brightness, contrast, saturation and hue changed at random, in random order; 0 leaves one as it is."""

    def __init__(
        self,
        brightness: float | Sequence[float] = 0,
        contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0,
        hue: float | Sequence[float] = 0,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.brightness, self.contrast = brightness, contrast
        self.saturation, self.hue = saturation, hue
        values = {
            BrightnessTransform: brightness,
            ContrastTransform: contrast,
            SaturationTransform: saturation,
            HueTransform: hue,
        }
        self._transforms = [kind(v) for kind, v in values.items() if v is not None]

    def _apply_image(self, img: Any) -> Any:
        order = list(self._transforms)
        random.shuffle(order)
        return Compose(order)(img)


class Grayscale(BaseTransform):
    """Luma of an image in 1 channel or in 3 equal ones."""

    def __init__(self, num_output_channels: int = 1, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.num_output_channels = num_output_channels

    def _apply_image(self, img: Any) -> Any:
        return F.to_grayscale(img, self.num_output_channels)
