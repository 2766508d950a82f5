"""How an op becomes jax calls: a table of lowerings, scalar expressions, and gradients by differentiation.

A lowering is a function of :class:`Operands` that returns arrays by output slot::

    @lowering("softmax")
    def softmax(x):
        return {"Out": jax.nn.softmax(x["X"], x.attr("axis"))}

Only tracing runs it, so it need not be fast, and it may be called with anything jax traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops.expr import Expr
from ....graph.ops.formula import Term, in_order, outside, slices
from ....graph.ops.pointwise import arguments
from ....graph.ops.region import REGION, Body
from ....graph.ops.registry import OPS, Op, Spec
from ....strategies.types import LOW, VarType, to_numpy
from ...codegen.array_calls import trace
from ...codegen.formula_trace import traced
from ..registry import of_floats
from .later import jax, jnp, special

Arrays = Mapping[str, Sequence[Any]]
Lowering = Callable[["Operands"], Mapping[str, Any]]
LOWERINGS: dict[str, tuple[Lowering, Callable[[Node], bool] | None]] = {}
DIFFERENTIATED: dict[str, str] = {}  # gradient op -> the op whose lowering is differentiated


@dataclass(frozen=True)
class Check:
    """A number that must lie below ``limit``, and not below 0; else the step fails with ``problem``."""

    value: Any
    limit: int
    problem: str


@dataclass(frozen=True)
class Operands:
    """What a lowering may look at: arrays by slot, attributes, specs of what it makes."""

    arrays: Arrays
    attrs: Mapping[str, Any]
    outputs: Mapping[str, Sequence[Spec | None]]
    checks: list[Check] = field(default_factory=list)

    def __getitem__(self, slot: str) -> Any:
        """Return the array in a slot, or None if the slot is not in use."""
        arrays = self.arrays.get(slot, ())
        return arrays[0] if arrays else None

    def many(self, slot: str) -> Sequence[Any]:
        """Return the arrays of a slot that takes any number."""
        return self.arrays.get(slot, ())

    def attr(self, name: str) -> Any:
        """Return an attribute."""
        return self.attrs[name]

    def wants(self, slot: str) -> bool:
        """Tell whether the result is read."""
        return any(spec is not None for spec in self.outputs.get(slot, ()))

    def shape(self, slot: str) -> tuple[int, ...]:
        """Return the shape of a result."""
        spec = self.outputs[slot][0]
        assert spec is not None, slot
        return spec.shape

    def dtype(self, slot: str) -> Any:
        """Return the element type of a result."""
        spec = self.outputs[slot][0]
        assert spec is not None, slot
        return to_numpy(spec.dtype)

    def check_rows(
        self, op: str, index: Any, rows: int, what: str = "index", of: str = "rows"
    ) -> None:
        """Let the step fail if an index is outside ``rows``; the error calls them ``what`` and ``of``."""
        if index.size:
            low, high = index.min(), index.max()
            worst = jnp.where(low < 0, low, high)
            self.checks.append(Check(worst, rows, outside(op, rows, what, of)))


def lowering(
    *op_types: str, takes: Callable[[Node], bool] | None = None, slope: bool = False
) -> Callable[[Lowering], Lowering]:
    """Register a lowering of ops; ``slope``: their gradients are its derivative.

    ``takes`` tells for which nodes it holds, gradients included (None: for all).
    """

    def register(function: Lowering) -> Lowering:
        for op_type in op_types:
            LOWERINGS[op_type] = (function, takes)
            grad = OPS[op_type].grad
            if slope and grad is not None:
                DIFFERENTIATED[grad.type] = op_type
        return function

    return register


def can_lower(node: Node) -> bool:
    """Tell whether a node can be part of a region (or is one)."""
    op = OPS[node.op]
    if node.op == REGION:
        return True
    if op.reads_values(node.attrs) or (op.lod_slots and op.needs(node.attrs)):
        return False  # it takes part in what is known before a step
    if any(value.spec.dtype in LOW for value in (*node.reads(), *node.writes())):
        return False  # XLA would round inside
    forward = DIFFERENTIATED.get(node.op, node.op)
    if forward in LOWERINGS:
        takes = LOWERINGS[forward][1]
        return not op.random and (takes is None or takes(node))
    if op.formula is not None:
        return not op.random
    return op.scalar is not None and not op.random and of_floats(node)


def lower(
    op_type: str,
    arrays: Arrays,
    attrs: Mapping[str, Any],
    outputs: Mapping[str, Sequence[Spec | None]],
    checks: list[Check],
) -> dict[str, list[Any]]:
    """Return the arrays that a node makes, by slot, in the dtypes that it is to make."""
    operands = Operands(arrays, attrs, outputs, checks)
    if op_type in DIFFERENTIATED:
        results = _differentiated(OPS[DIFFERENTIATED[op_type]], operands)
    elif op_type in LOWERINGS:
        results = LOWERINGS[op_type][0](operands)
    elif OPS[op_type].formula is not None:
        results = by_formula(OPS[op_type], operands)
    else:
        results = _by_expression(OPS[op_type], operands)
    by_slot: dict[str, list[Any]] = {}
    for slot, specs in outputs.items():
        result = results.get(slot, ())
        values = list(result) if isinstance(result, (list, tuple)) else [result]
        values += [None] * (len(specs) - len(values))
        by_slot[slot] = [_as(array, spec) for array, spec in zip(values, specs, strict=False)]
    return by_slot


def lower_body(
    body: Body, values: dict[int, Any], specs: Mapping[int, Spec], checks: list[Check]
) -> None:
    """Add what each node of a region makes to ``values``, which begin with its operands."""
    for node in body:
        arrays = {
            slot: [values[i] for i in numbers if i >= 0] for slot, numbers in node["inputs"].items()
        }
        outputs = {
            slot: [specs[i] if i >= 0 else None for i in numbers]
            for slot, numbers in node["outputs"].items()
        }
        results = lower(node["op"], arrays, node["attrs"], outputs, checks)
        for slot, numbers in node["outputs"].items():
            values.update({i: a for i, a in zip(numbers, results[slot], strict=True) if i >= 0})


def _as(array: Any, spec: Spec | None) -> Any:
    """Return a result in the declared form; what a lowering leaves out has no elements, or is not read."""
    if spec is None:
        return None
    if array is None:
        assert 0 in spec.shape, f"a result of {spec} is not lowered"
        return jnp.zeros(spec.shape, to_numpy(spec.dtype))
    array = jnp.asarray(array, to_numpy(spec.dtype))
    return array.reshape(spec.shape) if array.ndim else jnp.broadcast_to(array, spec.shape)


def _by_expression(op: Op, operands: Operands) -> Mapping[str, Any]:
    arrays: dict[str, Any] = {
        slot.parameter: list(operands.many(slot.name)) if slot.duplicable else operands[slot.name]
        for slot in op.input_slots
    }
    unused = [name for name, array in arrays.items() if array is None]
    written = [slot for slot in op.output_slots if operands.wants(slot.name)]
    shapes = {slot.parameter: operands.shape(slot.name) for slot in written}
    settings: Mapping[str, Any] = operands.attrs
    if op.aligned is not None or op.counts is not None:
        read = {name: array.shape for name, array in arrays.items() if array is not None}
        settings = op.settings({**read, **shapes}, settings)
        views = {} if op.aligned is None else op.aligned({**read, **shapes}, settings)
        arrays |= {name: arrays[name].reshape(views[name]) for name in read if name in views}
        shapes |= {name: views[name] for name in shapes if name in views}
    assert op.scalar is not None
    roots = trace(op.scalar, settings, unused)
    chosen = [root for root, slot in zip(roots, op.output_slots, strict=True) if slot in written]
    values = evaluate_all(chosen, arrays)
    return {
        slot.name: _summed(root, value, shapes[slot.parameter], arrays)
        for root, value, slot in zip(chosen, values, written, strict=True)
    }


def _summed(root: Expr, value: Any, shape: tuple[int, ...], arrays: Mapping[str, Any]) -> Any:
    """Return a value in a shape: repeated, or summed where it has one element for several."""
    read = (arrays[name].shape for name in arguments([root]))
    value = jnp.broadcast_to(value, jnp.broadcast_shapes(shape, *read))
    over = tuple(i for i, size in enumerate(shape) if size == 1 != value.shape[i])
    return value.sum(over, keepdims=True) if over else value


def by_formula(op: Op, operands: Operands) -> Mapping[str, Any]:
    """Return the results of an op's formula, by slot."""
    fields = dict(operands.attrs)
    sides = zip(op.parameters, (operands.arrays, operands.outputs), strict=True)
    for slots, by_slot in sides:
        for slot, name, several in slots:
            values = [_shaped(value) for value in by_slot.get(slot, ())]
            fields[name] = values if several else next(iter(values), None)
    results, arrays = traced(op, op.record.of(fields))
    known: dict[int, Any] = {}
    for term in in_order(root for root, _, _ in results):
        args = [known[id(arg)] for arg in term.args]
        known[id(term)] = _of_term(op, operands, term, args, arrays)
    slots_made: dict[str, list[Any]] = {
        slot: [None] * len(specs) for slot, specs in operands.outputs.items()
    }
    for root, _, (slot, k) in results:
        slots_made[slot][k] = known[id(root)]
    return slots_made


