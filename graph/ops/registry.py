"""Declarations of operators, and the table of all of them.

A declaration says what an op is, never how a device computes it: a record of its slots and attributes
(Paddle's; see ``operands.py``), a rule from operand shapes to result shapes, its gradient op, a scalar
expression where one fits, and samples that the conformance suite runs. Kernels are found by op type in
``executor/kernels``::

    define(
        "dot", Dot, dot_shape, formula=dot, samples=(sample("X [4], Y [4]"),),
        slope=Op("dot_grad", DotGrad),  # or slope("x y d_out", "d_x d_y"), whose record follows from the op's
    )
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, ParamSpec

import numpy as np

from ...strategies.errors import ShapeError
from ...strategies.types import VarType
from .formula import Formula, gradient
from .lod import LodRule, shared
from .operands import (
    Limit,
    Operands,
    Slot,
    limit_of,
    lod_slot,
    parameter_name,
    record,
    slope_record,
)
from .second_order import Second, derived
from .update import Update


class Spec(NamedTuple):
    """Shape (-1: unknown until run) and element type of a value."""

    shape: tuple[int, ...]
    dtype: VarType

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


_LONG = 64  # numbers of an attribute
OFFSETS = Spec((-1,), VarType.INT64)  # of a level of sequences: one more than there are

# The elements of what a slot reads, where known
Values = Callable[[str], Sequence[np.ndarray | None]]
Elements = Mapping[str, Sequence[np.ndarray]]  # of what slots read


class Inference:
    """The operand specs and attributes of one op, as a shape rule sees them.

    ``values`` tells elements that are known before a step begins (None: while a program is built or compiled,
    and none is).
    """

    def __init__(
        self,
        op: Op,
        read: Mapping[str, Sequence[Spec | None]],
        attrs: Mapping[str, Any],
        names: Mapping[str, Sequence[str]] | None = None,
        where: str = "",
        values: Values | None = None,
        sizes: tuple[int, ...] | None = None,
    ) -> None:
        self.op = op
        self.attrs = attrs
        self.where = where
        self._values = values
        self._read = read
        self._names = names or {}
        self._sizes = sizes

    def has(self, slot: str) -> bool:
        """Tell whether the slot is in use."""
        return bool(self._read.get(slot))

    def specs(self, slot: str) -> list[Spec]:
        """Return the specs in a slot that takes any number of variables."""
        specs = list(self._read.get(slot, ()))
        if None in specs:
            self.fail(f"a variable in {slot!r} has no shape yet")
        return specs  # type: ignore[return-value]  # None was refused above

    def spec(self, slot: str) -> Spec:
        """Return the spec of a slot that must be in use."""
        specs = self._read.get(slot)
        if not specs:
            self.fail(f"the input {slot!r} is missing")
        if len(specs) > 1 or specs[0] is None:
            specs = self.specs(slot)
        return specs[0]  # type: ignore[return-value]  # None was refused above

    def shape(self, slot: str) -> tuple[int, ...]:
        """Return the shape of a slot that must be in use."""
        return self.spec(slot).shape

    def attr(self, name: str) -> Any:
        """Return an attribute."""
        return self.attrs[name]

    def key(self, names: Iterable[str]) -> Hashable | None:
        """Return the op, the specs of what it reads, and those of its attributes that have these names.

        None: an attribute is a long list.
        """
        attrs = [self.attrs[name] for name in names if name in self.attrs]
        if any(isinstance(value, list) and len(value) > _LONG for value in attrs):
            return None
        settings = [tuple(value) if isinstance(value, list) else value for value in attrs]
        return self.op.type, *((slot, *specs) for slot, specs in self._read.items()), *settings

    @property
    def exact(self) -> bool:
        """Tell whether a step is about to be bound, so that all sizes and all sequences are known."""
        return self._values is not None

    def sequences(self, slot: str) -> int:
        """Return how many sequences of the last level a slot has (-1: not known yet)."""
        levels = self._read.get(lod_slot(slot))
        if not levels:
            if self.exact:
                self.fail(
                    f"{slot!r} holds no sequences: feed it, or what it is computed from, as a LoDTensor "
                    "(fluid.create_lod_tensor) with a level of them"
                )
            return -1
        (size,) = self.specs(lod_slot(slot))[-1].shape
        return size - 1 if size > 0 else -1

    def offsets(self, slot: str) -> np.ndarray | None:
        """Return the offsets of a slot's sequences of the last level, or None if they are not known yet."""
        return None if self.sequences(slot) < 0 else self.value(lod_slot(slot), -1)

    def value(self, slot: str, position: int = 0) -> np.ndarray | None:
        """Return the elements of what a slot reads, or None if they are not known yet.

        The op declares in ``reads_values`` that its results' shapes depend on them.
        """
        return None if self._values is None else self._values(slot)[position]

    def count(self, slot: str) -> int:
        """Return how many variables a slot has."""
        return len(self._read.get(slot, ()))

    def values(self, slot: str) -> Sequence[np.ndarray | None]:
        """Return :meth:`value` of all that a slot reads."""
        return () if self._values is None else self._values(slot)

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The sizes that the op takes from elements (``Op.sizes_of``), or None if these are not known yet."""
        if self._sizes is None and self._values is not None:
            slots = self.op.values_read(self.attrs, self._read)
            read = {slot: [v for v in self._values(slot) if v is not None] for slot in slots}
            if all(len(read[slot]) == self.count(slot) for slot in slots):
                assert self.op.sizes_of is not None, "the op declares which sizes it takes"
                self._sizes = self.op.sizes_of(read, self.attrs)
        return self._sizes

    def require(self, holds: bool, problem: str) -> None:
        """Refuse the operands with ``problem`` unless ``holds``."""
        if not holds:
            self.fail(problem)

    def fail(self, problem: str | Exception) -> NoReturn:
        """Raise ShapeError: the op, the problem, the operands, and the line that built the op.

        ``problem`` may be an error of a computation, which may name the op, too.
        """
        operands = []
        for slot, specs in self._read.items():
            for i, spec in enumerate(specs):
                name = f" {self._names[slot][i]!r}" if self._names.get(slot) else ""
                operands.append(f"{slot}{name}={spec}")
        place = f" Built at {self.where}." if self.where else ""
        text = str(problem).removeprefix(f"{self.op.type}: ").removesuffix(".")
        raise ShapeError(
            f"{self.op.type}: {text} (got {', '.join(operands) or 'no operands'}).{place}"
        )


Specs = Spec | Sequence[Spec] | None
ShapeRule = Callable[[Inference], Mapping[str, Specs]]
Record = type[Operands]
Shapes = Mapping[str, tuple[int, ...]]  # by parameter
# Which result may lie where which operand does: (output slot, position, input slot, position)
Place = tuple[str, int, str, int]


class Lying(NamedTuple):
    """The values of ``slot`` lie side by side in that of the slot ``whole``: where each begins, in elements."""

    whole: str
    slot: str
    begins: Sequence[int]


@dataclass(frozen=True)
class Grad:
    """The gradient op: which forward slots it reads, and whose gradients it writes.

    ``inputs`` may name inputs and outputs of the forward op, and ``Out@GRAD`` for the gradient of an output;
    ``outputs`` are ``X@GRAD``. Where the gradient op is an ordinary op (the gradient of split is concat),
    both are mappings from its own slots to those names; names joined by ``+`` fill one slot in turn.

    Attributes are the forward op's, or what ``attrs`` makes of them; none if ``keep_attrs`` is False.
    ``each`` names a forward slot that takes any number of variables: one gradient op is made for each.
    ``exists`` tells by the forward op's attributes whether it has a gradient; ``without`` names the attribute
    that lists the variables which the gradient op does not read.
    """

    type: str
    inputs: tuple[str, ...] | Mapping[str, str]
    outputs: tuple[str, ...] | Mapping[str, str]
    keep_attrs: bool = True
    attrs: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    each: str = ""
    exists: Callable[[Mapping[str, Any]], bool] = lambda attrs: True
    without: str = ""

    @classmethod
    def of(cls, op: Op) -> Grad:
        """Return the relation to a gradient op that reads and writes what its own slots say.

        It has the forward op's attributes, if it has any.
        """
        reads, writes = (tuple(s.name for s in side) for side in (op.input_slots, op.output_slots))
        return cls(op.type, reads, writes, keep_attrs=bool(op.attrs))

    @classmethod
    def swap(cls, type: str, *operands: str, **settings: Any) -> Grad:
        """Return the relation to an op whose X is Out@GRAD and whose Out is X@GRAD; ``operands`` are the same.

        ``settings``: more of its fields.
        """
        reads = {"X": "Out@GRAD", **{slot: slot for slot in operands}}
        return cls(type, reads, {"Out": "X@GRAD"}, **settings)

    def reads(self) -> Mapping[str, str]:
        """Return the gradient op's input slots and the forward names they are filled with."""
        return self.inputs if isinstance(self.inputs, Mapping) else {s: s for s in self.inputs}

    def writes(self) -> Mapping[str, str]:
        """Return the gradient op's output slots and whose gradients they are."""
        return self.outputs if isinstance(self.outputs, Mapping) else {s: s for s in self.outputs}

    def attributes(self, forward: Mapping[str, Any]) -> dict[str, Any]:
        """Return the gradient op's attributes from the forward op's."""
        if self.attrs is not None:
            return dict(self.attrs(forward))
        return dict(forward) if self.keep_attrs else {}


