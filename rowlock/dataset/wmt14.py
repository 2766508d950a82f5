"""``paddle.dataset.wmt14``: a small part of WMT 2014, English to French."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ..names import publish_definitions
from ..strategies.errors import DamagedFile
from . import common

URL_TRAIN = "http://paddlemodels.bj.bcebos.com/wmt/wmt14.tgz"
MD5_TRAIN = "0791583d57d5beb693b9414c5b36798c"
URL_MODEL = "http://paddlemodels.bj.bcebos.com/wmt%2Fwmt14.tgz"
MD5_MODEL = "0cb4a5366189b6acba876491c8724fa3"
START, END, UNK = "<s>", "<e>", "<unk>"
UNK_IDX = 2
_LONGEST = 80  # words of a sentence


def train(dict_size: int) -> common.Samples:
    """Return a reader of (source, target with its start, target with its end): lists of numbers of words.

    Sentences of more than 80 words are left out.
    """
    return reader_creator(_path(), "train/train", dict_size)


def test(dict_size: int) -> common.Samples:
    """Return a reader of the sentences for testing, as :func:`train` gives them."""
    return reader_creator(_path(), "test/test", dict_size)


def gen(dict_size: int) -> common.Samples:
    """Return a reader of the sentences to translate, as :func:`train` gives them."""
    return reader_creator(_path(), "gen/gen", dict_size)


def get_dict(dict_size: int, reverse: bool = True) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return the words of source and target by number, or without ``reverse`` the numbers by word."""
    source, target = _dictionaries(_path(), dict_size)
    return (_turned(source), _turned(target)) if reverse else (source, target)


def fetch() -> None:
    """Download the data, and Paddle's trained model."""
    _path()
    common.download(URL_MODEL, "wmt14", MD5_MODEL)


def _path() -> str:
    return common.download(URL_TRAIN, "wmt14", MD5_TRAIN)


def _turned(numbers: dict[str, int]) -> dict[int, str]:
    return {number: word for word, number in numbers.items()}


def _dictionaries(path: str, size: int) -> tuple[dict[str, int], dict[str, int]]:
    ends = ("src.dict", "trg.dict")
    numbers: dict[str, dict[str, int]] = {}
    for name, lines in common.members(path, lambda name: name.endswith(ends)):
        words = (line.strip().decode() for line in islice(lines, size))
        numbers[name[-len(ends[0]) :]] = {word: number for number, word in enumerate(words)}
    if len(numbers) < len(ends):
        raise DamagedFile(f"{path} does not hold the dictionaries {' and '.join(ends)}.")
    return numbers[ends[0]], numbers[ends[1]]


def reader_creator(tar_file: str, file_name: str, dict_size: int) -> common.Samples:
    """Return a reader as :func:`train` does, of members of your archive whose names end with ``file_name``."""

    def samples() -> Iterator[tuple[list[int], list[int], list[int]]]:
        source_numbers, target_numbers = _dictionaries(tar_file, dict_size)
        for _, lines in common.members(tar_file, lambda name: name.endswith(file_name)):
            for line in lines:
                sentences = line.decode().strip().split("\t")
                if len(sentences) != 2:
                    continue
                words = (START, *sentences[0].split(), END)
                source = [source_numbers.get(word, UNK_IDX) for word in words]
                target = [target_numbers.get(word, UNK_IDX) for word in sentences[1].split()]
                if max(len(source), len(target)) <= _LONGEST:
                    yield (source, [target_numbers[START], *target], [*target, target_numbers[END]])

    return samples


publish_definitions(__name__)
