"""``paddle.dataset.sentiment``: 2,000 reviews of films (NLTK's movie_reviews), bad and good."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from ..names import publish_definitions
from ..strategies.errors import DamagedFile
from . import common

URL = "https://corpora.bj.bcebos.com/movie_reviews%2Fmovie_reviews.zip"
MD5 = "155de2b77c6834dd8eea7cbe88e93acb"
NUM_TRAINING_INSTANCES = 1600
NUM_TOTAL_INSTANCES = 2000
_FOLDERS = ("neg", "pos")  # by label
_WORD = re.compile(r"\w+|[^\w\s]+")

Sample = tuple[list[int], int]


def train() -> Iterator[Sample]:
    """Return samples (not a reader): numbers of words, and 0 for a bad review or 1 for a good one."""
    return reader_creator(load_sentiment_data()[:NUM_TRAINING_INSTANCES])


def test() -> Iterator[Sample]:
    """Return the reviews that :func:`train` leaves out."""
    return reader_creator(load_sentiment_data()[NUM_TRAINING_INSTANCES:])


def reader_creator(data: Iterable[Sample]) -> Iterator[Sample]:
    """Return samples one by one."""
    return iter(data)


def get_word_dict() -> list[tuple[str, int]]:
    """Return words and their numbers, the most frequent first."""
    return _numbered(_reviews())


def fetch() -> None:
    """Download the data."""
    _path()


def _path() -> str:
    return common.download(URL, "corpora", MD5, "movie_reviews.zip")


def _reviews() -> list[list[list[str]]]:
    """Return for each label its reviews, as words, in the order of their names."""
    path = _path()
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".txt"))
            return [
                [
                    _WORD.findall(archive.read(name).decode("latin1"))
                    for name in names
                    if name.startswith(f"movie_reviews/{folder}/")
                ]
                for folder in _FOLDERS
            ]
    except zipfile.BadZipFile as error:
        raise DamagedFile(f"{path} is no whole zip file: {error}.") from None


def _numbered(reviews: list[list[list[str]]]) -> list[tuple[str, int]]:
    counts = Counter(word for part in reviews for words in part for word in words)
    return [(word, number) for number, (word, _) in enumerate(counts.most_common())]


def load_sentiment_data() -> list[Sample]:
    """Return all samples, bad and good in turns."""
    reviews = _reviews()
    numbers = dict(_numbered(reviews))
    labelled = (
        [([numbers[word.lower()] for word in words], label) for words in part]
        for label, part in enumerate(reviews)
    )
    return list(chain.from_iterable(zip(*labelled, strict=False)))


publish_definitions(__name__)