def _shaped(value: Any) -> Any:
    """Return what stands for a result that is to be made: its shape and element type."""
    return (
        jax.ShapeDtypeStruct(value.shape, to_numpy(value.dtype))
        if isinstance(value, Spec)
        else value
    )


def _of_term(
    op: Op, operands: Operands, term: Term, args: list[Any], arrays: Mapping[str, Any]
) -> Any:
    options = term.options
    match term.fn:
        case "arg":
            return arrays[options]
        case "number":
            return jnp.asarray(options, term.dtype)
        case "table":
            return jnp.asarray(options)
        case "constant":
            return args[0]
        case "cast":
            return args[0].astype(term.dtype)
        case "sum" | "max" | "min":
            return getattr(jnp, term.fn)(args[0], options, keepdims=True)
        case "reshape":
            return args[0].reshape(term.shape)
        case "transpose":
            return args[0].transpose(options)
        case "broadcast":
            return jnp.broadcast_to(args[0], term.shape)
        case "slice":
            return args[0][slices(options)]
        case "place":
            whole = jnp.zeros(term.shape, term.dtype)
            for part, cuts in zip(args, options, strict=True):
                whole = whole.at[slices(cuts)].set(part)
            return whole
        case "concat":
            return jnp.concatenate(args, options)
        case "inverse":
            return jnp.linalg.inv(args[0])
        case "cholesky":
            return jnp.linalg.cholesky(args[0])
        case "rows":
            return jnp.take(args[0], args[1], axis=1)
        case "row_sums":
            return jnp.zeros(term.shape, term.dtype).at[:, args[0]].add(args[1])
        case "checked":
            *limits, named = options
            operands.check_rows(named or op.type, args[0], *limits)
            return args[0]
        case "offsets":
            sums = jnp.cumsum(args[0], dtype=term.dtype)
            return jnp.concatenate([jnp.zeros(1, term.dtype), sums])
        case "segments":
            rows = jnp.arange(term.shape[0])
            return jnp.searchsorted(args[0][1:], rows, side="right").astype(term.dtype)
        case "segment_argmax":
            return _segment_argmax(*args).astype(term.dtype)
        case "argmax":
            return jnp.argmax(args[0], options).astype(term.dtype)
        case "erf":
            return special.erf(args[0])
    return getattr(jnp, term.fn)(*args)


