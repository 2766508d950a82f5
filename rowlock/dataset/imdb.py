"""``paddle.dataset.imdb``: 50,000 reviews of films, good and bad."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..names import publish_definitions
from . import common

URL = "https://dataset.bj.bcebos.com/imdb%2FaclImdb_v1.tar.gz"
MD5 = "7c2ac02c03563afcf9b574c7e56c153a"
_UNKNOWN = "<unk>"
_PUNCTUATION = string.punctuation.encode()


def train(word_idx: Mapping[Any, int]) -> common.Samples:
    """Return a reader of (numbers of words, label): good reviews, 0, before bad ones, 1."""
    return reader_creator(*_patterns("train"), word_idx)


def test(word_idx: Mapping[Any, int]) -> common.Samples:
    """Return a reader of the reviews for testing, as :func:`train` gives them."""
    return reader_creator(*_patterns("test"), word_idx)


def word_dict() -> dict[Any, int]:
    """Return the numbers of the words that occur more than 150 times."""
    return build_dict(re.compile(r"aclImdb/(train|test)/(pos|neg)/.*\.txt$"), 150)


def build_dict(pattern: re.Pattern[str], cutoff: int) -> dict[Any, int]:
    """Return the numbers of words (bytes), the most frequent first, and of ``"<unk>"``.

    Words that occur ``cutoff`` times or less in the files whose names match are left out.
    """
    counts = Counter(word for words in tokenize(pattern) for word in words)
    frequent = [word for word, count in counts.items() if count > cutoff]
    frequent.sort(key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate([*frequent, _UNKNOWN])}


def tokenize(pattern: re.Pattern[str]) -> Iterator[list[bytes]]:
    """Yield the words of each file whose name matches: in small letters, without punctuation."""
    for _, words in _reviews(pattern):
        yield words


def fetch() -> None:
    """Download the data."""
    common.download(URL, "imdb", MD5)


def _reviews(pattern: re.Pattern[str]) -> Iterator[tuple[str, list[bytes]]]:
    for name, contents in common.members(common.download(URL, "imdb", MD5), pattern.match):
        yield name, contents.read().translate(None, _PUNCTUATION).lower().split()


def _patterns(part: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    pos, neg = (re.compile(rf"aclImdb/{part}/{folder}/.*\.txt$") for folder in ("pos", "neg"))
    return pos, neg


def reader_creator(
    pos_pattern: re.Pattern[str], neg_pattern: re.Pattern[str], word_idx: Mapping[Any, int]
) -> common.Samples:
    """Return a reader as :func:`train` does, of the files whose names match a pattern."""
    unknown = word_idx[_UNKNOWN]
    both = re.compile(f"(?:{pos_pattern.pattern})|(?:{neg_pattern.pattern})")
    good: list[tuple[list[int], int]] = []
    bad: list[tuple[list[int], int]] = []
    for name, words in _reviews(both):  # the archive is read once
        numbers = [word_idx.get(w, unknown) for w in words]
        if pos_pattern.match(name):
            good.append((numbers, 0))
        if neg_pattern.match(name):
            bad.append((numbers, 1))
    reviews = good + bad
    return lambda: iter(reviews)


publish_definitions(__name__)
