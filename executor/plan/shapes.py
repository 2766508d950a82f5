"""Exact shapes of a program's values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from hashlib import blake2b
from itertools import accumulate, count, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ...graph.ir.graph import STATE
from ...graph.ir.known_values import known_values
from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.ops.collective import COLLECTIVES
from ...graph.ops.registry import OPS, Elements, Inference, Op, Spec, Values
from ...strategies.types import to_numpy
from ..device.device import Device
from ..host.arena import spec_of
from ..host.bounded_dict import BoundedDict
from ..host.numbered import packer
from ..kernels.registry import bind

_SHAPES_KNOWN = 1024  # kept per kind of node: loops have rounds of as many sizes
_STATES_KNOWN = 64  # shapes that all persistables of a program have at once
_SHORT = 32  # bytes
_COMPUTED_KNOWN = 64  # sizes of a node that the host computes
_numbers = count()  # of kinds
_widths: dict[int, int] = {}  # how many sizes what is of a kind tells
_Take = Callable[[Mapping[int, np.ndarray]], tuple[int, ...]]  # returns sizes
_Known = BoundedDict[Any, list[Spec | None]]  # what is read -> what is written


def infer_specs(
    program: ReplicaProgram, feeds: Sequence[Spec], state: Callable[[str], Spec | None]
) -> list[Spec]:
    """Return the exact spec of every value, given what is fed and what the persistables hold.

    Raises:
        ShapeError: what is fed does not fit the program; the message names the op and the user's line.
    """
    return Shapes(program).infer(feeds, state)


class _Computation(NamedTuple):
    """How the host computes a node: arrays for its operands and results, by position, and the calls."""

    operands: list[tuple[int, np.ndarray]]
    results: list[tuple[int, np.ndarray]]
    calls: Sequence[Callable[[], Any]]


class StateSpecs:
    """The specs of the persistables that a program reads, by position (None: of another value).

    :meth:`Shapes.states` returns the same object for the same specs. ``steady`` has those of values that
    follow from these alone as well, once they were inferred, and ``declared`` what is declared of others.
    """

    __slots__ = ("declared", "specs", "steady")

    def __init__(self, specs: list[Spec | None]) -> None:
        self.specs = specs
        self.steady: list[Spec | None] | None = None
        self.declared: list[Spec] = []


class Sizes(NamedTuple):
    """What the specs of all values follow from: ``numbers`` (int64), and the ``kinds`` of what they tell.

    Loops over 0 and 1 elements have forms of their own: such values are of other kinds.
    """

    kinds: tuple[int, ...]
    numbers: bytes


_Telling = Spec | StateSpecs | tuple[int, ...] | None  # what tells sizes


@dataclass(slots=True)
class Inferred:
    """Specs of a program's values, by position (None: not inferred yet), and the elements that are known.

    ``states`` are those of persistables, ``feeds`` those of what is fed. ``specs`` is None before any other is
    inferred. ``sizes`` is what rules take from the elements; ``whole``: all specs, once they were completed.
    """

    states: StateSpecs
    feeds: Sequence[Spec]
    specs: list[Spec | None] | None
    elements: dict[int, np.ndarray]
    sizes: list[tuple[int, ...] | None]
    whole: list[Spec] | None = None


class _Rule(NamedTuple):
    """What shapes are inferred by, of one node: the positions of what it writes, and names of operands by slot.

    ``read`` picks the specs that it reads, ``slots`` those of each slot. ``places`` are the slots and numbers
    of what it writes, ``known`` is what was inferred of nodes like it. ``sizes`` is the number of what it takes
    from elements (None: nothing); ``by_elements``: they tell in another way. ``computed``: the host knows what
    it writes, too.
    """

    record: NodeRecord
    op: Op
    slots: Sequence[tuple[str, Callable[[Sequence[Any]], Any]]]
    read: Callable[[Sequence[Any]], Any]
    writes: list[int]
    places: list[tuple[str, int]]
    names: dict[str, list[str]]
    known: _Known
    sizes: int | None
    by_elements: bool
    computed: bool
    bound: BoundedDict[Any, _Computation]


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
        self._known: dict[str, _Known] = {}
        self._takes: list[_Take] = []
        self._numbers: dict[Hashable, int] = {}  # of those, by what they take
        rules = [self._rule(k, node) for k, node in enumerate(program.nodes)]
        by_sizes = {rule.sizes: rule for rule in rules if rule.sizes is not None}
        self._taking = [by_sizes[number] for number in range(len(self._takes))]
        self._rules = rules
        self._leading = dict[tuple[int, ...], list[_Rule]]()  # by what they lead to
        self._first = _leading_to(rules)
        first = set(map(id, self._first))
        self._rest = [rule for rule in rules if id(rule) not in first]
        by_elements = (i for rule in rules if rule.by_elements for i in rule.writes)
        self._roots = *program.feeds, *by_elements
        self._telling = picked(self._roots)
        self._entries = entries = self._followed(rules)
        # Others make what is steady, or nothing
        self._uneven = [r for r in self._rest if any(entries[i] > 1 for i in r.writes)]
        self._met = sorted(
            {
                i
                for rule in rules
                if rule.record.op in COLLECTIVES
                for slot in rule.op.values_read(rule.record.attrs, rule.record.inputs)
                for i in rule.record.inputs[slot]
            }
        )

    def infer(
        self,
        feeds: Sequence[Spec],
        state: Callable[[str], Spec | None],
        arrays: Sequence[np.ndarray] = (),
    ) -> list[Spec]:
        """Return the exact spec of every value (see :func:`infer_specs`).

        ``arrays`` are the feeds themselves: needed where shapes depend on elements (``known``).
        """
        return self.complete(self.begin(feeds, self.states(state), arrays))

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
        feeds: Sequence[Spec],
        states: StateSpecs,
        arrays: Sequence[np.ndarray] = (),
    ) -> Inferred:
        """Infer what depends on elements, and what that needs; takes what :meth:`infer` does."""
        if not self._first and not self._taking:
            return Inferred(states, feeds, None, {}, [])
        inferred = self._fed(feeds, states, arrays)
        self._apply(self._first, inferred)
        for rule in self._taking:
            self._taken(rule, inferred)
        return inferred

    def infer_some(
        self,
        positions: tuple[int, ...],
        feeds: Sequence[Spec],
        state: Callable[[str], Spec | None],
        arrays: Sequence[np.ndarray],
    ) -> list[Spec]:
        """Return the exact specs of some values, by rules that lead to them alone (see :meth:`infer`)."""
        if positions not in self._leading:
            self._leading[positions] = _leading_to(self._rules, positions)
        inferred = self._fed(feeds, self.states(state), arrays)
        self._apply(self._leading[positions], inferred)
        specs = inferred.specs or ()
        return [specs[i] or self._declared[i] for i in positions]

    def _fed(
        self, feeds: Sequence[Spec], states: StateSpecs, arrays: Sequence[np.ndarray]
    ) -> Inferred:
        """Return what is known before any rule is applied."""
        elements = {self._program.feeds[k]: arrays[k] for k in self.known.feeds}
        sizes: list[tuple[int, ...] | None] = [None] * len(self._takes)
        return Inferred(states, feeds, self._specs_of(states, feeds), elements, sizes)

    def _specs_of(self, states: StateSpecs, feeds: Sequence[Spec]) -> list[Spec | None]:
        specs = (states.steady or states.specs).copy()
        for position, spec in zip(self._program.feeds, feeds, strict=True):
            specs[position] = spec
        return specs

    def complete(self, inferred: Inferred, positions: Sequence[int] = ()) -> list[Spec]:
        """Return the exact spec of every value; of these ``positions`` alone, if these are steady."""
        steady = inferred.states.steady
        if positions and steady is not None and all([steady[i] is not None for i in positions]):
            return inferred.states.declared
        if inferred.whole is None:
            if inferred.specs is None:
                inferred.specs = self._specs_of(inferred.states, inferred.feeds)
            states, specs = inferred.states, inferred.specs
            self._apply(self._rest if states.steady is None else self._uneven, inferred)
            if states.steady is None:
                pairs = zip(specs, self._entries, strict=True)
                states.steady = [spec if entries <= 1 else None for spec, entries in pairs]
                both = zip(states.steady[:-1], self._declared, strict=True)
                states.declared = [spec or declared for spec, declared in both]
            both = zip(specs[:-1], self._declared, strict=True)
            inferred.whole = [spec or declared for spec, declared in both]
        return inferred.whole

    def _apply(self, rules: Sequence[_Rule], inferred: Inferred) -> None:
        specs, elements = inferred.specs, inferred.elements
        assert specs is not None, "those of feeds are there"
        for rule in rules:
            if rule.by_elements:  # which hardly ever come again
                results = self._inferred(rule, specs, elements)
            else:
                sizes = None if rule.sizes is None else self._taken(rule, inferred)
                key = rule.read(specs), sizes
                known = rule.known.get(key)
                if known is None:
                    known = rule.known[key] = self._inferred(rule, specs, elements, sizes)
                results = known
            for i, result in zip(rule.writes, results, strict=True):
                if result is not None:
                    specs[i] = result
            if rule.computed:
                self._compute(rule, specs, elements)

    def key(self, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        """Return what all specs depend on: shapes and types of feeds, and elements that must be known."""
        specs = tuple([spec_of(array) for array in arrays])
        elements = tuple([_digest(arrays[k].tobytes()) for k in self.known.feeds])
        return (*specs, elements) if elements else specs

    def sizes(self, inferred: Inferred) -> Sizes:
        """Return what the specs of all values follow from, and what is taken from elements."""
        specs = inferred.specs
        own = inferred.feeds if specs is None else self._telling(specs)
        telling = [_kind_and_sizes(each) for each in (inferred.states, *own, *inferred.sizes)]
        kinds, numbers = zip(*telling, strict=True)
        return Sizes(kinds, b"".join(numbers))

    def sources(self, kinds: tuple[int, ...]) -> list[int]:
        """Return which numbers of :class:`Sizes` of these kinds each value's spec follows from, as bits."""
        ends = [0, *accumulate(_widths[kind] for kind in kinds)]
        numbers = [(1 << end) - (1 << begin) for begin, end in pairwise(ends)]

        @cache
        def of(entries: int) -> int:
            return sum(bits for k, bits in enumerate(numbers) if entries >> k & 1)

        return list(map(of, self._entries[:-1]))

    def _followed(self, rules: Sequence[_Rule]) -> list[int]:
        """Return what tells sizes that each value's spec follows from, as bits: states, values, elements."""
        entries = [0] * (len(self._declared) + 1)  # at -1: no operand
        for i, _ in self._states:
            entries[i] = 1
        for k, i in enumerate(self._roots, 1):
            entries[i] = 1 << k
        for rule in rules:
            if rule.by_elements:  # what it writes tells sizes itself
                continue
            own = 0 if rule.sizes is None else 1 << 1 + len(self._roots) + rule.sizes
            for i in (i for positions in rule.record.inputs.values() for i in positions):
                own |= entries[i]
            for i in rule.writes:
                entries[i] |= own
        return entries

    def met(self, inferred: Inferred) -> dict[int, np.ndarray]:
        """Return the elements that collectives read, by position: how many rows each rank brings."""
        return {i: inferred.elements[i] for i in self._met}

    def _rule(self, number: int, record: NodeRecord) -> _Rule:
        values = self._program.values
        slots = [
            [(slot, [i >= 0 for i in positions]) for slot, positions in side.items()]
            for side in (record.inputs, record.outputs)
        ]
        form = repr((record.op, record.attrs, slots))
        names = {
            slot: ["" if i < 0 else values[i].name for i in positions]
            for slot, positions in record.inputs.items()
        }
        op = OPS[record.op]
        telling = op.values_read(record.attrs, record.inputs)
        number_of_sizes: int | None = None
        by_elements = any(i >= 0 for slot in telling for i in record.inputs[slot])
        if by_elements and op.sizes_of is not None:
            read = [(slot, tuple([i for i in record.inputs[slot] if i >= 0])) for slot in telling]
            key = op.sizes_of, repr(record.attrs), tuple(read)
            number_of_sizes = self._numbers.setdefault(key, len(self._takes))
            by_elements = False
            if number_of_sizes == len(self._takes):
                picks = [(slot, picked(positions)) for slot, positions in read]
                self._takes.append(partial(_take, op.sizes_of, picks, record.attrs))
        return _Rule(
            record,
            op,
            [(slot, picked(positions)) for slot, positions in record.inputs.items()],
            picked([i for positions in record.inputs.values() for i in positions]),
            [i for positions in record.outputs.values() for i in positions if i >= 0],
            [(s, k) for s, ids in record.outputs.items() for k, i in enumerate(ids) if i >= 0],
            names,
            self._known.setdefault(form, BoundedDict(_SHAPES_KNOWN)),
            number_of_sizes,
            by_elements,
            number in self.known.nodes,
            BoundedDict(_COMPUTED_KNOWN),
        )

    def _inferred(
        self,
        rule: _Rule,
        specs: Sequence[Spec | None],
        elements: Mapping[int, np.ndarray],
        sizes: tuple[int, ...] | None = None,
    ) -> list[Spec | None]:
        """Return the specs of what a node writes, where its rule tells them."""
        record, known = rule.record, elements.get

        def values_of(slot: str) -> list[np.ndarray | None]:
            return [known(i) for i in record.inputs.get(slot, ())]

        results = rule.op.infer(self._inference(rule, specs, values_of, sizes))
        return [
            results[slot][k] if slot in results and k < len(results[slot]) else None
            for slot, k in rule.places
        ]

    def _inference(
        self,
        rule: _Rule,
        specs: Sequence[Spec | None],
        values: Values | None = None,
        sizes: tuple[int, ...] | None = None,
    ) -> Inference:
        """Return what the rule of a node is given: the specs, names and elements of what it reads."""
        read = {slot: pick(specs) for slot, pick in rule.slots}
        record = rule.record
        return Inference(rule.op, read, record.attrs, rule.names, record.where, values, sizes)

    def _taken(self, rule: _Rule, inferred: Inferred) -> tuple[int, ...]:
        """Return what a rule takes from elements, and others that take the same."""
        number = rule.sizes
        assert number is not None, "the rule takes sizes"
        sizes = inferred.sizes[number]
        if sizes is None:
            try:
                sizes = inferred.sizes[number] = self._takes[number](inferred.elements)
            except (ArithmeticError, IndexError, ValueError) as error:
                self._inference(rule, inferred.specs or ()).fail(error)
        return sizes

    def _compute(
        self, rule: _Rule, specs: Sequence[Spec | None], elements: dict[int, np.ndarray]
    ) -> None:
        """Compute on the host what a node writes, from elements that are known.

        Raises:
            ShapeError: these are none that the op takes.
        """
        key = rule.read(specs), tuple([specs[i] for i in rule.writes])
        bound = rule.bound.get(key)
        if bound is None:
            bound = rule.bound[key] = self._bind(rule.record, specs, elements)
        for i, array in bound.operands:
            array[...] = elements[i]
        try:
            for call in bound.calls:
                call()
        except (ArithmeticError, IndexError, ValueError) as error:
            self._inference(rule, specs).fail(error)
        for i, array in bound.results:
            elements[i] = array.copy()

    def _bind(
        self,
        record: NodeRecord,
        specs: Sequence[Spec | None],
        elements: Mapping[int, np.ndarray],
    ) -> _Computation:
        """Bind a node's kernel to arrays of its own.

        It is given memory for all results, unless they need different operands.
        """
        apart = bool(OPS[record.op].needs(record.attrs))
        outputs: dict[str, list[np.ndarray | None]] = {}
        results: list[tuple[int, np.ndarray]] = []
        for slot, positions in record.outputs.items():
            outputs[slot] = []
            for i in positions:
                known = i in self.known.positions
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
        copied = [(i, array) for i, array in operands.items() if i in elements]
        return _Computation(copied, results, calls)


