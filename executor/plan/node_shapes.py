"""NodeShapes: infer the specs of what one node writes, and compute elements that shapes depend on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.ops.registry import OPS, Inference, Spec, Values
from ...strategies.bounded_dict import BoundedDict
from ...strategies.types import to_numpy
from ..device.device import Device
from ..kernels.registry import bind

_COMPUTED_KNOWN = 64  # specs for which a node that the host computes is bound
Elements = dict[int, np.ndarray]  # those that are known before a step, by position
# The specs that nodes of one form write, by those they read
Known = BoundedDict[Any, list[Spec | None]]


class SizeReader:
    """Takes sizes from elements (``Op.sizes_of``), for all ops that take the same; ``number``: its own.

    ``slots`` are the slots that it reads, and the positions of their values.
    """

    def __init__(
        self, node: NodeRecord, number: int, slots: Sequence[tuple[str, Sequence[int]]]
    ) -> None:
        self.number, self._attrs = number, node.attrs
        self._sizes_of = OPS[node.op].sizes_of
        self._slots = [(slot, picked(positions)) for slot, positions in slots]

    def read(self, elements: Elements) -> tuple[int, ...]:
        """Return the sizes.

        Raises:
            ArithmeticError, IndexError, ValueError: the op does not take such elements.
        """
        assert self._sizes_of is not None, "the op declares the sizes that it takes"
        return self._sizes_of({slot: pick(elements) for slot, pick in self._slots}, self._attrs)


@dataclass(slots=True)
class ValueSpecs:
    """The specs of a program's values, by position (None: not inferred yet), and the elements that are known.

    ``sizes`` are those that each :class:`SizeReader` took, by its number.
    """

    specs: list[Spec | None]
    elements: Elements
    sizes: list[tuple[int, ...] | None]


class NodeShapes:
    """Infers the specs of the values that a node writes; the same operands are not inferred twice.

    ``writes`` are their positions. All nodes of its form share ``known``. ``reader`` takes the sizes that the
    op needs from elements (None: it needs none); ``by_elements``: it needs elements themselves. ``on_host``
    computes elements of its results (None: no shape depends on them).
    """

    __slots__ = (
        *("by_elements", "on_host", "reader", "record", "writes"),
        *("_known", "_names", "_op", "_places", "_read", "_slots"),
    )

    def __init__(
        self,
        record: NodeRecord,
        program: ReplicaProgram,
        known: Known,
        reader: SizeReader | None,
        by_elements: bool,
        on_host: HostNode | None,
    ) -> None:
        self.record, self._op, self._known = record, OPS[record.op], known
        self.reader, self.by_elements, self.on_host = reader, by_elements, on_host
        self._slots = [(slot, picked(positions)) for slot, positions in record.inputs.items()]
        self._read = picked([i for positions in record.inputs.values() for i in positions])
        self._names = {
            slot: ["" if i < 0 else program.values[i].name for i in positions]
            for slot, positions in record.inputs.items()
        }
        written = [(s, k, i) for s, ids in record.outputs.items() for k, i in enumerate(ids)]
        self.writes = [i for _, _, i in written if i >= 0]
        self._places = [(slot, k) for slot, k, i in written if i >= 0]

    def apply(self, inferred: ValueSpecs) -> None:
        """Infer the specs of the results from those of the operands, and compute what the host must know.

        Raises:
            ShapeError: the op does not take such operands.
        """
        specs = inferred.specs
        if self.by_elements:  # which hardly ever come again
            results = self._results(inferred)
        else:
            sizes = None if self.reader is None else self.sizes(inferred)
            key = self._read(specs), sizes
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = self._results(inferred, sizes)
            results = known
        for i, result in zip(self.writes, results, strict=True):
            if result is not None:
                specs[i] = result
        if self.on_host is not None:
            try:
                self.on_host.run(specs, inferred.elements)
            except (ArithmeticError, IndexError, ValueError) as error:
                self._inference(inferred).fail(error)

    def sizes(self, inferred: ValueSpecs) -> tuple[int, ...]:
        """Return the sizes that the op takes from elements."""
        assert self.reader is not None, "the op takes sizes"
        sizes = inferred.sizes[self.reader.number]
        if sizes is None:
            try:
                sizes = self.reader.read(inferred.elements)
            except (ArithmeticError, IndexError, ValueError) as error:
                self._inference(inferred).fail(error)
            inferred.sizes[self.reader.number] = sizes
        return sizes

    def _results(
        self, inferred: ValueSpecs, sizes: tuple[int, ...] | None = None
    ) -> list[Spec | None]:
        """Return the spec of each result (None: the shape rule tells none)."""
        inputs, known = self.record.inputs, inferred.elements.get

        def values_of(slot: str) -> list[np.ndarray | None]:
            return [known(i) for i in inputs.get(slot, ())]

        results = self._op.infer(self._inference(inferred, values_of, sizes))
        return [
            results[slot][k] if slot in results and k < len(results[slot]) else None
            for slot, k in self._places
        ]

    def _inference(
        self,
        inferred: ValueSpecs,
        values: Values | None = None,
        sizes: tuple[int, ...] | None = None,
    ) -> Inference:
        """Return the operands as the op's shape rule sees them."""
        read = {slot: pick(inferred.specs) for slot, pick in self._slots}
        record = self.record
        return Inference(self._op, read, record.attrs, self._names, record.where, values, sizes)


