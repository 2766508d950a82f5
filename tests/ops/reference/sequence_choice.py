"""Ops that choose and order whole sequences, as nested lists."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .registry import reference

Slots = dict[str, Any]


def nested(rows: Any, levels: list[Any]) -> list[Any]:
    """Return rows as lists of sequences of sequences."""
    items = list(rows)
    for level in levels[::-1]:
        items = [items[b:e] for b, e in pairwise(level)]
    return items


def flat(items: list[Any], depth: int, like: Any) -> Any:
    """Return the rows of nested lists."""
    for _ in range(depth):
        items = [inner for item in items for inner in item]
    return np.array(items).reshape(-1, *like.shape[1:])


@reference("lod_rank_table")
def lod_rank_table(ins: Slots, attrs: Slots) -> Slots:
    lengths = np.diff(ins["X@LOD"][attrs["level"]]).tolist()
    return {"Out": [[k, n] for k, n in sorted(enumerate(lengths), key=lambda one: -one[1])]}


@reference("max_sequence_len")
def max_sequence_len(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": [max(row[1] for row in ins["RankTable"])]}


@reference("reorder_lod_tensor_by_rank")
def reorder_lod_tensor_by_rank(ins: Slots, attrs: Slots) -> Slots:
    levels = ins.get("X@LOD", [])
    items = nested(ins["X"], levels)
    return {"Out": flat([items[row[0]] for row in ins["RankTable"]], len(levels), ins["X"])}


@reference("shrink_rnn_memory")
def shrink_rnn_memory(ins: Slots, attrs: Slots) -> Slots:
    levels = ins.get("X@LOD", [])
    alive = sum(row[1] > ins["I"][0] for row in ins["RankTable"])
    return {"Out": flat(nested(ins["X"], levels)[:alive], len(levels), ins["X"])}


@reference("split_lod_tensor")
def split_lod_tensor(ins: Slots, attrs: Slots) -> Slots:
    levels = ins.get("X@LOD", [])[attrs["level"] :]
    pairs = list(zip(nested(ins["X"], levels), ins["Mask"].reshape(-1), strict=True))
    sides = {"OutTrue": True, "OutFalse": False}
    return {
        slot: flat([item for item, named in pairs if bool(named) is side], len(levels), ins["X"])
        for slot, side in sides.items()
    }


@reference("merge_lod_tensor")
def merge_lod_tensor(ins: Slots, attrs: Slots) -> Slots:
    yes, no = (iter(nested(ins[s], ins.get(f"{s}@LOD", []))) for s in ("InTrue", "InFalse"))
    items = [next(yes if named else no) for named in ins["Mask"].reshape(-1)]
    return {"Out": flat(items, len(ins.get("InTrue@LOD", [])), ins["InTrue"])}


@reference("lod_picked")
def lod_picked(ins: Slots, attrs: Slots) -> Slots:
    *outer, last = ins["X"]
    y, by = ins["Y"], attrs["by"]
    items = nested(np.diff(last), outer)
    if by == "rank":
        items = [items[row[0]] for row in y]
    elif by == "unrank":
        places = [row[0] for row in y]
        items = [items[places.index(k)] for k in range(len(y))]
    elif by == "longer":
        items = items[: sum(row[1] > ins["I"][0] for row in y)]
    else:
        mask = y.reshape(-1).tolist()
        first = sum(mask)
        yes, no = iter(items[:first]), iter(items[first:])
        items = {
            "true": [item for item, named in zip(items, mask, strict=True) if named],
            "false": [item for item, named in zip(items, mask, strict=True) if not named],
            "merged": [next(yes if named else no) for named in mask] if by == "merged" else [],
        }[by]
    for _ in outer:
        items = [inner for item in items for inner in item]
    return {"Out": np.cumsum([0, *items])}


@reference("print")
@reference("print_if")
def print_tensor(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": ins["In"]}
