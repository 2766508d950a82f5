"""``paddle.dataset.wmt16``: captions of 30,000 images (Multi30K), English and German."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from . import common

DATA_URL = "http://paddlemodels.bj.bcebos.com/wmt/wmt16.tar.gz"
DATA_MD5 = "0c38be43600334966403524a40dcd81e"
TOTAL_EN_WORDS, TOTAL_DE_WORDS = 11250, 19220
START_MARK, END_MARK, UNK_MARK = "<s>", "<e>", "<unk>"
_MARKS = (START_MARK, END_MARK, UNK_MARK)
_LANGUAGES = {"en": TOTAL_EN_WORDS, "de": TOTAL_DE_WORDS}  # by their column


def train(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> common.Samples:
    """Return a reader of (source, target with its start, target with its end): lists of numbers of words.

    Dictionaries hold the most frequent words and the marks ``<s>``, ``<e>`` and ``<unk>``.
    """
    return reader_creator(_path(), "wmt16/train", src_dict_size, trg_dict_size, src_lang)


def test(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> common.Samples:
    """Return a reader of the sentences for testing, as :func:`train` gives them."""
    return reader_creator(_path(), "wmt16/test", src_dict_size, trg_dict_size, src_lang)


def validation(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> common.Samples:
    """Return a reader of the sentences for validation, as :func:`train` gives them."""
    return reader_creator(_path(), "wmt16/val", src_dict_size, trg_dict_size, src_lang)


def get_dict(lang: str, dict_size: int, reverse: bool = False) -> dict[Any, Any]:
    """Return the numbers of a language's words, or with ``reverse`` the words by number."""
    words = _words(_path(), lang, dict_size)
    if reverse:
        return dict(enumerate(words))
    return {word: number for number, word in enumerate(words)}


def fetch() -> None:
    """Download the data."""
    _path()


def _path() -> str:
    return common.download(DATA_URL, "wmt16", DATA_MD5, "wmt16.tar.gz")


def _check_language(lang: str) -> None:
    if lang not in _LANGUAGES:
        raise InvalidValue(f"a language is 'en' or 'de', got {lang!r}.")


def _column(lang: str) -> int:
    return list(_LANGUAGES).index(lang)


def _words(path: str, lang: str, size: int) -> list[str]:
    """Return a language's words by number, from the file beside the data that Paddle writes too."""
    _check_language(lang)
    size = min(size, _LANGUAGES[lang])
    file_path = Path(common.DATA_HOME, "wmt16", f"{lang}_{size}.dict")
    if file_path.is_file():
        words = [line.strip().decode() for line in file_path.read_bytes().splitlines()]
        if len(words) == size:
            return words
    counts: Counter[str] = Counter()
    for sentences in _pairs(path, "wmt16/train"):
        counts.update(sentences[_column(lang)].split())
    frequent = sorted(counts, key=lambda word: -counts[word])
    words = [*_MARKS, *frequent[: max(0, size - len(_MARKS))]]
    handle, part = tempfile.mkstemp(prefix=f".{file_path.name}.", dir=file_path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write("".join(f"{word}\n" for word in words).encode())
    os.chmod(part, 0o644)
    os.replace(part, file_path)
    return words


def _pairs(path: str, name: str) -> Iterator[list[str]]:
    for line in common.lines_of(path, name):
        sentences = line.decode().strip().split("\t")
        if len(sentences) == 2:
            yield sentences


def reader_creator(
    tar_file: str, file_name: str, src_dict_size: int, trg_dict_size: int, src_lang: str
) -> common.Samples:
    """Return a reader as :func:`train` does, of a member of your archive."""
    _check_language(src_lang)
    trg_lang = "de" if src_lang == "en" else "en"

    def samples() -> Iterator[tuple[list[int], list[int], list[int]]]:
        source_words, target_words = (
            {word: number for number, word in enumerate(_words(tar_file, lang, size))}
            for lang, size in ((src_lang, src_dict_size), (trg_lang, trg_dict_size))
        )
        start, end, unknown = (source_words[mark] for mark in _MARKS)
        for sentences in _pairs(tar_file, file_name):
            words = sentences[_column(src_lang)].split()
            source = [start, *(source_words.get(word, unknown) for word in words), end]
            words = sentences[_column(trg_lang)].split()
            target = [target_words.get(word, unknown) for word in words]
            yield source, [start, *target], [*target, end]

    return samples


publish_definitions(__name__)
