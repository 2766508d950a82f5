"""Measures of sequences of labels, pair by pair, in compiled loops.

Labels that are bad are left to the kernels of arrays, which name what is wrong. Legend: S sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from ....graph.ops.sequence_metric import SCHEMES, ChunkEval, EditDistance
from ...codegen.text_loops import bind_or, named
from ...device.device import Device
from ..array import sequence_metric as by_rows
from ..registry import Step, by_arrays, kernel
from .spans import SPANS, readable, spans

# ``cost[j]``: from so many of hyps as were gone through to the first j of refs. In place of no label stands -1.
_DISTANCE = """
    fits = are_spans(ends, S, apart, rows) or (apart == 0 and ends[S] == 0 and rows == 1 and hyps[0] == -1)
    others_fit = are_spans(goals, S, goal_apart, goal_rows)
    none = goal_apart == 0 and goals[S] == 0 and goal_rows == 1 and refs[0] == -1
    if not fits or not (others_fit or none):
        wrong[0] = 1
        return
    for s in range(S):
        h, length = begin_of(ends, s, apart), length_of(ends, s, apart)
        r, goal = begin_of(goals, s, goal_apart), length_of(goals, s, goal_apart)
        if normalized and goal == 0:
            wrong[0] = 1
            return
        for j in range(goal + 1):
            cost[j] = j
        for i in range(length):
            own, corner, before = np.int64(hyps[h + i]), cost[0], np.int64(i + 1)
            cost[0] = before
            for j in range(goal):
                changed = corner + (np.int64(refs[r + j]) != own)
                corner = cost[j + 1]
                before = min(min(corner, before) + 1, changed)
                cost[j + 1] = before
        share = np.float64(goal) if normalized else 1.0
        out[s] = np.float32(np.float64(cost[goal]) / share)
    total[0] = S
"""


@kernel("edit_distance", on=("llvm",))
def edit_distance(dev: Device, a: EditDistance) -> list[Step]:
    """Insertions, deletions and substitutions, of which one row of costs is kept."""
    ends, apart, count = spans(a.hyps_lod, a.hyps_length, a.hyps)
    goals, goal_apart, _ = spans(a.refs_lod, a.refs_length, a.refs)
    arrays = named(
        "hyps ends refs goals out total", (a.hyps, ends, a.refs, goals, a.out, a.sequence_num)
    )
    if not readable(*arrays.values()):
        return by_arrays("edit_distance", dev, a)
    arrays["cost"] = dev.scratch((a.refs.size + 1,), np.int64)
    sizes = named(
        "S apart goal_apart rows goal_rows", (count, apart, goal_apart, a.hyps.size, a.refs.size)
    )
    otherwise = partial(by_rows.edit_distance, a)
    return bind_or(dev, _DISTANCE, arrays, otherwise, SPANS, normalized=int(a.normalized), **sizes)


# Whether a chunk ends before a label of its type, by the position of this label and of the one before.
_ENDS = {
    "plain": "False",
    "IOB": "position == 0",
    "IOE": "before == 1",
    "IOBES": "position == 0 or position == 3 or before == 2 or before == 3",
}
_SIDE = """
            tag = np.int64({labels}[{at} + i]) if i < length else types * {count}
            if tag < 0 or tag > types * {count}:
                wrong[0] = 1
                return
            kind, position, before = tag // {count}, tag % {count}, {labels}_before
            {labels}_ended, {labels}_from = types, {labels}_start
            if {labels}_kind != types and ({labels}_kind != kind or {ends}):
                {labels}_ended, {labels}_kind = {labels}_kind, types
            if kind != types and {labels}_kind == types:
                {labels}_kind, {labels}_start = kind, i
            {labels}_before = position
            {labels}_counted = excluded[{labels}_ended] == 0
            {total} += {labels}_counted
"""
_CHUNKS = """
    said, meant, right = 0, 0, 0
    if not are_spans(ends, S, apart, rows) or not are_spans(goals, S, apart, rows):
        wrong[0] = 1
        return
    for s in range(S):
        x, y, length = begin_of(ends, s, apart), begin_of(goals, s, apart), length_of(ends, s, apart)
        if length != length_of(goals, s, apart):
            wrong[0] = 1
            return
        xs_kind, xs_start, xs_before = types, np.int64(0), np.int64(-1)
        ys_kind, ys_start, ys_before = types, np.int64(0), np.int64(-1)
        for i in range(length + 1):
{sides}
            right += xs_counted and xs_ended == ys_ended and xs_from == ys_from
    p = np.float64(right) / np.float64(said) if said else 0.0
    r = np.float64(right) / np.float64(meant) if meant else 0.0
    precision[0], recall[0] = np.float32(p), np.float32(r)
    f1[0] = np.float32(2.0 * p * r / (p + r) if right else 0.0)
    counts_x[0], counts_y[0], counts_both[0] = said, meant, right
"""


@lru_cache
def _chunks(scheme: str) -> str:
    how = {"count": SCHEMES[scheme], "ends": _ENDS[scheme]}
    sides = [
        _SIDE.format(labels="xs", at="x", total="said", **how),
        _SIDE.format(labels="ys", at="y", total="meant", **how),
    ]
    return _CHUNKS.format(sides="".join(sides).strip("\n"))


@lru_cache
def _excluded(types: Sequence[int], count: int) -> np.ndarray:
    """Return, by type of chunk, whether it is left out, as is what is none: plans share it."""
    return np.array([k in types or k == count for k in range(count + 1)])


@kernel("chunk_eval", on=("llvm",))
def chunk_eval(dev: Device, a: ChunkEval) -> list[Step]:
    """Both sides go on label by label: equal chunks end at once, began at once, and are of one type."""
    ends, apart, count = spans(a.inference_lod, a.seq_length, a.inference)
    goals, *_ = spans(a.label_lod, a.seq_length, a.label)
    names = "xs ends ys goals precision recall f1 counts_x counts_y counts_both"
    results = (a.precision, a.recall, a.f1_score)
    totals = (a.num_infer_chunks, a.num_label_chunks, a.num_correct_chunks)
    arrays = named(names, (a.inference, ends, a.label, goals, *results, *totals))
    if not readable(*arrays.values()) or a.inference.size != a.label.size:
        return by_arrays("chunk_eval", dev, a)
    arrays["excluded"] = _excluded(tuple(a.excluded_chunk_types), a.num_chunk_types)
    sizes = {"S": count, "apart": apart, "rows": a.inference.size, "types": a.num_chunk_types}
    otherwise = partial(by_rows.chunk_eval, a)
    return bind_or(dev, _chunks(a.chunk_scheme), arrays, otherwise, SPANS, **sizes)
