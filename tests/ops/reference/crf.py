"""Chains of tags: sums and maxima over all of them, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import numpy as np

from .registry import reference

Slots = dict[str, Any]


def sequences(ins: Slots) -> Iterator[tuple[Any, Any, Any]]:
    """Return emissions and labels of each sequence, and the indices of its rows."""
    x, label = ins["Emission"], ins.get("Label")
    if "Length" in ins:
        ranges = [(b * x.shape[1], b * x.shape[1] + n) for b, n in enumerate(ins["Length"].ravel())]
    else:
        ranges = list(pairwise(ins["Emission@LOD"][-1]))
    rows = x.reshape(-1, x.shape[-1])
    for begin, end in ranges:
        tags = None if label is None else label.reshape(-1)[begin:end]
        yield rows[begin:end], tags, slice(begin, end)


def score(x: Any, tags: Any, transition: Any) -> float:
    total = (
        transition[0, tags[0]] + transition[1, tags[-1]] + sum(x[t, k] for t, k in enumerate(tags))
    )
    return float(total + sum(transition[2 + i, j] for i, j in pairwise(tags)))


def chains(x: Any) -> Any:
    return product(range(x.shape[1]), repeat=len(x))


@reference("linear_chain_crf")
def linear_chain_crf(ins: Slots, attrs: Slots) -> Slots:
    losses = []
    for x, tags, _ in sequences(ins):
        loss = 0.0
        if len(x):
            scores = [score(x, chain, ins["Transition"]) for chain in chains(x)]
            loss = np.logaddexp.reduce(scores) - score(x, tags, ins["Transition"])
        losses.append([loss])
    return {"LogLikelihood": np.array(losses)}


@reference("crf_decoding")
def crf_decoding(ins: Slots, attrs: Slots) -> Slots:
    padded = "Length" in ins
    path = np.zeros(ins["Emission"].shape[:-1], np.int64).ravel()
    for x, tags, rows in sequences(ins):
        if len(x):
            best = max(chains(x), key=lambda chain: score(x, chain, ins["Transition"]))
            path[rows] = best if tags is None else np.equal(best, tags)
    return {"ViterbiPath": path.reshape(ins["Emission"].shape[:-1] if padded else (-1, 1))}
