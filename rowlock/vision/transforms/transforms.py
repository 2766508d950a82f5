"""Transforms as objects, whose parameters are fixed or drawn at each call, for an image or a tuple of inputs.

Draws come from Python's ``random`` and from ``numpy.random``, in Paddle's order: seeds of both give Paddle's
images.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, Unsupported
from . import functional as F
from .images import Array, image_size, is_pil, num_channels

_ROTATION_FILTERS = ("nearest", "bilinear", "bicubic")


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidArgument(message)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)


class Compose:
    """Apply transforms one after another; an error names the one that failed."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, data: Any) -> Any:
        """Return what the last transform gives."""
        for transform in self.transforms:
            try:
                data = transform(data)
            except Exception as error:
                error.add_note(f"raised by transform {transform} of Compose")
                raise
        return data

    def __repr__(self) -> str:
        lines = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({lines}\n)"


class BaseTransform:
    """Base of transforms: a subclass defines ``_apply_image``, and ``_apply_<key>`` for other kinds of inputs.

    ``_get_params(inputs)``, called once for all inputs, gives what these methods find in ``self.params``.

    Args:
        keys: kind of each input: "image" (the default for the first), "coords" [N, 2], "boxes" [N, 4], "mask",
            or any other that has a method. Inputs without a key are returned as they are.

    Raises:
        InvalidValue: ``keys`` is no sequence.
        Unsupported: no method for a key.
    """

    def __init__(self, keys: Sequence[str] | None = None) -> None:
        if keys is not None and not isinstance(keys, Sequence):
            raise InvalidValue(f"keys must be a sequence, got {keys!r}.")
        self.keys = ("image",) if keys is None else keys
        for key in self.keys:
            if self._get_apply(key) is None:
                raise Unsupported(f"{type(self).__name__} has no _apply_{key} for the key {key!r}.")
        self.params: Any = None

    def __call__(self, inputs: Any) -> Any:
        """Return an input transformed, or a tuple of them."""
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        self.params = self._get_params(inputs)
        keyed = zip(inputs, self.keys, strict=False)
        outputs = [getattr(self, f"_apply_{key}")(value) for value, key in keyed]
        outputs += inputs[len(outputs) :]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _get_apply(self, key: str) -> Callable[[Any], Any] | None:
        return getattr(self, f"_apply_{key}", None)

    def _get_params(self, inputs: tuple[Any, ...]) -> Any:
        return None

    def _refuse(self, kind: str) -> Any:
        raise Unsupported(f"{type(self).__name__} does not transform {kind}.")

    def _apply_image(self, image: Any) -> Any:
        return self._refuse("images")

    def _apply_boxes(self, boxes: Any) -> Any:
        return self._refuse("boxes")

    def _apply_mask(self, mask: Any) -> Any:
        return self._refuse("masks")

    def _apply_coords(self, coords: Any) -> Any:
        return self._refuse("coordinates")


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
        self,
        size: int | Sequence[int],
        interpolation: str = "bilinear",
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        fits = isinstance(size, int) or (isinstance(size, Sequence) and len(size) == 2)
        _check(fits, f"size must be an int or (height, width), got {size!r}.")
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
        _check(scale[0] <= scale[1], f"scale must be (min, max), got {scale}.")
        _check(0 < ratio[0] <= ratio[1], f"ratio must be (min, max) above 0, got {ratio}.")
        self.scale, self.ratio, self.interpolation = scale, ratio, interpolation

    def _get_param(self, image: Any, attempts: int = 10) -> tuple[int, int, int, int]:
        """Draw top, left, height and width."""
        width, height = image_size(image)
        low, high = (math.log(bound) for bound in self.ratio)
        for _ in range(attempts):
            area = np.random.uniform(*self.scale) * (height * width)
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

    def __init__(self, size: int | Sequence[int], keys: Sequence[str] | None = None) -> None:
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
        _check(0 <= prob <= 1, f"prob must lie between 0 and 1, got {prob}.")
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

    _adjust = staticmethod(F.adjust_brightness)


class ContrastTransform(_Jitter):
    """Change the contrast by a factor from (low, high), or from 1 - value to 1 + value."""

    _adjust = staticmethod(F.adjust_contrast)


