"""Check on the first batch that a compiler pass changed nothing (``verify_passes``).

The graph before the passes is computed op by op with NumPy's kernels, on what one place is fed and what the
persistables hold. Then every op that a pass made is computed on the very values that its operands had before,
so a difference is that op's own, and not handed on by another. Nothing is written that lasts, and random ops
draw what the place draws. Loops and arrays of tensors are not run, and what follows from them is not compared;
nor are passes over the bodies of loops, whose values replicas alone have: a round's are those that the rounds
before it computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...graph.ir.graph import EVERYWHERE, FEED, STATE, Node, Value, infer_node
from ...graph.ops.collective import COLLECTIVES
from ...graph.ops.registry import OPS
from ...graph.pipeline import Stage
from ...strategies.errors import ExecutionError
from ...strategies.types import is_float, to_numpy
from ..device.device import Clock, Device
from ..host.arena import spec_of
from ..kernels.registry import bind

# Of the largest result, and of the largest operand for each element that is summed (root mean square).
_NEAR: Mapping[str, tuple[float, float]] = {
    "bfloat16": (8e-2, 1e-2),
    "float16": (2e-2, 2e-3),
    "float32": (2e-5, 1e-6),
    "float64": (1e-11, 1e-14),
}


@dataclass(frozen=True)
class Batch:
    """What one place is given: feeds by name, what a persistable holds, rank, seed, and when and which rows."""

    feeds: Mapping[str, np.ndarray]
    state: Callable[[str], np.ndarray]
    rank: int
    seed: int
    clock: Clock


def verify(stages: Sequence[Stage], batch: Batch) -> str:
    """Compare what each pass made with what was before; return what was compared, in words.

    Raises:
        ExecutionError: a pass changed a value, or lost one that is to last; it names pass, op and value.
    """
    compared = 0
    checked = [stage for stage in stages if stage.keeps_values]
    values: _Values | None = None
    for stage in stages:
        if not stage.keeps_values:
            values = None  # it means other values from here on
            continue
        if values is None:
            values = _Values(batch)
            values.compute(stage.before.nodes)
        compared += _verified(stage, values)
    return f"verify_passes: {len(checked)} passes keep {compared} values on the first batch"


def _verified(stage: Stage, values: _Values) -> int:
    """Compute what a pass made, compare it, and keep what is new; return how many values were compared."""
    old = set(stage.before.nodes)
    compared = 0
    for node in stage.after.nodes:
        if node in old:
            continue
        for value, (array, noise) in values.outcome(node).items():
            known = values.known.setdefault(value, array)
            if known is not array:
                compared += 1
                _compare(stage.name, node, value, known, array, noise)
    _check_lasting(stage)
    return compared


def _check_lasting(stage: Stage) -> None:
    """What was written to a persistable before must still be written."""
    before, after = (
        {v.name for node in graph.nodes for v in node.writes() if v.kind == STATE}
        for graph in (stage.before, stage.after)
    )
    lost = sorted(before - after)
    if lost:
        raise ExecutionError(f"verify_passes: {stage.name} lost what is written to {lost[0]!r}.")


def _compare(
    name: str, node: Node, value: Value, before: np.ndarray, after: np.ndarray, noise: float
) -> None:
    if before.shape != after.shape or before.dtype != after.dtype:
        raise ExecutionError(
            f"verify_passes: {name} made {str(value)!r} {after.dtype}{list(after.shape)}, before it was "
            f"{before.dtype}{list(before.shape)}: {_named(node)}."
        )
    if not before.size or np.array_equal(before, after, equal_nan=is_float(before.dtype)):
        return
    near, per_term = _near(node) if is_float(before.dtype) else (0.0, 0.0)
    with np.errstate(all="ignore"):
        apart = np.abs(before.astype("float64") - after.astype("float64"))
        size = _largest([before])
    allowed = near * size + per_term * noise
    same = (before == after) | ((before != before) & (after != after))
    apart = np.where(same, 0.0, apart)
    if not apart.max() <= allowed:
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(apart)), apart.shape))
        raise ExecutionError(
            f"verify_passes: {name} changed {str(value)!r}: {_named(node)} makes {after[at]} at {list(at)}, "
            f"before it was {before[at]}; rounding explains {allowed:.1e} of the difference of {apart[at]:.1e}."
        )


class _Values:
    """The values of one step as they are computed. A pass that changes what is meant makes another value."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.known: dict[Value, np.ndarray] = {}
        self.device = Device(seed=batch.seed)
        self.device.clock = batch.clock

    def compute(self, nodes: Iterable[Node]) -> None:
        """Compute nodes in order."""
        for node in nodes:
            for value, (array, _) in self.outcome(node).items():
                self.known[value] = array

    def outcome(self, node: Node) -> dict[Value, tuple[np.ndarray, float]]:
        """Return what a node makes of the known values, each with the size of its terms; {}: not run here."""
        if node.host or node.at not in (EVERYWHERE, self.batch.rank):
            return {}
        read = {value: self._read(value) for value in node.reads()}
        if any(array is None for array in read.values()):
            return {}  # an owner elsewhere makes what it needs
        arrays = {value: array for value, array in read.items() if array is not None}
        results = (
            self._collected(node, arrays) if node.op in COLLECTIVES else self._run(node, arrays)
        )
        terms = max((a.size for a in arrays.values()), default=1)
        largest = _largest(arrays.values())
        return {
            value: (array, largest * math.sqrt(max(terms / max(array.size, 1), 1.0)))
            for value, array in results.items()
        }

    def _read(self, value: Value) -> np.ndarray | None:
        if value not in self.known and not value.version:
            if value.kind == STATE:
                self.known[value] = self.batch.state(value.name)
            elif value.kind == FEED:
                self.known[value] = self.batch.feeds[value.name]
        return self.known.get(value)

    def _collected(self, node: Node, read: Mapping[Value, np.ndarray]) -> dict[Value, np.ndarray]:
        """With one place alone, a collective gives back what it is given."""
        pairs = [
            pair
            for source, result in (("X", "Out"), ("Rows", "OutRows"), ("Values", "OutValues"))
            for pair in zip(node.inputs.get(source, ()), node.outputs.get(result, ()), strict=True)
        ]
        return {out: read[x].copy() for x, out in pairs if x is not None and out is not None}

    def _run(self, node: Node, read: Mapping[Value, np.ndarray]) -> dict[Value, np.ndarray]:
        specs = infer_node(node, lambda value: spec_of(read[value]), read.__getitem__)
        if any(size < 0 for known in specs.values() for spec in known for size in spec.shape):
            return {}  # what is computed decides its shape
        inputs = {s: [None if v is None else read[v] for v in vs] for s, vs in node.inputs.items()}
        outputs: dict[str, list[Any]] = {
            slot: [
                None if value is None else np.zeros(spec.shape, to_numpy(spec.dtype))
                for value, spec in zip(values, specs.get(slot, ()), strict=False)
            ]
            for slot, values in node.outputs.items()
        }
        for slot, source in OPS[node.op].in_place.items():
            if slot == f"{source}Out" and slot in outputs:  # it is updated where it lies
                for i, array in enumerate(outputs[slot]):
                    if array is not None:
                        array[...] = inputs[source][i]
                        inputs[source][i] = array
        writes = node.writes()
        self.device.next_instruction(writes[0].name if writes else "")
        with np.errstate(all="ignore"):
            for step in bind(node.op, inputs, outputs, node.attrs, self.device):
                step()
        return {
            value: array
            for slot, values in node.outputs.items()
            for value, array in zip(values, outputs[slot], strict=False)
            if value is not None and array is not None
        }


def _near(node: Node) -> tuple[float, float]:
    """Return how near is near by the coarsest element type there: it may have been rounded to on the way."""
    kinds = {to_numpy(v.spec.dtype).name for v in (*node.reads(), *node.writes())}
    return max(_NEAR[kind] for kind in kinds if kind in _NEAR)


def _largest(arrays: Iterable[np.ndarray]) -> float:
    """Return the largest finite magnitude in arrays of floats."""
    largest = 0.0
    for array in arrays:
        if array.size and is_float(array.dtype):
            finite = np.abs(array[np.isfinite(array)])
            largest = max(largest, float(finite.max()) if finite.size else 0.0)
    return largest


def _named(node: Node) -> str:
    return f"{node.op} (built at {node.where})"
