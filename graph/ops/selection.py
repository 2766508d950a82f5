"""Ops whose results have as many rows as elements differ, or are not zero: sizes come out of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...strategies.types import INTEGERS, VarType
from .compiled import HostFunction
from .latest import latest
from .lod import no_sequences
from .operands import Input, Operands, Output, named
from .registry import Inference, Spec, Specs, define
from .rules import known_operands, of_shape, product
from .samples import sample
from .shapes import Sized, counted


class WhereIndex(Operands):
    condition: Input
    out: Output


define(
    "where_index",
    WhereIndex,
    Sized(
        "Condition -> Out int64 [K rank]",
        "rank = len(Condition)",
        "rank > 0; Condition must have dimensions",
        counted(WhereIndex, lambda a: {"K": int(np.count_nonzero(a.condition))}),
    ),
    lod=no_sequences,
    samples=(
        sample("Condition bool [3 4]"),
        sample("Condition 0:2 [7]"),
        sample("Condition [2 2 2]"),
    ),
)


class Unique(Operands):
    x: Input
    out: Output
    index: Output
    indices: Output | None
    counts: Output | None
    dtype: int = int(VarType.INT32)
    return_index: bool = False
    return_inverse: bool = False
    return_counts: bool = False
    axis: Sequence[int] = []
    is_sorted: bool = False


class UniqueWithCounts(Operands):
    x: Input
    out: Output
    index: Output
    counts: Output = named("Count")
    dtype: int = int(VarType.INT32)


class Distinct(NamedTuple):
    """Of elements [N] that differ, K: where each is first, in this order [K]; the number of each element [N].

    ``counts``: how often each comes, [K].
    """

    first: np.ndarray
    numbers: np.ndarray
    counts: np.ndarray


@HostFunction
def numbered(x: np.ndarray) -> Distinct:
    """Number the elements of a list that differ, in the order in which they come first."""
    _, first, numbers, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return Distinct(first[order], place[numbers.reshape(-1)], counts[order])


class Elements(Operands):
    x: Input


@latest(Elements)
def distinct(a: Any) -> Distinct:
    """Return what :func:`numbered` does, of the list X."""
    return numbered(a.x)


def unique_shape(op: Inference) -> Mapping[str, Specs]:
    """What differs along an axis (of all elements without one), where it was, and how often."""
    x, kind = op.spec("X"), VarType(op.attr("dtype"))
    axes = list(op.attrs.get("axis", []))
    op.require(kind in INTEGERS, f"dtype must be an integer type, got {kind.name}")
    op.require(bool(axes) or len(x.shape) == 1, "X must be a list")
    op.require(all(-len(x.shape) <= a < len(x.shape) for a in axes), f"X has no axis {axes}")
    axis = axes[0] % len(x.shape) if axes else None
    count, values, elements = -1, op.value("X"), known_operands(op, Elements)
    if values is not None and elements is not None:
        several = distinct(elements).first if axis is None else None
        count = np.unique(values, axis=axis).shape[axis or 0] if several is None else len(several)
    shape: tuple[int, ...] = (count,)
    size = product(x.shape)
    if axis is not None:
        shape, size = (*x.shape[:axis], count, *x.shape[axis + 1 :]), x.shape[axis]
    rows = Spec((count,), kind)
    results = {"Out": of_shape(shape, x), "Index": Spec((size,), kind)}
    return {**results, "Indices": rows, "Counts": rows, "Count": rows}


define(
    "unique",
    Unique,
    unique_shape,
    reads_values=lambda attrs: ("X",),
    lod=no_sequences,
    samples=(
        sample("X 0:4 [7]"),
        sample("X 0:4 [7]", is_sorted=True, dtype=int(VarType.INT64)),
        sample("X 0:2 [6 2]", is_sorted=True, axis=[0]),
    ),
    refuses=(sample("X 0:2 [3 2]"), sample("X 0:4 [7]", dtype=int(VarType.FP32))),
)
define(
    "unique_with_counts",
    UniqueWithCounts,
    unique_shape,
    reads_values=lambda attrs: ("X",),
    lod=no_sequences,
    samples=(sample("X 0:4 [7]"),),
    refuses=(sample("X 0:2 [3 2]"),),
)
