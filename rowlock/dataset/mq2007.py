"""``paddle.dataset.mq2007``: queries, documents and how well they fit (LETOR 4.0), for ranking."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ..names import publish_definitions
from ..strategies.errors import InvalidValue, MissingFile
from . import common

URL = (
    "http://www.bigdatalab.ac.cn/benchmark/upload/download_source/"
    "7b6dbbe2-842c-11e4-a536-bcaec51b9163_MQ2007.rar"
)
MD5 = "7be1640ae95c6408dab0ae7207bdc706"
_FEATURES = 46
_FOLD = "MQ2007/MQ2007/Fold1/"
_log = logging.getLogger("rowlock")


class Query:
    """A document for a query: how relevant it is, and its features."""

    def __init__(
        self,
        query_id: int = -1,
        relevance_score: int = -1,
        feature_vector: list[float] | None = None,
        description: str = "",
    ) -> None:
        self.query_id = query_id
        self.relevance_score = relevance_score
        self.feature_vector = [] if feature_vector is None else feature_vector
        self.description = description

    def __str__(self) -> str:
        return " ".join(map(str, (self.relevance_score, self.query_id, *self.feature_vector)))


class QueryList:
    """The documents of one query.

    Raises:
        InvalidValue: there are documents of several queries.
    """

    def __init__(self, querylist: list[Query] | None = None) -> None:
        self.querylist = [] if querylist is None else querylist
        numbers = {query.query_id for query in self.querylist}
        if len(numbers) > 1:
            raise InvalidValue(f"a QueryList holds one query, got {sorted(numbers)}.")
        self.query_id = numbers.pop() if numbers else -1

    def __iter__(self) -> Iterator[Query]:
        return iter(self.querylist)

    def __len__(self) -> int:
        return len(self.querylist)

    def __getitem__(self, i: int) -> Query:
        return self.querylist[i]

    def rank(self) -> None:
        """Sort the documents, the most relevant first."""
        self.querylist.sort(key=lambda query: -query.relevance_score)


def train(format: str = "pairwise", shuffle: bool = False, fill_missing: int = -1) -> Iterator[Any]:
    """Yield samples (this function itself is the reader) of the first fold.

    ``format``: ``"pairwise"`` (label [1], better features, worse features, for each pair), ``"listwise"``
    (scores [n, 1], features [n, 46]), or of each query's best document ``"pointwise"`` (score, features) or
    ``"plain_txt"`` (query, score, features). ``shuffle`` and ``fill_missing`` change nothing, as in Paddle.
    """
    return _samples(_FOLD + "train.txt", format)


def test(format: str = "pairwise", shuffle: bool = False, fill_missing: int = -1) -> Iterator[Any]:
    """Yield the samples for testing, as :func:`train` does."""
    return _samples(_FOLD + "test.txt", format)


def gen_plain_txt(querylist: Iterable[Query]) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield (query, score, features) of each document, the most relevant first."""
    ranked = _ranked(querylist)
    for query in ranked:
        yield ranked.query_id, query.relevance_score, np.array(query.feature_vector)


def gen_point(querylist: Iterable[Query]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (score, features) of each document, the most relevant first."""
    for query in _ranked(querylist):
        yield query.relevance_score, np.array(query.feature_vector)


def gen_pair(
    querylist: Iterable[Query], partial_order: str = "full"
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (label, better features, worse features) of each two documents of different scores."""
    for better, worse in combinations(_ranked(querylist), 2):
        if better.relevance_score > worse.relevance_score:
            yield np.array([1]), np.array(better.feature_vector), np.array(worse.feature_vector)


def gen_list(querylist: Iterable[Query]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (scores, features) of all documents, the most relevant first."""
    ranked = _ranked(querylist)
    scores = [[query.relevance_score] for query in ranked]
    yield np.array(scores), np.array([query.feature_vector for query in ranked])


def query_filter(querylists: Iterable[QueryList]) -> list[QueryList]:
    """Return the queries that have a relevant document."""
    return [queries for queries in querylists if sum(query.relevance_score for query in queries)]


def load_from_text(filepath: str, shuffle: bool = False, fill_missing: int = -1) -> list[QueryList]:
    """Return the queries in a file of the data set, in its order."""
    queries: list[QueryList] = []
    with _text(filepath) as file:
        for line in file:
            query = _parsed(line)
            if query is None:
                continue
            if not queries or queries[-1].query_id != query.query_id:
                queries.append(QueryList([query]))
            else:
                queries[-1].querylist.append(query)
    return queries


def fetch() -> str:
    """Download the archive and return its path."""
    return common.download(URL, "MQ2007", MD5)


def _ranked(queries: Iterable[Query]) -> QueryList:
    ranked = queries if isinstance(queries, QueryList) else QueryList(list(queries))
    ranked.rank()
    return ranked


def _text(filepath: str) -> io.TextIOBase:
    """Open a file in the cache folder if it was unpacked there, else in the archive."""
    unpacked = Path(common.DATA_HOME, "MQ2007", filepath)
    if unpacked.is_file():
        return open(unpacked, encoding="utf-8")
    archive = fetch()
    rarfile = common.needs("rarfile", "rarfile", f"mq2007, to read {archive},")
    try:
        return io.TextIOWrapper(rarfile.RarFile(archive).open(filepath), "utf-8")
    except rarfile.Error as error:  # it needs the program unrar itself
        raise MissingFile(
            f"rarfile cannot read {archive} ({error}). Unpack it by hand, so that {unpacked} is there."
        ) from None


def _parsed(line: str) -> Query | None:
    """Return the document of a line such as ``2 qid:10 1:0.03 ... 46:0.07 #docid = ...``."""
    numbers, _, description = line.partition("#")
    parts = numbers.split()
    if len(parts) != 2 + _FEATURES:
        _log.warning(
            "mq2007: a line has %d values, not %d; it is left out", len(parts), 2 + _FEATURES
        )
        return None
    features = [float(part.split(":")[1]) for part in parts[2:]]
    return Query(int(parts[1].split(":")[1]), int(parts[0]), features, description.strip())


def _samples(filepath: str, format: str) -> Iterator[Any]:
    kinds: dict[str, Any] = {
        "plain_txt": lambda queries: [next(gen_plain_txt(queries))],
        "pointwise": lambda queries: [next(gen_point(queries))],
        "pairwise": gen_pair,
        "listwise": gen_list,
    }
    if format not in kinds:
        raise InvalidValue(f"format is one of {', '.join(kinds)}, got {format!r}.")
    return (
        sample
        for queries in query_filter(load_from_text(filepath))
        for sample in kinds[format](queries)
    )


publish_definitions(__name__)
