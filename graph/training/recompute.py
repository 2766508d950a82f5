"""Recomputation: the backward pass computes parts of the forward pass again, instead of keeping their results.

The forward ops are cut into segments at checkpoints. Before the gradient ops of a segment, those of its ops on
whose results they depend are appended once more, with results of other names. Kept are the checkpoints, what is
read outside its segment, and what comes from elsewhere. Chen, Xu, Zhang and Guestrin, arXiv 1604.06174.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..ops.python_function import PY_FUNC
from ..program.block import Block
from ..program.operator import Operator
from ..program.role import EMPTY_VAR, recomputed_name


@dataclass(frozen=True)
class Segment:
    """Ops in program order; ``again`` names those of their results that are computed again."""

    ops: Sequence[Operator]
    again: Mapping[str, str]
    number: int = -1

    def repeated(self, reads: Collection[str]) -> list[Operator]:
        """Return the ops on which the results depend that are read under their other names."""
        needs = {name for name, new in self.again.items() if new in reads}
        ops = []
        for op in reversed(self.ops):
            if needs.intersection(op.output_arg_names):
                ops.append(op)
                needs.update(name for name in op.input_arg_names if name in self.again)
        return ops[::-1]


def segments(
    block: Block, path: Sequence[Operator], checkpoints: Iterable[str]
) -> Iterator[Segment]:
    """Cut the ops that lead to a loss at the checkpoints, and yield the segments, the last one first.

    Ops behind the last checkpoint, and single ones between two, are not computed again. As in Paddle, a
    checkpoint that no op of the path reads or writes counts for nothing.
    """
    places = _Places(path)
    spans = places.spans(checkpoints)
    fixed = places.crossing(spans) | set(checkpoints)
    number, end = _first_free(block), len(path)
    for start, stop in reversed(spans):
        yield Segment(path[stop:end], {})
        ops = path[start:stop]
        names = {name for op in ops for name in op.output_arg_names} - fixed
        yield Segment(ops, {name: recomputed_name(name, number) for name in names}, number)
        number, end = number + 1, start
    yield Segment(path[:end], {})


class _Places:
    """The positions on the path at which each name is written, and read."""

    def __init__(self, path: Sequence[Operator]) -> None:
        self.path = path
        self.writes: dict[str, list[int]] = defaultdict(list)
        self.reads: dict[str, list[int]] = defaultdict(list)
        for i, op in enumerate(path):
            for name in op.output_arg_names:
                self.writes[name].append(i)
            for name in op.input_arg_names:
                self.reads[name].append(i)

    def spans(self, checkpoints: Iterable[str]) -> list[tuple[int, int]]:
        """Return the first op of each segment to be computed again, and the one behind its last."""
        writes = {
            name: max(self.writes[name], default=-1)
            for name in checkpoints
            if name in self.writes or name in self.reads
        }
        names = sorted(writes, key=lambda name: (writes[name], name))
        if len(names) == 1:
            stop = writes[names[0]] + 1
            return [(0, stop)] if stop > 1 else []
        spans: list[tuple[int, int]] = []
        for name, following in pairwise(names):
            start, stop = min(self.reads[name], default=len(self.path)), writes[following] + 1
            start = max(start, spans[-1][1] if spans else 0)
            if stop - start > 1:
                spans.append((start, stop))
        if spans and spans[0][0] > 0:
            spans.insert(0, (0, spans[0][0]))
        return spans

    def crossing(self, spans: Iterable[tuple[int, int]]) -> set[str]:
        """Return the names that a segment must not compute again.

        They are used outside it, hold a value from before its first write, or come from a Python function or an
        op that holds a block.
        """
        segment_of = {i: start for start, stop in spans for i in range(start, stop)}
        names = set()
        for name, writes in self.writes.items():
            segments = {segment_of.get(i) for i in (*writes, *self.reads[name])}
            before = min(self.reads[name], default=len(self.path)) <= writes[0]
            is_opaque = any(_called_once(self.path[i]) for i in writes)
            if len(segments) > 1 or before or is_opaque or name == EMPTY_VAR:
                names.add(name)
        return names


def _called_once(op: Operator) -> bool:
    return op.type == PY_FUNC or "sub_block" in op.attrs


def _first_free(block: Block) -> int:
    """Return the first number that the names of no earlier recomputation have."""
    number = 0
    while any(name.endswith(recomputed_name("", number)) for name in block.vars):
        number += 1
    return number
