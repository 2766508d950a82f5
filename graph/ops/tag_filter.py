"""Keep the sequences that have one of some tags. Legend: N rows, B sequences, D elements of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...strategies.types import INTEGERS, VarType
from .latest import latest_of_arrays
from .lod import Lods, no_sequences
from .operands import Input, Offsets, Operands, Output, named
from .registry import OFFSETS, Inference, Op, Spec, Specs, define
from .rules import is_column, merge_dims, of_shape, one_level
from .samples import sample


class TagAttributes(Operands):
    is_lod: bool = True
    out_val_if_empty: int = 0


class FilterByInstag(TagAttributes):
    ins: Input
    ins_lod: Offsets
    ins_tag: Input = named("Ins_tag")
    ins_tag_lod: Offsets = named("Ins_tag@LOD")
    filter_tag: Input = named("Filter_tag")
    out: Output
    loss_weight: Output
    index_map: Output


class FilterByInstagGrad(TagAttributes):
    ins: Input
    loss_weight: Input
    index_map: Input
    d_out: Input
    d_ins: Output


class OffsetsTagged(Operands):
    """With ``of_rows`` the offsets of the sequences that are left, else those of one row for each."""

    x: Input | None
    y: Input
    y_lod: Input | None = named("YLod")
    tags: Input
    out: Output
    of_rows: bool = True


@latest_of_arrays
def tagged(tags: np.ndarray, ends: np.ndarray | None, choice: np.ndarray) -> np.ndarray:
    """Return the numbers of the sequences of tags, in order, that hold a chosen one.

    ``ends`` are the offsets of the sequences; None: each tag is one.
    """
    hits = np.flatnonzero(np.isin(tags.reshape(-1), choice))
    if ends is None:
        return hits
    numbers = np.searchsorted(ends, hits, side="right") - 1  # in order: equal ones stand together
    return numbers[np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]]


def _check_tags(op: Inference, slot: str) -> None:
    spec = op.spec(slot)
    fits = is_column(spec.shape) and spec.dtype in INTEGERS
    op.require(fits, f"{slot} must hold one integer in a row: [N, 1]")


def filtered_shape(op: Inference) -> Mapping[str, Specs]:
    """The rows of the sequences with a chosen tag; a weight and a place for each; one row if there are none."""
    ins, of_sequences = op.spec("Ins"), op.attr("is_lod")
    op.require(len(ins.shape) == 2, "Ins must be [N, D]")
    for slot in ("Ins_tag", "Filter_tag"):
        _check_tags(op, slot)
        one_level(op, slot)
    one_level(op, "Ins")
    count = op.sequences("Ins") if of_sequences else ins.shape[0]
    has_lists = op.has("Ins_tag@LOD")
    lists = op.sequences("Ins_tag") if has_lists else op.shape("Ins_tag")[0] if op.exact else -1
    op.require(
        merge_dims(count, lists) is not None,
        f"Ins_tag has {lists} lists of tags, Ins {count} {'sequences' if of_sequences else 'rows'}",
    )
    tags, choice = op.value("Ins_tag"), op.value("Filter_tag")
    ends = op.offsets("Ins") if of_sequences else None
    lists_known = op.offsets("Ins_tag") if has_lists else None
    sizes = (-1, -1)
    if tags is not None and choice is not None and (ends is not None or not of_sequences):
        numbers = tagged(tags, lists_known, choice)
        rows = len(numbers) if ends is None else int(np.diff(ends)[numbers].sum())
        sizes = (rows, len(numbers)) if len(numbers) else (1, 1)
    return {
        "Out": of_shape((sizes[0], ins.shape[1]), ins),
        "LossWeight": Spec((sizes[1], 1), VarType.FP32),
        "IndexMap": Spec((sizes[1], 3), VarType.INT64),
    }


def filtered_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """The sequences that are left; a weight, and a place, is a sequence of its own."""
    ends = op.of("Ins")[-1:] if op.attrs["is_lod"] else ()
    slots = {"X": ends, "Y": (op.value("Ins_tag"),), "YLod": op.of("Ins_tag")[-1:]}
    slots = {**slots, "Tags": (op.value("Filter_tag"),)}
    present = {slot: levels for slot, levels in slots.items() if levels}
    rows = op.level("lod_tagged", present, {"of_rows": False})
    level = op.level("lod_tagged", present) if ends else rows
    return {"Out": (level,), "LossWeight": (rows,), "IndexMap": (rows,)}


def tagged_shape(op: Inference) -> Mapping[str, Specs]:
    """One more than there are sequences left, two if there are none."""
    tags, choice = op.value("Y"), op.value("Tags")
    ends = op.value("YLod") if op.has("YLod") else None
    if tags is None or choice is None:
        return {"Out": OFFSETS._replace(shape=(-1,))}
    return {"Out": OFFSETS._replace(shape=(max(len(tagged(tags, ends, choice)), 1) + 1,))}


_TAGS = "Ins_tag table [0; 1; 5; 2; 3; 7], Ins_tag@LOD [2 1 3]"
_ROWS = f"Ins [6 2], Ins@LOD [2 1 3], {_TAGS}"

define(
    "filter_by_instag",
    FilterByInstag,
    filtered_shape,
    reads_values=lambda attrs: ("Ins_tag", "Filter_tag", "Ins@LOD", "Ins_tag@LOD"),
    lod=filtered_lod,
    samples=(
        sample(_ROWS, "Filter_tag lengths [3 0]"),
        sample(_ROWS, "Filter_tag table [9;]", out_val_if_empty=4),
        sample("Ins [3 2]", _TAGS, "Filter_tag lengths [5]", is_lod=False),
        sample("Ins [3 2], Ins_tag lengths [4 1 4], Filter_tag lengths [4]", is_lod=False),
    ),
    refuses=(
        sample("Ins [3 2]", _TAGS, "Filter_tag lengths [5]"),
        sample(_ROWS, "Ins_tag@LOD [2 4], Filter_tag lengths [5]"),
        sample(_ROWS, "Ins_tag [6 1], Filter_tag lengths [5]"),
        sample(_ROWS, "Ins [6 2 2], Filter_tag lengths [5]"),
    ),
    slope=Op("filter_by_instag_grad", FilterByInstagGrad, shapes_of=("Ins",)),
)
define(
    "lod_tagged",
    OffsetsTagged,
    tagged_shape,
    reads_values=lambda attrs: ("Y", "YLod", "Tags"),
    lod=no_sequences,
    samples=(
        sample(
            "X offsets [2 1 3], Y table [0; 1; 5; 2; 3; 7], YLod offsets [2 1 3], "
            "Tags lengths [3 0]"
        ),
        sample("X offsets [2 1], Y lengths [4 1], Tags lengths [1]"),
        sample("Y 0:2 [5], Tags lengths [7]", of_rows=False),
    ),
)
