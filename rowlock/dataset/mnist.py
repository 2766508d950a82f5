"""``paddle.dataset.mnist``: images of 28 x 28 of handwritten digits."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator

import numpy as np

from ..names import publish_definitions
from ..strategies.errors import DamagedFile
from . import common

URL_PREFIX = "https://dataset.bj.bcebos.com/mnist/"
TEST_IMAGE_URL = URL_PREFIX + "t10k-images-idx3-ubyte.gz"
TEST_IMAGE_MD5 = "9fb629c4189551a2d022fa330f9573f3"
TEST_LABEL_URL = URL_PREFIX + "t10k-labels-idx1-ubyte.gz"
TEST_LABEL_MD5 = "ec29112dd5afa0611ce80d1b7f02629c"
TRAIN_IMAGE_URL = URL_PREFIX + "train-images-idx3-ubyte.gz"
TRAIN_IMAGE_MD5 = "f68b3c2dcbeaaa9fbdd348bbdeb94873"
TRAIN_LABEL_URL = URL_PREFIX + "train-labels-idx1-ubyte.gz"
TRAIN_LABEL_MD5 = "d53e105ee54ea40749a09fcbcd1e9432"
_IMAGES, _LABELS = 2051, 2049  # the first number in each file
_AT_ONCE = 100


def train() -> common.Samples:
    """Return a reader of (image, label): float32 [784] from -1 to 1, and an int from 0 to 9."""
    return reader_creator(
        common.download(TRAIN_IMAGE_URL, "mnist", TRAIN_IMAGE_MD5),
        common.download(TRAIN_LABEL_URL, "mnist", TRAIN_LABEL_MD5),
        _AT_ONCE,
    )


def test() -> common.Samples:
    """Return a reader of the images for testing, as :func:`train` gives them."""
    return reader_creator(
        common.download(TEST_IMAGE_URL, "mnist", TEST_IMAGE_MD5),
        common.download(TEST_LABEL_URL, "mnist", TEST_LABEL_MD5),
        _AT_ONCE,
    )


def fetch() -> None:
    """Download the data."""
    train()
    test()


def reader_creator(image_filename: str, label_filename: str, buffer_size: int) -> common.Samples:
    """Return a reader as :func:`train` does, of your files; it scales ``buffer_size`` images at once."""

    def samples() -> Iterator[tuple[np.ndarray, int]]:
        pixels, digits = (
            _elements(image_filename, _IMAGES, 3),
            _elements(label_filename, _LABELS, 1),
        )
        if len(pixels) < len(digits):
            raise DamagedFile(
                f"{image_filename} has {len(pixels)} images for {len(digits)} labels."
            )
        for first in range(0, len(digits), buffer_size):
            rows = pixels[first : first + buffer_size].reshape(-1, pixels[0].size)
            scaled = rows.astype(np.float32) / np.float32(255) * np.float32(2) - np.float32(1)
            yield from zip(scaled, digits[first : first + buffer_size].tolist(), strict=False)

    return samples


def _elements(path: str, kind: int, rank: int) -> np.ndarray:
    """Return the array in a file: big-endian numbers (its kind, its sizes), then a byte per element."""
    with gzip.open(path) as file:
        data = file.read()
    head = struct.calcsize(f">{1 + rank}I")
    numbers = struct.unpack_from(f">{1 + rank}I", data) if len(data) >= head else (0,)
    shape = numbers[1:]
    if numbers[0] != kind or int(np.prod(shape, dtype=object)) != len(data) - head:
        raise DamagedFile(f"{path} does not hold the {rank} sizes and the bytes that it should.")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


publish_definitions(__name__)