class _Binding(NamedTuple):
    """A node that is bound on the host: arrays for known operands and results, by position, and the calls."""

    operands: list[tuple[int, np.ndarray]]
    results: list[tuple[int, np.ndarray]]
    calls: Sequence[Callable[[], Any]]


class HostNode:
    """Computes a node on the host, from elements that are known before a step.

    ``known`` are the positions of all such values.
    """

    def __init__(self, record: NodeRecord, known: Collection[int]) -> None:
        self._record, self._known = record, known
        self._read = picked([i for ids in record.inputs.values() for i in ids])
        self._written = picked([i for ids in record.outputs.values() for i in ids if i >= 0])
        self._bindings = BoundedDict[Any, _Binding](_COMPUTED_KNOWN)

    def run(self, specs: Sequence[Spec | None], elements: Elements) -> None:
        """Add the node's results to the elements.

        Raises:
            ArithmeticError, IndexError, ValueError: the op does not take such elements.
        """
        key = self._read(specs), self._written(specs)
        binding = self._bindings.get(key)
        if binding is None:
            binding = self._bindings[key] = self._bind(specs, elements)
        for i, array in binding.operands:
            array[...] = elements[i]
        for call in binding.calls:
            call()
        for i, array in binding.results:
            elements[i] = array.copy()

    def _bind(self, specs: Sequence[Spec | None], elements: Elements) -> _Binding:
        """Bind the node's kernel to arrays of its own.

        All results have memory, unless they need different operands.
        """
        record = self._record
        apart = bool(OPS[record.op].needs(record.attrs))
        outputs: dict[str, list[np.ndarray | None]] = {}
        results: list[tuple[int, np.ndarray]] = []
        for slot, positions in record.outputs.items():
            outputs[slot] = []
            for i in positions:
                known = i in self._known
                spec = specs[i] if i >= 0 and (known or not apart) else None
                array = None if spec is None else np.empty(spec.shape, to_numpy(spec.dtype))
                outputs[slot].append(array)
                if array is not None and known:
                    results.append((i, array))
        operands = {
            i: np.empty_like(elements[i]) if i in elements else _shaped(specs[i])
            for i in (i for positions in record.inputs.values() for i in positions)
            if i >= 0
        }
        inputs = {
            slot: [operands[i] for i in positions if i >= 0]
            for slot, positions in record.inputs.items()
        }
        calls = bind(record.op, inputs, outputs, record.attrs, Device())
        return _Binding([(i, a) for i, a in operands.items() if i in elements], results, calls)


def _shaped(spec: Spec | None) -> np.ndarray:
    """Return an operand whose elements do not matter, in the memory of one element."""
    assert spec is not None, "an operand of a node that the host computes has a shape"
    return np.broadcast_to(np.zeros((), to_numpy(spec.dtype)), spec.shape)


def picked(positions: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that picks the values at these positions, as a tuple."""
    if len(positions) > 1:
        return itemgetter(*positions)
    if not positions:
        return lambda values: ()
    (position,) = positions
    return lambda values: (values[position],)