def _segment_argmax(offsets: Any, values: Any) -> Any:
    """Return the first row of the largest element, by sequence and column; -1 of no rows."""
    rows, count = jnp.arange(values.shape[0]), offsets.shape[0] - 1
    number = jnp.searchsorted(offsets[1:], rows, side="right")
    largest = jnp.full((count, values.shape[1]), -jnp.inf, values.dtype).at[number].max(values)
    position = jnp.where(values == largest[number], rows[:, None], rows.size)
    first = jnp.full(largest.shape, rows.size).at[number].min(position)
    return jnp.where(first == rows.size, -1, first)


def evaluate(root: Expr, arrays: Mapping[str, Any]) -> Any:
    """Return the value of a scalar expression on arrays, by operand name."""
    return evaluate_all([root], arrays)[0]


def evaluate_all(roots: Iterable[Expr], arrays: Mapping[str, Any]) -> list[Any]:
    """Return the values of expressions that share parts."""
    whole = all(a.dtype.kind in "iu" for a in arrays.values() if a is not None)
    known: dict[int, Any] = {}

    def value(node: Expr) -> Any:
        if id(node) not in known:
            known[id(node)] = _apply(node, [value(arg) for arg in node.args], arrays, whole)
        return known[id(node)]

    return [value(root) for root in roots]


def _apply(node: Expr, args: list[Any], arrays: Mapping[str, Any], whole: bool) -> Any:
    if node.fn == "arg":
        return arrays[node.value]
    if node.fn == "const":
        number = node.value
        return int(number) if whole and float(number).is_integer() else number
    if node.fn == "erf":
        return special.erf(*args)
    return getattr(jnp, node.fn)(*args)


def _differentiated(forward: Op, operands: Operands) -> Mapping[str, Any]:
    """Return the gradients of the forward lowering's results, weighed with the gradients given."""
    wanted = {
        slot.removesuffix("@GRAD"): specs
        for slot, specs in operands.outputs.items()
        if operands.wants(slot)
    }
    seeds = {
        slot.removesuffix("@GRAD"): list(arrays)
        for slot, arrays in operands.arrays.items()
        if slot.endswith("@GRAD")
    }
    fixed = {
        slot.name: operands.many(slot.name)
        for slot in forward.input_slots
        if slot.name not in wanted and operands.many(slot.name)
    }
    outputs = {
        slot: [Spec(array.shape, VarType.FP32) for array in arrays]
        for slot, arrays in seeds.items()
    }

    def run(inputs: Arrays) -> dict[str, list[Any]]:
        inner = Operands({**fixed, **inputs}, operands.attrs, outputs)
        results = LOWERINGS[forward.type][0](inner)
        return {
            slot: [
                array.reshape(seed.shape)
                for array, seed in zip(_listed(results[slot]), arrays, strict=True)
            ]
            for slot, arrays in seeds.items()
        }

    inputs = {slot: list(operands.many(slot)) for slot in wanted}
    _, pull = jax.vjp(run, inputs)
    (slopes,) = pull(seeds)
    return {f"{slot}@GRAD": arrays for slot, arrays in slopes.items()}


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (list, tuple)) else [result]
