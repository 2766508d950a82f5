"""``paddle.dataset.flowers``: images of 102 kinds of flowers.

As in Paddle, training uses the larger part of the data, on which its authors test.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..names import publish_definitions
from ..reader import map_readers, xmap_readers
from . import common
from .image import load_image_bytes, simple_transform

DATA_URL = "http://paddlemodels.bj.bcebos.com/flowers/102flowers.tgz"
LABEL_URL = "http://paddlemodels.bj.bcebos.com/flowers/imagelabels.mat"
SETID_URL = "http://paddlemodels.bj.bcebos.com/flowers/setid.mat"
DATA_MD5 = "52808999861908f626f3c1f4e79d11fa"
LABEL_MD5 = "e0620be6f572b9609742df49c70aed4d"
SETID_MD5 = "a5357ecc9cb78c4bef273ce3793fc85c"
TRAIN_FLAG, TEST_FLAG, VALID_FLAG = "tstid", "trnid", "valid"
_MEAN = [103.94, 116.78, 123.68]

Mapper = Callable[[Any], Any]


def default_mapper(is_train: bool, sample: tuple[bytes, int]) -> tuple[np.ndarray, int]:
    """Return an image's bytes as float32 [3 * 224 * 224] with its mean taken off, and its label."""
    image = simple_transform(load_image_bytes(sample[0]), 256, 224, is_train, mean=_MEAN)
    return image.flatten(), sample[1]


train_mapper = functools.partial(default_mapper, True)
test_mapper = functools.partial(default_mapper, False)


def train(
    mapper: Mapper = train_mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    cycle: bool = False,
) -> common.Samples:
    """Return a reader of ``mapper((bytes of an image file, label from 0 to 101))``.

    With ``use_xmap`` threads map, and samples come in any order. With ``cycle`` there is no end.
    """
    return reader_creator(*_paths(), TRAIN_FLAG, mapper, buffered_size, use_xmap, cycle)


def test(
    mapper: Mapper = test_mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    cycle: bool = False,
) -> common.Samples:
    """Return a reader of the images for testing, as :func:`train` gives them."""
    return reader_creator(*_paths(), TEST_FLAG, mapper, buffered_size, use_xmap, cycle)


def valid(
    mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True
) -> common.Samples:
    """Return a reader of the images for validation, as :func:`train` gives them."""
    return reader_creator(*_paths(), VALID_FLAG, mapper, buffered_size, use_xmap, False)


def fetch() -> None:
    """Download the data."""
    _paths()


def _paths() -> tuple[str, str, str]:
    return (
        common.download(DATA_URL, "flowers", DATA_MD5),
        common.download(LABEL_URL, "flowers", LABEL_MD5),
        common.download(SETID_URL, "flowers", SETID_MD5),
    )


def reader_creator(
    data_file: str,
    label_file: str,
    setid_file: str,
    dataset_name: str,
    mapper: Mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    cycle: bool = False,
) -> common.Samples:
    """Return a reader as :func:`train` does, of your files; ``dataset_name`` is a set of ``setid_file``."""
    loadmat = common.needs("scipy.io", "scipy", "flowers").loadmat
    labels, numbers = loadmat(label_file)["labels"][0], loadmat(setid_file)[dataset_name][0]
    by_name = {f"jpg/image_{number:05d}.jpg": int(labels[number - 1]) for number in numbers}

    def images() -> Iterator[tuple[bytes, int]]:
        while True:
            for name, contents in common.members(data_file, by_name.__contains__):
                yield contents.read(), by_name[name] - 1
            if not cycle:
                return

    if use_xmap:
        return xmap_readers(mapper, images, min(4, os.cpu_count() or 1), buffered_size)
    return map_readers(mapper, images)


publish_definitions(__name__, "test_mapper train_mapper")
