"""``paddle.dataset.imikolov``: sentences of the Penn Treebank, as windows of n words or whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from . import common

URL = "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz"
MD5 = "30177ea32e27c525793142b6bf2c8e2d"
_TRAINING = "simple-examples/data/ptb.train.txt"
_VALIDATION = "simple-examples/data/ptb.valid.txt"
_START, _END, _UNKNOWN = "<s>", "<e>", "<unk>"


class DataType:
    """Kinds of samples: ``NGRAM``, a window of n words; ``SEQ``, a sentence and the words that follow."""

    NGRAM = 1
    SEQ = 2


def train(word_idx: Mapping[Any, int], n: int, data_type: int = DataType.NGRAM) -> common.Samples:
    """Return a reader of tuples of ``n`` numbers of words, or of two lists (``DataType.SEQ``).

    Sentences shorter than ``n`` are left out; of whole sentences those longer than ``n``, if it is above 0.
    """
    return reader_creator(_TRAINING, word_idx, n, data_type)


def test(word_idx: Mapping[Any, int], n: int, data_type: int = DataType.NGRAM) -> common.Samples:
    """Return a reader of the sentences for validation, as :func:`train` gives them."""
    return reader_creator(_VALIDATION, word_idx, n, data_type)


def build_dict(min_word_freq: int = 50) -> dict[Any, int]:
    """Return the numbers of words that occur more than ``min_word_freq`` times, and of ``"<unk>"``.

    Words are bytes; the marks of a sentence, ``"<s>"`` and ``"<e>"``, are strings. Frequent ones come first.
    """
    counts = word_count(_lines(_VALIDATION), word_count(_lines(_TRAINING)))
    counts.pop(_UNKNOWN, None)
    frequent = [word for word, count in counts.items() if count > min_word_freq]
    frequent.sort(key=lambda word: (-counts[word], _as_bytes(word)))
    return {word: number for number, word in enumerate([*frequent, _UNKNOWN])}


def word_count(f: Iterable[bytes], word_freq: dict[Any, int] | None = None) -> dict[Any, int]:
    """Return how often words occur in lines, added to ``word_freq``; each line has two marks."""
    counts: dict[Any, int] = Counter() if word_freq is None else word_freq
    for line in f:
        for word in (*line.split(), _START, _END):
            counts[word] = counts.get(word, 0) + 1
    return counts


def fetch() -> None:
    """Download the data."""
    common.download(URL, "imikolov", MD5)


def _as_bytes(word: bytes | str) -> bytes:
    return word.encode() if isinstance(word, str) else word


def _lines(name: str) -> Iterator[bytes]:
    return common.lines_of(common.download(URL, "imikolov", MD5), name)


def reader_creator(
    filename: str, word_idx: Mapping[Any, int], n: int, data_type: int
) -> common.Samples:
    """Return a reader as :func:`train` does, of one member of the archive."""
    if data_type not in (DataType.NGRAM, DataType.SEQ):
        raise InvalidValue(f"data_type is DataType.NGRAM or DataType.SEQ, got {data_type!r}.")
    if data_type == DataType.NGRAM and n < 1:
        raise InvalidValue(f"a window has at least one word, got n={n!r}.")

    def samples() -> Iterator[Any]:
        unknown = word_idx[_UNKNOWN]
        for line in _lines(filename):
            if data_type == DataType.NGRAM:
                words = [_START, *line.split(), _END]
                numbers = [word_idx.get(word, unknown) for word in words]
                yield from (tuple(numbers[i : i + n]) for i in range(len(numbers) - n + 1))
                continue
            numbers = [word_idx.get(word, unknown) for word in line.split()]
            if n <= 0 or len(numbers) < n:
                yield [word_idx[_START], *numbers], [*numbers, word_idx[_END]]

    return samples


publish_definitions(__name__)
