"""``paddle.dataset.image``: images as arrays of height, width and channel, cut, mirrored and scaled."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..names import publish_definitions
from ..strategies.errors import InvalidValue, MissingFile
from . import common


def _cv2() -> Any:
    return common.needs("cv2", "opencv-python-headless", "paddle.dataset.image")


def load_image_bytes(bytes: bytes, is_color: bool = True) -> np.ndarray:
    """Return the image in the bytes of a file: uint8, channels blue, green, red; or grey [H, W].

    Raises:
        InvalidValue: they are no image.
    """
    image = _cv2().imdecode(np.frombuffer(bytes, np.uint8), int(is_color))
    if image is None:
        raise InvalidValue(f"{len(bytes)} bytes are no image that OpenCV can read.")
    return np.asarray(image)


def load_image(file: str, is_color: bool = True) -> np.ndarray:
    """Return the image in a file, as :func:`load_image_bytes` does.

    Raises:
        MissingFile: there is no such file.
        InvalidValue: it holds no image.
    """
    if not os.path.isfile(file):
        raise MissingFile(f"there is no image file {file!r}.")
    with open(file, "rb") as opened:
        return load_image_bytes(opened.read(), is_color)


def resize_short(im: np.ndarray, size: int) -> np.ndarray:
    """Return an image whose shorter edge has ``size`` pixels, interpolated by cubic functions."""
    height, width = im.shape[:2]
    new = (size, size * height // width) if height > width else (size * width // height, size)
    cv2 = _cv2()
    return np.asarray(cv2.resize(im, new, interpolation=cv2.INTER_CUBIC))


def to_chw(im: np.ndarray, order: Sequence[int] = (2, 0, 1)) -> np.ndarray:
    """Return an image with its axes in another order: channels first."""
    if im.ndim != len(order):
        raise InvalidValue(f"order has {len(order)} axes, the image {im.ndim}.")
    return im.transpose(order)


def center_crop(im: np.ndarray, size: int, is_color: bool = True) -> np.ndarray:
    """Return the square of ``size`` pixels in the middle of an image."""
    height, width = im.shape[:2]
    return _cut(im, (height - size) // 2, (width - size) // 2, size)


def random_crop(im: np.ndarray, size: int, is_color: bool = True) -> np.ndarray:
    """Return a square of ``size`` pixels at a place drawn by NumPy's global generator."""
    height, width = im.shape[:2]
    top = np.random.randint(0, height - size + 1)
    return _cut(im, top, np.random.randint(0, width - size + 1), size)


def _cut(im: np.ndarray, top: int, left: int, size: int) -> np.ndarray:
    return im[top : top + size, left : left + size]


def left_right_flip(im: np.ndarray, is_color: bool = True) -> np.ndarray:
    """Return an image with left and right exchanged."""
    return im[:, ::-1]


def simple_transform(
    im: np.ndarray,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: Any = None,
) -> np.ndarray:
    """Return an image as float32, channels first: scaled, cut, and with the mean (per channel) taken off.

    For training it is cut and mirrored at random, else cut in the middle.
    """
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size)
        if np.random.randint(2) == 0:
            im = left_right_flip(im)
    else:
        im = center_crop(im, crop_size)
    im = (to_chw(im) if im.ndim == 3 else im).astype(np.float32)
    if mean is None:
        return im
    means = np.array(mean, np.float32)
    return im - (means[:, None, None] if means.ndim == 1 and is_color else means)


def load_and_transform(
    filename: str,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: Any = None,
) -> np.ndarray:
    """Return the image in a file, transformed by :func:`simple_transform`."""
    image = load_image(filename, is_color)
    return simple_transform(image, resize_size, crop_size, is_train, is_color, mean)


def batch_images_from_tar(
    data_file: str, dataset_name: str, img2label: Mapping[str, Any], num_per_batch: int = 1024
) -> str:
    """Write the images (their files' bytes) of a tar file to pickles and return the list of their paths.

    A pickle holds ``{"label": [...], "data": [...]}`` of up to ``num_per_batch`` images. If the folder beside
    the tar file is there, it is taken as it is.
    """
    folder = f"{data_file}_batch"
    listed = f"{folder}/{dataset_name}.txt"
    if os.path.exists(f"{folder}/{dataset_name}"):
        return listed
    os.makedirs(f"{folder}/{dataset_name}")
    images = (
        (img2label[name], contents.read())
        for name, contents in common.members(data_file, img2label.__contains__)
    )
    paths = []
    for number, batch in enumerate(_batches(images, num_per_batch)):
        paths.append(os.path.abspath(f"{folder}/{dataset_name}/batch_{number}"))
        with open(paths[-1], "wb") as file:
            labels, data = map(list, zip(*batch, strict=True))
            pickle.dump({"label": labels, "data": data}, file, protocol=2)
    with open(listed, "w") as text:
        text.writelines(f"{path}\n" for path in paths)
    return listed


def _batches(images: Iterable[Any], size: int) -> Iterable[list[Any]]:
    from ..executor.loading.sample_readers import batch

    return batch(lambda: images, size)()


publish_definitions(__name__)