def _take(
    sizes_of: Callable[[Elements, Mapping[str, Any]], tuple[int, ...]],
    slots: Sequence[tuple[str, Callable[[Any], tuple[Any, ...]]]],
    attrs: Mapping[str, Any],
    elements: Mapping[int, np.ndarray],
) -> tuple[int, ...]:
    """Return the sizes that an op takes from elements; ``slots``: names, and what picks theirs."""
    return sizes_of({slot: pick(elements) for slot, pick in slots}, attrs)


def _digest(data: bytes) -> bytes:
    """Return what stands for data in a key: themselves, if they are short."""
    return data if len(data) <= _SHORT else blake2b(data, digest_size=_SHORT).digest()


def _shaped(spec: Spec | None) -> np.ndarray:
    """Return an operand whose elements do not matter, in the memory of one element."""
    assert spec is not None, "what known values read has a shape"
    return np.broadcast_to(np.zeros((), to_numpy(spec.dtype)), spec.shape)


def _leading_to(rules: Sequence[_Rule], values: Collection[int] | None = None) -> list[_Rule]:
    """Return the rules that lead to values (None: those that read elements, or lead to them), in order."""
    needed, positions = list[_Rule](), set(values or ())
    for rule in reversed(rules):
        reads = values is None and (rule.by_elements or rule.computed)
        if reads or not positions.isdisjoint(rule.writes):
            needed.append(rule)
            positions.update(i for slot in rule.record.inputs.values() for i in slot)
    return needed[::-1]