def like_operands(op: Inference) -> Mapping[str, Specs]:
    """Every ``X@GRAD`` is like X, where that is in use: the rule of most gradient ops."""
    sources = ((slot.name, slot.name.removesuffix("@GRAD")) for slot in op.op.output_slots)
    return {slot: op.specs(source) for slot, source in sources if op.has(source)}


@dataclass(frozen=True)
class Op:
    """One operator's declaration; ``define`` puts it in the table."""

    type: str
    record: Record = Operands  # slots and attributes
    shape: ShapeRule = like_operands
    _: KW_ONLY
    grad: Grad | None = None  # its gradient, where another op computes it
    # its gradient op, or what makes it from this one; None once both are in the table
    slope: Op | Callable[[Op], Op] | None = None
    # f(inputs..., *, attributes...) -> expr.Expr, or one for each output; an input that may be left out is
    # a parameter whose default is None
    scalar: Callable[..., Any] | None = None
    # shapes, attributes -> shapes in which some operands and results lie beside the others for ``scalar``; a
    # result that is repeated is a sum
    aligned: Callable[[Shapes, Mapping[str, Any]], Shapes] | None = None
    # shapes, attributes -> numbers that ``scalar`` takes like attributes
    counts: Callable[[Shapes, Mapping[str, Any]], Mapping[str, Any]] | None = None
    formula: Formula | None = None  # f(record of terms) -> results by field: see ``formula.py``
    update: Update | None = None  # an optimizer's arithmetic
    # f(record of arrays) -> results by field, computed on the host: of ops whose results' sizes are read there
    host: Callable[[Any], Mapping[str, Any]] | None = None
    # output slot -> input slot it may overwrite
    in_place: Mapping[str, str] = field(default_factory=dict)
    # ... and another one, where that is some other result's
    in_place_else: Mapping[str, str] = field(default_factory=dict)
    # input slot -> the attribute, or an attribute for each number, that it replaces: ``program/known.py``
    numbers: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    # ... and other attributes that change where it is in use
    numbers_set: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    numbers_dtype: str = ""  # ... and the slot whose element type becomes the attribute ``dtype``
    # returns the op of the same record that reads such numbers in each step, where they are not known before
    in_steps: Callable[[Op], Op] | None = None
    # attributes -> input slots whose elements the shape rule reads: they must be known before a step; those
    # that a line of sizes is ``counted`` from follow from it (``shapes.py``)
    reads_values: Callable[[Mapping[str, Any]], Sequence[str]] = lambda attrs: ()
    # elements of those by slot, attributes -> the sizes that the rule takes from them, if it needs no more
    # than these; below zero: operands do not fit together
    sizes_of: Callable[[Elements, Mapping[str, Any]], tuple[int, ...]] | None = None
    reads_none_with: str = ""  # an input slot: if it is in use, the rule reads no elements
    lod: LodRule = shared  # which sequences the results have
    # specs of operands and results -> results in place of operands that depend on shapes
    places: Callable[[Inference], Sequence[Place]] | None = None
    # specs of operands and results -> which of them are parts of another one's memory, if their shapes allow it
    parts: Callable[[Inference], Lying | None] | None = None
    # output slot -> input slot with the same elements in the same order, if their numbers of elements agree
    views: Mapping[str, str] = field(default_factory=dict)
    # results in ``views`` have the first of the operand's elements, which may be more
    cuts: bool = False
    # attributes, input slots in use -> whether the elements in ``views`` keep their order
    keeps_order: Callable[[Mapping[str, Any], Container[str]], bool] = lambda attrs, slots: True
    # attributes -> output slot -> another one with the same elements, where both have one shape
    twins: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda attrs: {}
    # input slots of which kernels read the shapes alone: their memory may hold another value by then; if that
    # depends on the op's use: attributes, input slots in use -> these slots
    shapes_of: Sequence[str] | Callable[[Mapping[str, Any], Container[str]], Sequence[str]] = ()
    # input slots of which only the sequences are read: compiled programs leave out values that have some
    sequences_of: Sequence[str] = ()
    # input slots of which the result is a linear function, where no other slot holds floats: the gradient op
    # of its gradient op is the op itself
    linear: Sequence[str] = ()
    made_linear: Mapping[str, Any] = field(default_factory=dict)  # attributes that make it so
    random: bool = False  # draws numbers: depends on seed, output name, step and sample index
    # attributes -> whether operands that it may overwrite keep their elements
    only_uses: Callable[[Mapping[str, Any]], bool] = lambda attrs: False
    # attributes -> whether results depend on which rows the place has, or on how many, beyond the operands
    by_place: Callable[[Mapping[str, Any]], bool] = lambda attrs: False
    # attributes -> the input slots that an output slot depends on, for those that do not depend on all
    needs: Callable[[Mapping[str, Any]], Mapping[str, Sequence[str]]] = lambda attrs: {}
    samples: tuple[Any, ...] = ()
    refuses: tuple[Any, ...] = ()  # samples that the shape rule must turn down
    inputs: tuple[str, ...] = field(init=False)
    outputs: tuple[str, ...] = field(init=False)
    attrs: Mapping[str, Any] = field(init=False)
    input_slots: tuple[Slot, ...] = field(init=False)
    output_slots: tuple[Slot, ...] = field(init=False)
    lod_slots: tuple[Slot, ...] = field(init=False)

    def __post_init__(self) -> None:
        declared = self.record.declared()
        object.__setattr__(self, "input_slots", declared.inputs)
        object.__setattr__(self, "output_slots", declared.outputs)
        object.__setattr__(self, "lod_slots", declared.lods)
        object.__setattr__(self, "attrs", declared.attrs)
        object.__setattr__(self, "inputs", tuple(slot.text for slot in declared.inputs))
        object.__setattr__(self, "outputs", tuple(slot.text for slot in declared.outputs))
        if counted := getattr(self.shape, "counted_from", ()):
            object.__setattr__(self, "reads_values", lambda attrs: counted)

    def __reduce__(self) -> Any:
        # Programs are copied and pickled; an operator of the copy has the declaration that kernels are for.
        return (
            (declaration, (self.type,)) if declaration(self.type) is self else super().__reduce__()
        )

    def bound(
        self,
        inputs: Mapping[str, Sequence[Any]],
        outputs: Mapping[str, Sequence[Any]],
        attrs: Mapping[str, Any],
    ) -> Operands:
        """Return the record of these arrays (slot -> arrays; None for an unwanted output) and attributes."""
        values = {**self.attrs, **attrs}
        for slots, by_slot in zip(self.parameters, (inputs, outputs), strict=True):
            for slot, name, several in slots:
                arrays = by_slot.get(slot, ())
                values[name] = list(arrays) if several else (arrays[0] if arrays else None)
        return self.record.of(values)

    def settings(self, shapes: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the keyword arguments of ``scalar``: attributes, and numbers that follow from shapes."""
        return attrs if self.counts is None else {**attrs, **self.counts(shapes, attrs)}

    def values_read(self, attrs: Mapping[str, Any], slots: Container[str]) -> Sequence[str]:
        """Return the input slots, of those in use, whose elements the shape rule reads."""
        none = self.reads_none_with in slots
        return () if none else [slot for slot in self.reads_values(attrs) if slot in slots]

    def shape_slots(self, attrs: Mapping[str, Any], slots: Container[str]) -> Sequence[str]:
        """Return the input slots in use of which kernels read the shapes alone."""
        return self.shapes_of(attrs, slots) if callable(self.shapes_of) else self.shapes_of

    def filled(self, values: Mapping[str, Any]) -> Operands:
        """Return the record of these fields; other slots are empty, other attributes as declared."""
        slots = (slot for side in self.parameters for slot in side)
        empty: dict[str, Any] = {name: [] if several else None for _, name, several in slots}
        return self.record.of({**empty, **self.attrs, **values})

    def arrays(self, a: Operands) -> dict[str, Any]:
        """Return the slots of a record by field: an array, a list of them, or None."""
        fields = vars(a)
        return {name: fields[name] for name in self._slot_fields}

    @cached_property
    def is_gradient(self) -> bool:
        """Whether the results are gradients."""
        return any("@GRAD" in slot.name for slot in self.output_slots)

    @cached_property
    def needed(self) -> frozenset[str]:
        """The input slots that are always in use."""
        return frozenset(slot.name for slot in self.input_slots if not slot.optional)

    @cached_property
    def several(self) -> frozenset[str]:
        """The input slots that take any number of variables."""
        return frozenset(slot.name for slot in self.input_slots if slot.duplicable)

    @cached_property
    def limits(self) -> tuple[tuple[str, Limit], ...]:
        """The attributes that are limited; those of a gradient op are its op's."""
        kinds = {} if self.is_gradient else self.record.declared().kinds
        limits = ((name, limit_of(kind)) for name, kind in kinds.items())
        return tuple((name, limit) for name, limit in limits if limit is not None)

    @cached_property
    def _slot_fields(self) -> tuple[str, ...]:
        return tuple(name for side in self.parameters for _, name, _ in side)

    @cached_property
    def parameters(self) -> tuple[tuple[tuple[str, str, bool], ...], ...]:
        """Of the input slots, and of the output slots: name, parameter, whether it takes any number."""
        sides = ((*self.input_slots, *self.lod_slots), self.output_slots)
        return tuple(tuple((s.name, s.parameter, s.duplicable) for s in slots) for slots in sides)

    def infer(self, inference: Inference) -> dict[str, list[Spec]]:
        """Return the specs of every output slot, as lists.

        Raises:
            ShapeError: an attribute is outside its limits, the operands do not fit together, or sizes cannot
                be computed from their elements.
        """
        for name, limit in self.limits:
            value = inference.attrs[name]
            inference.require(limit.holds(value), f"{name} must {limit.text}, got {value!r}")
        try:
            return {slot: _as_list(specs) for slot, specs in self.shape(inference).items()}
        except ShapeError:
            raise
        except (ArithmeticError, IndexError, ValueError) as error:
            inference.fail(error)


def _as_list(specs: Specs) -> list[Spec]:
    if specs is None:
        return []
    return [specs] if isinstance(specs, Spec) else list(specs)


OPS: dict[str, Op] = {}
# Ops without kernels: those of which a graph holds others in their place (``blocks.py``), and those that move
# values between processes (``rpc.py``).
BLOCK_OPS: dict[str, Op] = {}
MESSAGE_OPS: dict[str, Op] = {}


def declaration(type: str) -> Op | None:
    """Return the declaration of an op that programs may hold (None: there is none)."""
    return OPS.get(type) or BLOCK_OPS.get(type) or MESSAGE_OPS.get(type)


def slope(
    reads: str, writes: str, second: Second | None = None, **settings: Any
) -> Callable[[Op], Op]:
    """Return a function that declares an op's gradient op, of slots by field (see ``slope_record``).

    ``second`` is the argument of :func:`differentiable` where it does not follow from the expression.
    """

    def declare(op: Op) -> Op:
        record = slope_record(op.record.declared(), reads, writes)
        shapes = [slot.name for slot in record.declared().inputs if f"({slot.parameter})" in reads]
        gradient_op = Op(f"{op.type}_grad", record, **{"shapes_of": shapes, **settings})
        return gradient_op if second is None else differentiable(gradient_op, second)

    return declare


def in_steps(
    samples: tuple[Any, ...],
    refuses: tuple[Any, ...] = (),
    reads: Sequence[str] = (),
    **settings: Any,
) -> Callable[[Op], Op]:
    """Return a function that declares ``<type>_at``, an op that no program holds, from the op of that type.

    Its results' shapes follow from elements of the slots ``reads`` (default: all slots of numbers).
    """

    def declare(op: Op) -> Op:
        slots = tuple(reads or op.numbers)
        return Op(
            f"{op.type}_at",
            op.record,
            op.shape,
            lod=op.lod,
            random=op.random,
            reads_values=lambda attrs: slots,
            samples=samples,
            refuses=refuses,
            **settings,
        )

    return declare


P = ParamSpec("P")


def _defining(declare: Callable[P, Op], table: dict[str, Op]) -> Callable[P, Op]:
    """Return a function that makes a declaration, adds it to a table, and returns it."""

    def define(*slots: P.args, **settings: P.kwargs) -> Op:
        return register(declare(*slots, **settings), table)

    return define


define = _defining(Op, OPS)
define_block = _defining(Op, BLOCK_OPS)
define_message = _defining(Op, MESSAGE_OPS)


def register(op: Op, table: dict[str, Op] = OPS) -> Op:
    """Add a declaration to a table and return it, and that of its gradient op (see :meth:`Grad.of`).

    The gradient op of an op with a formula gets the derived formula unless it has its own. A gradient op that
    computes element by element gets a gradient op, too, if it names none.
    """
    slope = op.slope
    if slope is not None:
        slope = slope if isinstance(slope, Op) else slope(op)
        if op.formula is not None and slope.formula is None:
            slope = replace(slope, formula=gradient(op.formula, op.record))
        second = _second_order(slope)
        slope = slope if second is None else differentiable(slope, second)
        slope = replace(slope, grad=again(op)) if op.linear else slope
        op = replace(op, grad=Grad.of(slope), slope=None)
    for declared in (op, slope):
        if declared is not None:
            assert declared.type not in table, f"{declared.type} is declared twice"
            table[declared.type] = declared
    if op.in_steps is not None:
        register(op.in_steps(op))
    return op


def again(op: Op) -> Grad:
    """Return the gradient of a linear op's gradient op: the op, of the gradients that come down."""
    reads = {s.name: s.name + "@GRAD@GRAD" * (s.name in op.linear) for s in op.input_slots}
    result = op.output_slots[0].name

    def attributes(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**{name: attrs[name] for name in op.attrs if name in attrs}, **op.made_linear}

    return Grad(op.type, reads, {result: f"{result}@GRAD@GRAD"}, attrs=attributes)


def _second_order(slope: Op) -> Second | None:
    shared = slope.aligned is not None or slope.counts is not None
    if slope.scalar is None or slope.grad is not None or shared:
        return None
    slots, results = ([s.name for s in side] for side in (slope.input_slots, slope.output_slots))
    numbers = tuple(slope.numbers)
    return derived(slope.scalar, slots, results, slope.attrs, always=numbers)


def differentiable(
    slope: Op,
    second: Second,
    *,
    exists: Callable[[Mapping[str, Any]], bool] = lambda attrs: True,
    **settings: Any,
) -> Op:
    """Add the gradient op of a gradient op to the table, and return the latter with it.

    ``settings`` are those of the new declaration; for ``exists`` see :class:`Grad`.
    """
    parameters = {slot.name: slot.parameter for slot in slope.input_slots}
    results = {f"{slot.name}@GRAD" for slot in slope.output_slots}
    above = {slot for slot, of in second.reads.items() if of in results}
    optional = {*slope.numbers, *second.optional, *(above if len(above) > 1 else ())}

    def read(slot: str) -> Slot:
        parameter = parameters[slot] if slot in slope.numbers else parameter_name(slot)
        return Slot(slot, False, slot in optional, parameter)

    reads = map(read, second.reads)
    writes = [Slot(slot, False, True, parameter_name(slot)) for slot in second.writes]
    declared = Op(
        f"{slope.type}_grad",
        record("SecondOrder", reads, writes, slope.attrs),
        _like(second.like),
        numbers=slope.numbers,
        scalar=second.scalar,
        **settings,
    )
    register(declared)
    return replace(slope, grad=Grad(declared.type, second.reads, second.writes, exists=exists))


def _like(sources: Mapping[str, Sequence[str]]) -> ShapeRule:
    """Each output is like the first of some inputs that is in use."""

    def rule(op: Inference) -> Mapping[str, Specs]:
        present = {slot: list(filter(op.has, of)) for slot, of in sources.items()}
        return {slot: op.spec(of[0]) for slot, of in present.items() if of}

    return rule
