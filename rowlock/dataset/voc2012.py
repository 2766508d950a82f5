"""``paddle.dataset.voc2012``: photographs and the class of each of their pixels (segmentation)."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator

import numpy as np

from ..names import publish_definitions
from ..strategies.errors import DamagedFile
from . import common

VOC_URL = "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar"
VOC_MD5 = "6cd6e144f989b92b3379bac3b3de84fd"
SET_FILE = "VOCdevkit/VOC2012/ImageSets/Segmentation/{}.txt"
DATA_FILE = "VOCdevkit/VOC2012/JPEGImages/{}.jpg"
LABEL_FILE = "VOCdevkit/VOC2012/SegmentationClass/{}.png"
CACHE_DIR = "voc2012"


def train() -> common.Samples:
    """Return a reader of (image, classes): uint8 [H, W, 3] in red, green, blue, and uint8 [H, W]."""
    return reader_creator(_path(), "trainval")


def test() -> common.Samples:
    """Return a reader of the images for training alone, which Paddle gives under this name."""
    return reader_creator(_path(), "train")


def val() -> common.Samples:
    """Return a reader of the images for validation."""
    return reader_creator(_path(), "val")


def fetch() -> None:
    """Download the data."""
    _path()


def _path() -> str:
    return common.download(VOC_URL, CACHE_DIR, VOC_MD5)


def reader_creator(filename: str, sub_name: str) -> common.Samples:
    """Return a reader as :func:`train` does, of the set ``sub_name`` in your archive."""
    image = common.needs("PIL.Image", "pillow", "voc2012")

    def samples() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with tarfile.open(filename) as archive:

            def contents(pattern: str, name: str) -> bytes:
                try:
                    file = archive.extractfile(pattern.format(name))
                except KeyError:
                    file = None
                if file is None:
                    raise DamagedFile(f"{filename} holds no file {pattern.format(name)}.")
                return file.read()

            for name in contents(SET_FILE, sub_name).decode().split():
                yield (
                    np.array(image.open(io.BytesIO(contents(DATA_FILE, name)))),
                    np.array(image.open(io.BytesIO(contents(LABEL_FILE, name)))),
                )

    return samples


publish_definitions(__name__)
