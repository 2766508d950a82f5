"""``paddle.dataset.uci_housing``: 506 houses in Boston, 13 features and the price of each."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from ..names import publish_definitions
from ..strategies.errors import DamagedFile
from . import common

URL = "http://paddlemodels.bj.bcebos.com/uci_housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"
FLUID_URL_MODEL = (
    "https://github.com/PaddlePaddle/book/raw/develop/01.fit_a_line/fluid/fit_a_line.fluid.tar"
)
FLUID_MD5_MODEL = "6e6dd637ccd5993961f68bfbde46090b"
feature_names = [
    "CRIM",
    "ZN",
    "INDUS",
    "CHAS",
    "NOX",
    "RM",
    "AGE",
    "DIS",
    "RAD",
    "TAX",
    "PTRATIO",
    "B",
    "LSTAT",
]
_COLUMNS = len(feature_names) + 1
_TRAINING = 0.8  # of all rows


def train() -> common.Samples:
    """Return a reader of (features, price): float64 [13], scaled to a width of 1 around 0, and [1]."""
    return _reader(_parts(_path())[0])


def test() -> common.Samples:
    """Return a reader of the fifth of the rows that :func:`train` leaves out."""
    return _reader(_parts(_path())[1])


def predict_reader() -> tuple[np.ndarray]:
    """Return the features of one house, as the only value of a sample."""
    return (_parts(_path())[1][0][:-1],)


def fluid_model() -> str:
    """Return a new folder with Paddle's trained model of this data."""
    path = common.download(FLUID_URL_MODEL, "uci_housing", FLUID_MD5_MODEL, "fit_a_line.fluid.tar")
    folder = tempfile.mkdtemp()
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    return folder


def feature_range(maximums: np.ndarray, minimums: np.ndarray) -> None:
    """Draw the range of each feature in the file ``image/ranges.png``."""
    common.needs("matplotlib", "matplotlib", "feature_range")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6))
    axes = figure.subplots()
    axes.bar(range(len(maximums)), maximums - minimums, color="r", align="center")
    axes.set_title("feature scale")
    axes.set_xticks(range(len(maximums)), feature_names[: len(maximums)])
    axes.set_xlim(-1, len(maximums))
    os.makedirs("image", exist_ok=True)
    figure.savefig("image/ranges.png", dpi=48)


def fetch() -> None:
    """Download the data."""
    _path()


def _path() -> str:
    return common.download(URL, "uci_housing", MD5)


@cache
def _parts(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows for training and for testing."""
    numbers = np.array(Path(path).read_text().split(), np.float64)
    if not numbers.size or numbers.size % _COLUMNS:
        raise DamagedFile(f"{path} holds {numbers.size} numbers, no rows of {_COLUMNS}.")
    rows = numbers.reshape(-1, _COLUMNS)
    features = rows[:, :-1]
    width = features.max(axis=0) - features.min(axis=0)
    features -= rows.sum(axis=0)[:-1] / len(rows)
    features /= width
    border = int(len(rows) * _TRAINING)
    return rows[:border], rows[border:]


def _reader(rows: np.ndarray) -> common.Samples:
    def samples() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for row in rows:
            yield row[:-1], row[-1:]

    return samples


publish_definitions(__name__, "feature_names")
