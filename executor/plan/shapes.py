"""Exact shapes of a program's values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from typing import Any

import numpy as np

from ...graph.ir.graph import STATE
from ...graph.ir.known_values import known_values
from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.ops.collective import COLLECTIVES
from ...graph.ops.registry import OPS, Spec
from ...strategies.bounded_dict import BoundedDict
from .node_shapes import HostNode, Known, NodeShapes, SizeReader, ValueSpecs, picked
from .sizes import Form, Sizes, Source, forms_of, joined, source_of, source_of_numbers, spans

_SHAPES_KNOWN = 1024  # kept per form of a node: loops have rounds of as many sizes
_STATES_KNOWN = 64  # shapes that all persistables of a program have at once
_SHORT, _DIGEST = 512, 32  # bytes: to digest fewer takes longer than to compare them


def infer_specs(
    program: ReplicaProgram, feeds: Sequence[Spec], state: Callable[[str], Spec | None]
) -> list[Spec]:
    """Return the exact spec of every value, given what is fed and what the persistables hold.

    Raises:
        ShapeError: what is fed does not fit the program; the message names the op and the user's line.
    """
    return Shapes(program).infer(feeds, state)


class StateSpecs:
    """The specs of the persistables that a program reads, by position (None: of another value).

    :meth:`Shapes.states` returns the same object for the same specs. ``steady`` has those of values that
    follow from these alone as well, once they were inferred, and ``declared`` what is declared of others.
    """

    def __init__(self, specs: list[Spec | None]) -> None:
        self.specs = specs
        self.steady: list[Spec | None] | None = None
        self.declared: list[Spec] = []

    @cached_property
    def source(self) -> Source:
        """The sizes of all persistables."""
        return joined([source_of(spec) for spec in self.specs if spec is not None])


@dataclass(slots=True)
class Inferred(ValueSpecs):
    """What is known of a step's values: the specs of persistables (``states``), and ``forms`` of what is fed.

    ``specs`` is empty before any other is inferred. ``whole``: all specs, once they were completed.
    """

    states: StateSpecs
    forms: Sequence[Form]
    whole: list[Spec] | None = None


class Shapes:
    """Infers the specs of a program again and again: what reads the same shapes is not inferred twice."""

    def __init__(self, program: ReplicaProgram) -> None:
        self._program = program
        self.known = known_values(program)
        written = {i for node in program.nodes for slot in node.outputs.values() for i in slot}
        used = {i for node in program.nodes for i in node.touches()} | {*program.fetches}
        self._states = [  # as they were before the step, or as a segment before this one left them
            (i, value.name)
            for i, value in enumerate(program.values)
            if value.kind == STATE and i in used and i not in written
        ]
        self._known_states = BoundedDict[tuple[Spec, ...], StateSpecs](_STATES_KNOWN)
        self._declared = [value.spec for value in program.values]
        self._known: dict[str, Known] = {}  # by form of a node
        self._readers: dict[Hashable, SizeReader] = {}  # by the sizes that they take
        self._nodes = nodes = [self._node(k, node) for k, node in enumerate(program.nodes)]
        taking = {node.reader: node for node in nodes if node.reader is not None}
        self._taking = [taking[reader] for reader in self._readers.values()]
        self._leading = dict[
            tuple[int, ...], list[NodeShapes]
        ]()  # by the values to which they lead
        self._first = _leading_to(nodes)
        self._rest = [node for node in nodes if node not in {*self._first}]
        self._by_elements = [i for node in nodes if node.by_elements for i in node.writes]
        self._specs_by_elements = picked(self._by_elements)
        self._entries = entries = self._followed(nodes)
        # Others make what is steady, or nothing
        self._uneven = [node for node in self._rest if any(entries[i] > 1 for i in node.writes)]
        collectives = [node for node in program.nodes if node.op in COLLECTIVES]
        self._met = sorted({i for node in collectives for i in _elements_read(node)})

    def infer(
        self,
        feeds: Sequence[Spec],
        state: Callable[[str], Spec | None],
        arrays: Sequence[np.ndarray] = (),
    ) -> list[Spec]:
        """Return the exact spec of every value (see :func:`infer_specs`).

        ``arrays`` are the feeds themselves: needed where shapes depend on elements (``known``).
        """
        return self.complete(self.begin(list(map(Form, feeds)), self.states(state), arrays))

    def states(self, state: Callable[[str], Spec | None]) -> StateSpecs:
        """Return the specs of the persistables that the program reads."""
        own = tuple([state(name) or self._declared[i] for i, name in self._states])
        known = self._known_states.get(own)
        if known is None:
            specs: list[Spec | None] = [None] * (len(self._declared) + 1)  # at -1: no operand
            for (i, _), spec in zip(self._states, own, strict=True):
                specs[i] = spec
            known = self._known_states[own] = StateSpecs(specs)
        return known

    def begin(
        self,
        forms: Sequence[Form],
        states: StateSpecs,
        arrays: Sequence[np.ndarray] = (),
    ) -> Inferred:
        """Infer what depends on elements, and what that needs; ``arrays`` as for :meth:`infer`."""
        if not self._first and not self._taking:
            return Inferred([], {}, [], states, forms)
        inferred = self._fed(forms, states, arrays)
        for node in self._first:
            node.apply(inferred)
        for node in self._taking:
            node.sizes(inferred)
        return inferred

    def infer_some(
        self,
        positions: tuple[int, ...],
        feeds: Sequence[Spec],
        state: Callable[[str], Spec | None],
        arrays: Sequence[np.ndarray],
    ) -> list[Spec]:
        """Return the exact specs of some values, by nodes that lead to them alone (see :meth:`infer`)."""
        if positions not in self._leading:
            self._leading[positions] = _leading_to(self._nodes, positions)
        inferred = self._fed(list(map(Form, feeds)), self.states(state), arrays)
        for node in self._leading[positions]:
            node.apply(inferred)
        return [inferred.specs[i] or self._declared[i] for i in positions]

    def _fed(
        self, forms: Sequence[Form], states: StateSpecs, arrays: Sequence[np.ndarray]
    ) -> Inferred:
        """Return what is known before any spec is inferred."""
        elements = {self._program.feeds[k]: arrays[k] for k in self.known.feeds}
        specs = self._specs_of(states, forms)
        return Inferred(specs, elements, [None] * len(self._readers), states, forms)

    def _specs_of(self, states: StateSpecs, forms: Sequence[Form]) -> list[Spec | None]:
        specs = (states.steady or states.specs).copy()
        for position, form in zip(self._program.feeds, forms, strict=True):
            specs[position] = form.spec
        return specs

    def complete(self, inferred: Inferred, positions: Sequence[int] = ()) -> list[Spec]:
        """Return the exact spec of every value; of these ``positions`` alone, if these are steady."""
        states = inferred.states
        steady = states.steady
        if positions and steady is not None and all([steady[i] is not None for i in positions]):
            return states.declared
        if inferred.whole is None:
            inferred.specs = inferred.specs or self._specs_of(states, inferred.forms)
            for node in self._rest if steady is None else self._uneven:
                node.apply(inferred)
            if steady is None:
                pairs = zip(inferred.specs, self._entries, strict=True)
                states.steady = [spec if entries <= 1 else None for spec, entries in pairs]
                states.declared = self._or_declared(states.steady)
            inferred.whole = self._or_declared(inferred.specs)
        return inferred.whole

    def _or_declared(self, specs: Sequence[Spec | None]) -> list[Spec]:
        """Return the spec of every value: as declared, where none was inferred."""
        both = zip(specs[:-1], self._declared, strict=True)
        return [spec or declared for spec, declared in both]

    def key(
        self, arrays: Sequence[np.ndarray], forms: Sequence[Form] | None = None
    ) -> tuple[Any, ...]:
        """Return what all specs depend on: shapes and types of feeds, and elements that must be known.

        ``forms``: those of the feeds, if they are known.
        """
        own = forms_of(arrays) if forms is None else tuple(forms)
        known = self.known.feeds
        return (*own, *[_digest(arrays[k].tobytes()) for k in known]) if known else own

    def sizes(self, inferred: Inferred) -> Sizes:
        """Return the sizes from which the specs of all values follow: of persistables, feeds and elements."""
        own = map(source_of, self._specs_by_elements(inferred.specs)) if inferred.specs else ()
        taken = map(source_of_numbers, inferred.sizes)
        fed = [form.source for form in inferred.forms]
        return Sizes.of([inferred.states.source, *own, *taken, *fed])

    def sources(self, kinds: tuple[int, ...]) -> list[int]:
        """Return which numbers of :class:`Sizes` of these kinds each value's spec follows from, as bits."""
        numbers = spans(kinds)

        @cache
        def of(entries: int) -> int:
            return sum(bits for k, bits in enumerate(numbers) if entries >> k & 1)

        return list(map(of, self._entries[:-1]))

    def _followed(self, nodes: Sequence[NodeShapes]) -> list[int]:
        """Return which sources of :meth:`sizes` each value's spec follows from, as bits."""
        entries = [0] * (len(self._declared) + 1)  # at -1: no operand
        for i, _ in self._states:
            entries[i] = 1
        readers = 1 + len(self._by_elements)  # the number of their first source
        for k, i in enumerate(self._by_elements, 1):
            entries[i] = 1 << k
        for k, i in enumerate(self._program.feeds, readers + len(self._readers)):
            entries[i] = 1 << k
        for node in nodes:
            if node.by_elements:  # what it writes is a source itself
                continue
            own = 0 if node.reader is None else 1 << readers + node.reader.number
            for i in (i for positions in node.record.inputs.values() for i in positions):
                own |= entries[i]
            for i in node.writes:
                entries[i] |= own
        return entries

    def met(self, inferred: Inferred) -> dict[int, np.ndarray]:
        """Return the elements that collectives read, by position: how many rows each rank brings."""
        return {i: inferred.elements[i] for i in self._met}

    def _node(self, number: int, record: NodeRecord) -> NodeShapes:
        """Return what infers a node; nodes of one form share the specs that they know."""
        slots = [
            [(slot, [i >= 0 for i in positions]) for slot, positions in side.items()]
            for side in (record.inputs, record.outputs)
        ]
        form = repr((record.op, record.short_attrs, slots))
        op, reader = OPS[record.op], None
        by_elements = any(i >= 0 for i in _elements_read(record))
        if by_elements and op.sizes_of is not None:
            names = op.values_read(record.attrs, record.inputs)
            read = [(slot, tuple([i for i in record.inputs[slot] if i >= 0])) for slot in names]
            key = op.sizes_of, repr(record.short_attrs), tuple(read)
            if key not in self._readers:
                self._readers[key] = SizeReader(record, len(self._readers), read)
            reader, by_elements = self._readers[key], False
        on_host = number in self.known.nodes
        return NodeShapes(
            record,
            self._program,
            self._known.setdefault(form, BoundedDict(_SHAPES_KNOWN)),
            reader,
            by_elements,
            HostNode(record, self.known.positions) if on_host else None,
        )


def _elements_read(record: NodeRecord) -> list[int]:
    """Return the positions of the values whose elements a node's shape rule reads."""
    slots = OPS[record.op].values_read(record.attrs, record.inputs)
    return [i for slot in slots for i in record.inputs[slot]]


def _digest(data: bytes) -> bytes:
    """Return what stands for data in a key: themselves, if they are short."""
    return data if len(data) <= _SHORT else blake2b(data, digest_size=_DIGEST).digest()


def _leading_to(
    nodes: Sequence[NodeShapes], values: Collection[int] | None = None
) -> list[NodeShapes]:
    """Return the nodes that lead to values (None: those that read elements, or lead to them), in order."""
    needed, positions = list[NodeShapes](), set(values or ())
    for node in reversed(nodes):
        reads = values is None and (node.by_elements or node.on_host is not None)
        if reads or not positions.isdisjoint(node.writes):
            needed.append(node)
            positions.update(i for slot in node.record.inputs.values() for i in slot)
    return needed[::-1]
