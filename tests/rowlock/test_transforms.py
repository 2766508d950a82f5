"""Transforms of images give Paddle 3.3.1's pixels, and arrays those of the same image of Pillow."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from rowlock.strategies.errors import RowlockError
from rowlock.vision import transforms as T
from rowlock.vision.transforms import functional as F
from tests.reference import transforms_2x as cases

pytest.importorskip("PIL")
PADDLE = json.loads((Path(cases.__file__).with_suffix(".json")).read_text())
RGB = np.asarray(cases.names(T)["rgb"])


@pytest.mark.parametrize("call", cases.CALLS)
def test_pixels_as_in_paddle(call: str) -> None:
    kind, shape, pixels = PADDLE["images"][call]
    values = cases.result(T, call)
    assert values[:2] == [kind, shape]
    if "normalize" in call.lower() or "ToTensor" in call:
        values, pixels = (np.frombuffer(bytes.fromhex(p), kind) for p in (values[2], pixels))
        np.testing.assert_allclose(values, pixels, 1e-6)
    elif "Perspective" in call:  # LAPACK rounds its coefficients as the processor would have it
        values, pixels = (
            np.frombuffer(bytes.fromhex(p), "u1").astype(int) for p in (values[2], pixels)
        )
        assert (abs(values - pixels) > 1).sum() <= 3, "more than a pixel on a border"
    else:
        assert values[2] == pixels


@pytest.mark.parametrize("call", cases.ERRORS)
def test_errors_as_in_paddle(call: str) -> None:
    kinds = cases.refusal(T, call)
    assert kinds is not None and PADDLE["errors"][call] in kinds, kinds
    with pytest.raises(RowlockError, match=r"\.$"):
        eval(call, cases.names(T))


SAME = [
    "T.resize(image, 5)",
    "T.resize(image, (13, 6), 'bicubic')",
    "T.pad(image, (1, 2), (7, 8, 9))",
    "T.pad(image, 2, 0, 'reflect')",
    "T.crop(image, -2, 8, 4, 9)",
    "T.center_crop(image, (12, 4))",
    "T.hflip(image)",
    "T.vflip(image)",
    "T.adjust_brightness(image, 1.7)",
    "T.adjust_contrast(image, 0.3)",
    "T.adjust_contrast(image, 2.5)",
    "T.adjust_saturation(image, 1.8)",
    "T.adjust_hue(image, 0.3)",
    "T.affine(image, 25, (1, -2), 0.8, (10, 5), 'bilinear', (50, 60, 70))",
    "T.rotate(image, -75.5, 'bicubic', True, None, 200)",
    "T.perspective(image, [[0, 0], [10, 0], [10, 8], [0, 8]], [[1, 2], [9, 0], [10, 7], [2, 8]])",
    "T.to_grayscale(image, 3)",
    "T.RandomErasing(1.0, value='random')(image)",
    "T.ColorJitter(0.4, 0.4, 0.4, 0.4)(image)",
]


@pytest.mark.parametrize("call", SAME)
def test_arrays_as_images_of_pillow(call: str) -> None:
    results = []
    for image in (cases.names(T)["rgb"], RGB):
        random.seed(1)
        np.random.seed(1)
        results.append(eval(call, {"T": T, "image": image}))
    assert isinstance(results[1], np.ndarray)
    np.testing.assert_array_equal(np.asarray(results[0]), results[1])


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "int32", "bool"])
@pytest.mark.parametrize("shape", [(9, 11), (9, 11, 1), (9, 11, 3), (9, 11, 6)])
def test_dtype_and_channels_of_arrays_stay(dtype: str, shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    for call in (
        lambda: T.resize(image, (4, 5)),
        lambda: T.rotate(image, 30),
        lambda: T.pad(image, 1),
        lambda: T.crop(image, 1, 2, 3, 4),
        lambda: T.hflip(image),
        lambda: T.erase(image, 1, 1, 2, 2, 1),
        lambda: T.RandomErasing(1.0)(image),
    ):
        result = call()
        assert result.dtype == image.dtype and result.shape[2:] == shape[2:]


def test_colours_of_float_arrays_are_those_of_uint8() -> None:
    for adjust, factor in (
        (T.adjust_brightness, 1.3),
        (T.adjust_contrast, 0.4),
        (T.adjust_saturation, 1.5),
        (T.adjust_hue, 0.2),
        (T.to_grayscale, 1),
    ):
        exact = adjust(RGB.astype("float32"), factor)
        assert exact.dtype == np.float32
        np.testing.assert_allclose(exact, adjust(RGB, factor), atol=1.6)


def test_resized_integers_are_rounded() -> None:
    image = np.array([[0, 1000], [3000, 70000]], "int32")
    assert T.resize(image, (1, 1)).tolist() == [[18500]]


def test_an_array_channels_first_is_refused() -> None:
    tensor = T.to_tensor(RGB)
    for transform in (T.Resize(5), T.RandomErasing(1.0), T.RandomHorizontalFlip(1.0)):
        with pytest.raises(ValueError, match=r"\(3, 9, 11\) looks like C x H x W.*before ToTensor"):
            transform(tensor)
    with pytest.raises(ValueError, match=r"3 values for 9 channels .* data_format may be wrong"):
        T.normalize(RGB, [1.0] * 3, [1.0] * 3)


def test_the_transform_that_failed_is_named() -> None:
    steps = T.Compose([T.Resize(5), T.RandomCrop(7)])
    with pytest.raises(ValueError, match="7 x 7 does not fit an image 5 x 6") as error:
        steps(RGB)
    assert "RandomCrop" in error.value.__notes__[0]
    assert repr(steps).startswith("Compose(\n    <rowlock.vision.transforms.transforms.Resize")


class Flip(T.BaseTransform):
    """A user's own transform of images, boxes and masks."""

    def _get_params(self, inputs: tuple[Any, ...]) -> dict[str, Any]:
        return {"width": inputs[self.keys.index("image")].shape[1]}

    def _apply_image(self, image: Any) -> Any:
        return F.hflip(image)

    _apply_mask = _apply_image

    def _apply_boxes(self, boxes: Any) -> Any:
        return np.stack([self.params["width"] - boxes[:, 2], self.params["width"] - boxes[:, 0]], 1)