def picked(positions: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what picks the values at these positions, as a tuple."""
    if len(positions) > 1:
        return itemgetter(*positions)
    if not positions:
        return lambda values: ()
    (position,) = positions
    return lambda values: (values[position],)


@lru_cache(maxsize=1 << 12)
def _kind_and_sizes(telling: _Telling) -> tuple[int, bytes]:
    """Return a number for the kind of what tells sizes, and these (int64)."""
    if isinstance(telling, Spec):
        sizes = telling.shape
        kind = telling.dtype, *[n if n < 2 else 2 for n in sizes]
        width = len(sizes) + 1
        return _kind(kind, width), packer(width)(*sizes, math.prod(sizes))
    if isinstance(telling, StateSpecs):
        each = [_kind_and_sizes(spec) for spec in telling.specs if spec is not None]
        kinds = tuple([kind for kind, _ in each])
        width = sum(_widths[kind] for kind in kinds)
        return _kind((StateSpecs, kinds), width), b"".join([sizes for _, sizes in each])
    if telling is None:
        return _kind(None, 0), b""
    width = len(telling)
    return _kind((None, *[n if n < 2 else 2 for n in telling]), width), packer(width)(*telling)


@cache
def _kind(key: Hashable, width: int) -> int:
    """Return a number for what tells so many sizes, the same for the same key: it is hashed in no time."""
    number = next(_numbers)
    _widths[number] = width
    return number
