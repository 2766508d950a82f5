"""The distance of sequences of labels on a GPU: a block for each pair."""

from __future__ import annotations

import numpy as np

from ....graph.ops.operands import Array
from ....graph.ops.sequence_metric import EditDistance
from ...codegen.cuda_launches import call, ints, longs, read, refusal, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from ..loops.spans import spans
from ..registry import kernel

_THREADS = 128  # of a block
_EMPTY = (
    "edit_distance: reference {} is empty, so the distance cannot be divided by its length. Leave it out, or "
    "say normalized=False."
)


@kernel("edit_distance", on=("cuda",))
def edit_distance(dev: Device, a: EditDistance) -> Step:
    ends, apart, count = spans(a.hyps_lod, a.hyps_length, a.hyps)
    goals, goal_apart, _ = spans(a.refs_lod, a.refs_length, a.refs)
    arrays = (a.hyps, a.refs, ends, goals)
    arguments = read(hyps=a.hyps, refs=a.refs, ends=ends, goals=goals)
    arguments += written(out=a.out, number=a.sequence_num)
    arguments += written(costs=dev.scratch((3 * (a.refs.size + count),), np.int32))
    arguments += refusal(
        dev, _misfit("Hyps", a.hyps, apart), _misfit("Refs", a.refs, goal_apart), _EMPTY
    )
    arguments += longs(count=count, rows=a.hyps.size, goal_rows=a.refs.size)
    arguments += [*longs(apart=apart, goal_apart=goal_apart), *ints(normalized=a.normalized)]
    kinds = tuple(c_type(array.dtype) for array in arrays)
    return call(
        dev,
        "block_edit_distance",
        kinds,
        arguments,
        count,
        ("assert.cuh", "sequences.cuh"),
        _THREADS,
    )


def _misfit(slot: str, labels: Array, apart: int) -> str:
    """Return what is said of sequences that do not fit labels."""
    if apart:
        return f"edit_distance: length {{}} is outside the {apart} columns of {slot}"
    return f"edit_distance: the sequences of {slot} end at row {{}}, and it has {labels.size} rows"
