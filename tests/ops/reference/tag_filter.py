"""Sequences that have one of some tags, one after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .registry import reference

Slots = dict[str, Any]


def _lists(items: Any, levels: list[Any]) -> list[Any]:
    rows = list(items)
    return [rows[b:e] for b, e in pairwise(levels[-1])] if levels else [[row] for row in rows]


@reference("filter_by_instag")
def filter_by_instag(ins: Slots, attrs: Slots) -> Slots:
    expected = set(ins["Filter_tag"].reshape(-1).tolist())
    tags = _lists(ins["Ins_tag"].reshape(-1).tolist(), ins.get("Ins_tag@LOD", []))
    levels = ins.get("Ins@LOD", []) if attrs["is_lod"] else []
    rows, places, source = [], [], 0
    for sequence, own in zip(_lists(ins["Ins"], levels), tags, strict=True):
        if expected & set(own):
            places.append([len(rows), source, len(sequence)])
            rows += sequence
        source += len(sequence)
    if not places:
        fill = [[attrs["out_val_if_empty"]] * ins["Ins"].shape[1]]
        return {"Out": fill, "LossWeight": [[0]], "IndexMap": [[0, 1, 1]]}
    return {"Out": rows, "LossWeight": [[1]] * len(places), "IndexMap": places}


@reference("lod_tagged")
def lod_tagged(ins: Slots, attrs: Slots) -> Slots:
    expected = set(ins["Tags"].reshape(-1).tolist())
    tags = _lists(ins["Y"].reshape(-1).tolist(), [ins["YLod"]] if "YLod" in ins else [])
    left = [k for k, own in enumerate(tags) if expected & set(own)]
    sizes = [e - b for b, e in pairwise(ins["X"])] if attrs["of_rows"] else [1] * len(tags)
    ends = [0]
    for k in left:
        ends.append(ends[-1] + sizes[k])
    return {"Out": ends if left else [0, 1]}