class SaturationTransform(_Jitter):
    """Change the saturation by a factor from (low, high), or from 1 - value to 1 + value."""

    _adjust = staticmethod(F.adjust_saturation)


class HueTransform(_Jitter):
    """Turn the hue by a share of the circle from (low, high), or from -value to value; at most 0.5."""

    center, bounds = 0.0, (-0.5, 0.5)
    _adjust = staticmethod(F.adjust_hue)


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
        padding: int | Sequence[int],
        fill: Any = 0,
        padding_mode: str = "constant",
        keys: Sequence[str] | None = None,
    ) -> None:
        _check(isinstance(padding, int | list | tuple), f"padding must be pixels, got {padding!r}.")
        _check(_is_number(fill) or isinstance(fill, str | list | tuple), f"fill is {fill!r}.")
        if not isinstance(padding, int) and len(padding) not in (2, 4):
            raise InvalidValue(f"padding must have 2 or 4 values, got {padding!r}.")
        modes = ("constant", "edge", "reflect", "symmetric")
        _check(padding_mode in modes, f"padding_mode must be one of {modes}, got {padding_mode!r}.")
        super().__init__(keys)
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def _apply_image(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)


def _span(name: str, value: Any, lengths: tuple[int, ...] = (2,)) -> list[float]:
    """Return a range as floats; a number v means -v to v."""
    if _is_number(value):
        if value < 0:
            raise InvalidValue(f"{name} must not be negative as a single number, got {value}.")
        return [-float(value), float(value)]
    if not isinstance(value, Sequence):
        raise InvalidType(f"{name} must be a number or a sequence, got {value!r}.")
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
            if _is_number(pair):
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
        drawn = self._get_param(image_size(img))
        return F.affine(img, *drawn, self.interpolation, self.fill, self.center)


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
            _check(0 <= value <= 1, f"{name} must lie between 0 and 1, got {value}.")
        _check_filter(interpolation)
        _check(_is_number(fill) or isinstance(fill, str | list | tuple), f"fill is {fill!r}.")
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


class Grayscale(BaseTransform):
    """Luma of an image in 1 channel or in 3 equal ones."""

    def __init__(self, num_output_channels: int = 1, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.num_output_channels = num_output_channels

    def _apply_image(self, img: Any) -> Any:
        return F.to_grayscale(img, self.num_output_channels)


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
            _check(isinstance(span, tuple | list), f"{name} must be (min, max), got {span!r}.")
        _check(0 <= scale[0] <= scale[1] <= 1, f"scale must rise in 0 to 1, got {scale}.")
        _check(0 <= ratio[0] <= ratio[1], f"ratio must rise from 0 or more, got {ratio}.")
        _check(0 <= prob <= 1, f"prob must lie between 0 and 1, got {prob}.")
        fits = _is_number(value) or isinstance(value, str | tuple | list)
        _check(fits, f"value must be a number, a sequence or 'random', got {value!r}.")
        if isinstance(value, str) and value != "random":
            raise InvalidValue(f"value must be 'random' if it is a string, got {value!r}.")
        self.prob, self.scale, self.ratio = prob, scale, ratio
        self.value, self.inplace = value, inplace

    def _get_param(self, img: Any) -> tuple[int, int, int, int, Any] | None:
        """Draw top, left, height, width and the box's values; None if ten boxes do not fit."""
        (width, height), channels = image_size(img), num_channels(img)
        values = np.atleast_1d(0 if self.value == "random" else self.value)  # type: ignore[arg-type]
        if len(values) not in (1, channels):
            raise InvalidValue(f"value has {len(values)} numbers for {channels} channels.")
        for _ in range(10):
            area = np.random.uniform(*self.scale) * (height * width)
            aspect = np.exp(np.random.uniform(*np.log(self.ratio)))
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
        drawn = self._get_param(img)
        return img if drawn is None else F.erase(img, *drawn, self.inplace)


def _check_filter(interpolation: str) -> None:
    _check(
        interpolation in _ROTATION_FILTERS,
        f"interpolation must be one of {_ROTATION_FILTERS}, got {interpolation!r}.",
    )
