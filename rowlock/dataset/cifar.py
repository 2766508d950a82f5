"""``paddle.dataset.cifar``: colour images of 32 x 32, of 10 or of 100 classes."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np

from ..graph.program.formats.state_reader import read_state
from ..names import publish_definitions
from ..strategies.errors import DamagedFile
from . import common

URL_PREFIX = "https://dataset.bj.bcebos.com/cifar/"
CIFAR10_URL = URL_PREFIX + "cifar-10-python.tar.gz"
CIFAR10_MD5 = "c58f30108f718f92721af3b95e74349a"
CIFAR100_URL = URL_PREFIX + "cifar-100-python.tar.gz"
CIFAR100_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"


def train10(cycle: bool = False) -> common.Samples:
    """Return a reader of (image, label): float32 [3072] from 0 to 1, and an int from 0 to 9.

    With ``cycle`` it begins again at the end, without end.
    """
    return reader_creator(common.download(CIFAR10_URL, "cifar", CIFAR10_MD5), "data_batch", cycle)


def test10(cycle: bool = False) -> common.Samples:
    """Return a reader of the images for testing, as :func:`train10` gives them."""
    return reader_creator(common.download(CIFAR10_URL, "cifar", CIFAR10_MD5), "test_batch", cycle)


def train100() -> common.Samples:
    """Return a reader of (image, label): float32 [3072] from 0 to 1, and an int from 0 to 99."""
    return reader_creator(common.download(CIFAR100_URL, "cifar", CIFAR100_MD5), "train")


def test100() -> common.Samples:
    """Return a reader of the images for testing, as :func:`train100` gives them."""
    return reader_creator(common.download(CIFAR100_URL, "cifar", CIFAR100_MD5), "test")


def fetch() -> None:
    """Download both sets."""
    common.download(CIFAR10_URL, "cifar", CIFAR10_MD5)
    common.download(CIFAR100_URL, "cifar", CIFAR100_MD5)


def reader_creator(filename: str, sub_name: str, cycle: bool = False) -> common.Samples:
    """Return a reader as :func:`train10` does, of members of your archive whose names hold ``sub_name``."""

    def samples() -> Iterator[tuple[np.ndarray, int]]:
        while True:
            empty = True
            for name, contents in common.members(filename, lambda name: sub_name in name):
                for image, label in _images(io.BytesIO(contents.read()), f"{name} of {filename}"):
                    empty = False
                    yield image, label
            if empty:
                raise DamagedFile(f"{filename} holds no images under {sub_name}.")
            if not cycle:
                return

    return samples


def _images(file: io.BytesIO, source: str) -> Iterator[tuple[np.ndarray, int]]:
    state = read_state(file, source)
    state = state if isinstance(state, dict) else {}
    by_name = {
        key.decode() if isinstance(key, bytes) else key: value for key, value in state.items()
    }
    pixels, labels = by_name.get("data"), by_name.get("labels", by_name.get("fine_labels"))
    if not isinstance(pixels, np.ndarray) or labels is None:
        raise DamagedFile(f"{source} holds no images with labels.")
    for row, label in zip(pixels, labels, strict=False):
        yield (row / 255.0).astype(np.float32), int(label)


publish_definitions(__name__)