def test_keys_lead_to_methods() -> None:
    flip = Flip(keys=("boxes", "image", "mask"))
    boxes, image, mask, rest = flip((np.array([[1, 2, 4, 5]]), RGB, RGB[..., 0], "rest"))
    assert boxes.tolist() == [[7, 10]] and rest == "rest"
    np.testing.assert_array_equal(image[..., 0], mask)
    with pytest.raises(NotImplementedError, match="Flip does not transform coordinates"):
        Flip(keys=("image", "coords"))((RGB, boxes))


def test_a_number_fills_all_channels() -> None:
    image = cases.names(T)["rgb"]
    assert T.pad(image, 1, 7).getpixel((0, 0)) == (7, 7, 7)
    assert T.pad(RGB, 1, 7)[0, 0].tolist() == [7, 7, 7]
    assert T.rotate(cases.names(T)["gray"], 45, fill=9).getpixel((0, 0)) == 9
    corners = [[0, 0], [10, 0], [10, 8], [0, 8]]
    for moved in (
        T.affine(image, 0, (2, 2), 1.0, 0, fill=7),
        T.perspective(image, corners, [[3, 3], [7, 3], [7, 5], [3, 5]], fill=7),
    ):
        assert moved.getpixel((0, 0)) == (7, 7, 7)
    with pytest.raises(ValueError, match=r"fill must have 1 value or 3, got \(1, 2\)"):
        T.pad(RGB, 1, (1, 2))


def test_erasing_in_place_changes_the_array() -> None:
    image = RGB.copy()
    assert T.erase(image, 0, 0, 1, 1, 5, inplace=True) is image
    assert image[0, 0].tolist() == [5, 5, 5]


def test_pillow_is_imported_late_and_its_absence_is_told() -> None:
    code = (
        "import sys, numpy as np; sys.modules['PIL'] = None\n"
        "import rowlock as paddle\n"
        "T = paddle.vision.transforms\n"
        "image = np.zeros((4, 5, 3), 'uint8')\n"
        "T.Compose([T.RandomCrop(3), T.ColorJitter(.1, .1, .1), T.ToTensor(), T.Normalize(.5, .5)])(image)\n"
        "try:\n    T.Resize(2)(image)\n"
        "except paddle.fluid.core.EnforceNotMet as error:\n    print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    text = "this transform needs Pillow: pip install '.[vision]' in Rowlock's folder.\n"
    assert ran.stdout == text, ran.stderr


def test_the_names_are_at_paddles_paths() -> None:
    assert paddle.vision.transforms is T and T.functional.resize is T.resize
    assert T.transforms.Compose is T.Compose and set(T.__all__) <= set(dir(T))
