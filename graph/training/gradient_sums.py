"""The gradient ops of a program before they are appended, and the sums of gradients that several ops write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ..program.role import EMPTY_VAR

# Marks a place among gradient ops: gradients of its names that are written behind it are of older values.
OVERWRITTEN = "overwritten"


@dataclass
class GradOp:
    """A gradient op before it is appended: names by slot, attributes, and the forward op's names."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any]
    of: dict[str, str] = field(default_factory=dict)  # gradient name -> forward name
    recomputes: bool = False  # it is a forward op, computed again
    body: list[GradOp] | None = None  # of its block, the attribute ``sub_block``

    def read(self) -> list[str]:
        """Names read."""
        return [name for names in self.inputs.values() for name in names]

    def writes(self) -> list[str]:
        """Names written, without those of gradients that are not computed."""
        return [n for names in self.outputs.values() for n in names if n != EMPTY_VAR]

    def rename(self, slots: dict[str, list[str]], old: str, new: str) -> None:
        """Replace a name in inputs or outputs."""
        if old in self.of:
            self.of[new] = self.of[old]
        for slot, names in slots.items():
            slots[slot] = [new if name == old else name for name in names]


def accumulate(
    grads: list[GradOp], seeds: dict[str, str], block: int = 0, arriving: Iterable[str] = ()
) -> list[GradOp]:
    """Name the parts of each gradient that is written more than once, and sum them before the first reader.

    ``seeds`` are the names of the first gradients, by the gradients of targets that they stand for; ``block``
    is the number of the block of which these are the gradient ops. Gradients ``arriving`` are there before the
    first op.
    """
    sums = _Sums(seeds, block, arriving)
    for op in grads:
        sums.add(op)
    return sums.finished()


class _Sums:
    """The gradient ops so far, with the names of the parts of each gradient, and the ops that wrote them."""

    def __init__(self, seeds: dict[str, str], block: int, arriving: Iterable[str]) -> None:
        self._ops: list[GradOp] = []
        self._seeds, self._block = seeds, block
        self._parts: dict[str, list[str]] = {name: [seed] for name, seed in seeds.items()}
        self._parts |= {name: [name] for name in arriving}
        self._writers: dict[str, list[GradOp]] = defaultdict(list)
        self._numbers: dict[str, Iterator[int]] = defaultdict(count)
        self._complete: set[str] = set()  # of values that were overwritten since
        self._forward: dict[str, str] = {}  # gradient -> the variable of which it is the gradient

    def add(self, op: GradOp) -> None:
        """Append an op that reads sums, and writes parts."""
        self._forward |= op.of
        if op.type == OVERWRITTEN:
            self._complete.update(op.read())
            return
        reads = list(dict.fromkeys(op.read()))
        for name in reads:
            self._complete_sum(op, name)
        # In Paddle's order, which is that of the sums at the end.
        for slot, names in () if op.recomputes else sorted(op.outputs.items()):
            for i, name in enumerate(names):
                if name in reads and name != EMPTY_VAR:
                    # The op writes over its operand: this is another value's gradient, no second part.
                    self._parts[name] = [name]
                    self._writers[name].append(op)
                elif name != EMPTY_VAR:
                    op.outputs[slot][i] = self._new_part(op, name)
        self._ops.append(op)

    def finished(self) -> list[GradOp]:
        """Return the ops, with the sums that no op reads behind them."""
        unread = [(name, names) for name, names in self._parts.items() if len(names) > 1]
        return self._ops + [self._sum(name, names) for name, names in unread]

    def _complete_sum(self, op: GradOp, name: str) -> None:
        """Sum the parts of a gradient that ``op`` reads; where the seed is the only part, the op reads that."""
        parts = self._parts.get(name, [])
        if len(parts) > 1:
            self._ops.append(self._sum(name, parts))
            # An op that may leave the variable as it was reads a part of what stood there before.
            self._parts[name], self._writers[name] = [name], self._ops[-1:]
        elif name in self._seeds and parts == [self._seeds[name]]:
            op.rename(op.inputs, name, self._seeds[name])
            op.of[self._seeds[name]] = op.of[name]

    def _new_part(self, op: GradOp, name: str) -> str:
        """Return the name by which ``op`` writes a part of a gradient; the only part has the gradient's."""
        if name in self._complete:
            self._complete.remove(name)
            self._parts[name] = []
        parts = self._parts.setdefault(name, [])
        if not parts:
            self._writers[name] = []
        if parts == [name] and self._writers[name]:
            parts[0] = self._part_name(name)
            for writer in self._writers[name]:
                writer.rename(writer.outputs, name, parts[0])
            # of a variable that was written again in between, or that the op itself writes
            for reader in _behind(self._writers[name][0], [*self._ops, op]):
                reader.rename(reader.inputs, name, parts[0])
        own = self._part_name(name) if parts else name
        parts.append(own)
        self._writers[name].append(op)
        return own

    def _part_name(self, name: str) -> str:
        return f"{name}@RENAME@block{self._block}@{next(self._numbers[name])}"

    def _sum(self, name: str, parts: list[str]) -> GradOp:
        of = {name: self._forward[name]} if name in self._forward else {}
        return GradOp("sum", {"X": list(parts)}, {"Out": [name]}, {}, of)


def _behind(writer: GradOp, ops: list[GradOp]) -> list[GradOp]:
    """Return the ops that stand behind one of them."""
    return ops[next(i for i, op in enumerate(ops) if op is writer) + 1 :]
