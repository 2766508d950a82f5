"""The gradient ops of a program before they are appended, and the sums of gradients that several ops write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
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

    ``seeds`` hold what the gradients of targets (by name) begin with; ``block`` is the number of the block of
    which these are the gradient ops. Gradients ``arriving`` are there before the first op.
    """
    writers: dict[str, list[GradOp]] = defaultdict(list)
    parts: dict[str, list[str]] = {name: [seed] for name, seed in seeds.items()}
    parts |= {name: [name] for name in arriving}
    numbers: dict[str, Iterator[int]] = defaultdict(count)
    complete: set[str] = set()
    forward: dict[str, str] = {}  # of what a sum of parts is the gradient, by its name
    result: list[GradOp] = []
    for op in grads:
        forward |= op.of
        if op.type == OVERWRITTEN:
            complete.update(op.read())
            continue
        reads = list(dict.fromkeys(op.read()))
        for name in reads:
            if len(parts.get(name, ())) > 1:
                result.append(_sum(name, parts[name], forward))
                # An op that may leave the variable as it was reads a part of what stood there before.
                parts[name], writers[name] = [name], result[-1:]
            elif name in seeds and parts.get(name) == [seeds[name]]:
                op.rename(op.inputs, name, seeds[name])
                op.of[seeds[name]] = op.of[name]
        # In Paddle's order, which is that of the sums at the end.
        for slot, names in () if op.recomputes else sorted(op.outputs.items()):
            for i, name in enumerate(names):
                if name == EMPTY_VAR:
                    continue
                if name in reads:
                    # The op wrote over its operand: this is another value's gradient, no second part.
                    parts[name] = [name]
                    writers[name].append(op)
                    continue
                if name in complete:
                    complete.remove(name)
                    parts[name] = []
                parts_so_far = parts.setdefault(name, [])
                if not parts_so_far:
                    writers[name] = []
                if parts_so_far == [name] and writers[name]:
                    first = f"{name}@RENAME@block{block}@{next(numbers[name])}"
                    for writer in writers[name]:
                        writer.rename(writer.outputs, name, first)
                    # of a variable that was written again in between, or that the op itself writes
                    for reader in _behind(writers[name][0], [*result, op]):
                        reader.rename(reader.inputs, name, first)
                    parts_so_far[0] = first
                own = f"{name}@RENAME@block{block}@{next(numbers[name])}" if parts_so_far else name
                op.outputs[slot][i] = own
                parts_so_far.append(own)
                writers[name].append(op)
        result.append(op)
    result += [_sum(name, names, forward) for name, names in parts.items() if len(names) > 1]
    return result


def _behind(writer: GradOp, ops: list[GradOp]) -> list[GradOp]:
    """Return the ops that stand behind one of them."""
    return ops[next(i for i, op in enumerate(ops) if op is writer) + 1 :]


def _sum(name: str, parts: list[str], forward: Mapping[str, str]) -> GradOp:
    of = {name: forward[name]} if name in forward else {}
    return GradOp("sum", {"X": list(parts)}, {"Out": [name]}, {}, of)
