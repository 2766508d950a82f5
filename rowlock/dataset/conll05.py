"""``paddle.dataset.conll05``: sentences and the semantic roles of their words.

The training data is not free; Paddle's book trains on the part for testing. ``DATA_URL`` and ``DATA_MD5`` may
be set to other data.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..names import publish_definitions
from ..strategies.errors import DamagedFile
from . import common

DATA_URL = "http://paddlemodels.bj.bcebos.com/conll05st/conll05st-tests.tar.gz"
DATA_MD5 = "387719152ae52d60422c016e92a742fc"
WORDDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FwordDict.txt"
WORDDICT_MD5 = "ea7fb7d4c75cc6254716f0177a506baa"
VERBDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FverbDict.txt"
VERBDICT_MD5 = "0d2977293bbb6cbefab5b0f97db1e77c"
TRGDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FtargetDict.txt"
TRGDICT_MD5 = "d8c7f03ceb5fc2e5a0fa7503a4353751"
EMB_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2Femb"
EMB_MD5 = "bf436eb0faa1f6f9103017f8be57cdb7"
UNK_IDX = 0
_WORDS = "conll05st-release/test.wsj/words/test.wsj.words.gz"
_ROLES = "conll05st-release/test.wsj/props/test.wsj.props.gz"
_AROUND = (-2, -1, 0, 1, 2)  # which words beside the verb are features, and are marked

Sentence = tuple[list[str], str, list[str]]


def test() -> common.Samples:
    """Return a reader of nine lists with a value per word of a sentence.

    They are the words, the words two and one before the verb, at it, one and two after it (each repeated),
    the verb (repeated), whether a word is one of these five, and the word's role.
    """
    words, verbs, labels = get_dict()
    sentences = corpus_reader(_download(DATA_URL, DATA_MD5), _WORDS, _ROLES)
    return reader_creator(sentences, words, verbs, labels)


def reader_creator(
    corpus_reader: Callable[[], Iterator[Sentence]],
    word_dict: Mapping[str, int],
    predicate_dict: Mapping[str, int],
    label_dict: Mapping[str, int],
) -> common.Samples:
    """Return a reader as :func:`test` does, of what :func:`corpus_reader` reads, with numbers of yours."""
    numbers = (word_dict, predicate_dict, label_dict)
    return lambda: (_sample(*sentence, *numbers) for sentence in corpus_reader())


def get_dict() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return the numbers of words, verbs and roles."""
    return (
        load_dict(_download(WORDDICT_URL, WORDDICT_MD5)),
        load_dict(_download(VERBDICT_URL, VERBDICT_MD5)),
        load_label_dict(_download(TRGDICT_URL, TRGDICT_MD5)),
    )


def get_embedding() -> str:
    """Return the path of a file with trained vectors of the words: 16 bytes, then float32 [words, 32]."""
    return _download(EMB_URL, EMB_MD5)


def fetch() -> None:
    """Download the data."""
    get_dict()
    get_embedding()
    _download(DATA_URL, DATA_MD5)


def load_dict(filename: str) -> dict[str, int]:
    """Return the number of each line of a file."""
    with open(filename, encoding="utf-8") as file:
        return {line.strip(): number for number, line in enumerate(file)}


def load_label_dict(filename: str) -> dict[str, int]:
    """Return numbers of the labels of the roles in a file: each one's beginning and inside, and outside.

    Roles are in alphabetical order.
    """
    with open(filename, encoding="utf-8") as file:
        roles = {line.strip()[2:] for line in file if line.strip().startswith(("B-", "I-"))}
    labels = [f"{part}-{role}" for role in sorted(roles) for part in "BI"]
    return {label: number for number, label in enumerate([*labels, "O"])}


def corpus_reader(
    data_path: str, words_name: str, props_name: str
) -> Callable[[], Iterator[Sentence]]:
    """Return a reader of (words, verb, role of each word): one for each verb of each sentence."""

    def sentences() -> Iterator[Sentence]:
        words: list[str] = []
        rows: list[list[str]] = []
        files = _lines(data_path, words_name, props_name)
        for word, row in zip(*files, strict=False):
            if row:
                words.append(word)
                rows.append(row)
                continue
            yield from _per_verb(words, rows)
            words, rows = [], []

    return sentences


def _download(url: str, md5: str) -> str:
    return common.download(url, "conll05st", md5)


def _lines(
    path: str, words_name: str, props_name: str
) -> tuple[Iterator[str], Iterator[list[str]]]:
    texts = {}
    for name, contents in common.members(path, (words_name, props_name).__contains__):
        texts[name] = contents.read()
    if len(texts) < 2:
        raise DamagedFile(f"{path} holds not both {words_name} and {props_name}.")
    words, rows = (
        gzip.decompress(texts[name]).decode().split("\n") for name in (words_name, props_name)
    )
    return map(str.strip, words), map(str.split, rows)


def _per_verb(words: list[str], rows: list[list[str]]) -> Iterator[Sentence]:
    """Yield the roles for each verb; a row has the verb at the word (or ``-``), then a mark per verb."""
    if not rows:
        return
    verbs, *marks = zip(*rows, strict=True)
    verbs_present = (verb for verb in verbs if verb != "-")
    for verb, column in zip(verbs_present, marks, strict=False):
        yield words, verb, _roles(column)


def _roles(marks: tuple[str, ...]) -> list[str]:
    """Return roles from marks such as ``(A0*``, ``*``, ``*)`` and ``(V*)``."""
    labels = []
    role, inside = "", False
    for mark in marks:
        if "(" in mark:
            role = mark[1 : mark.find("*")]
            inside = ")" not in mark
            labels.append(f"B-{role}")
        elif mark == "*":
            labels.append(f"I-{role}" if inside else "O")
        elif mark == "*)":
            labels.append(f"I-{role}")
            inside = False
        else:
            raise DamagedFile(f"a word of conll05 has the mark {mark!r}, which is no role.")
    return labels


def _sample(
    sentence: list[str],
    verb: str,
    roles: list[str],
    words: Mapping[str, int],
    verbs: Mapping[str, int],
    labels: Mapping[str, int],
) -> tuple[list[Any], ...]:
    length, at = len(sentence), roles.index("B-V")
    padded = ["bos", "bos", *sentence, "eos", "eos"]
    context = [[words.get(padded[at + 2 + by], UNK_IDX)] * length for by in _AROUND]
    return (
        [words.get(word, UNK_IDX) for word in sentence],
        *context,
        [verbs.get(verb)] * length,
        [int(position - at in _AROUND) for position in range(length)],
        [labels.get(role) for role in roles],
    )


publish_definitions(__name__)
