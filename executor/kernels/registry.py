"""The table of kernels, and how one is bound to buffers.

A kernel is written as a function that gets the record of an op once (``graph/ops/operands.py``: arrays by slot,
and attributes), and returns the work to do each step::

    @kernel("relu")
    def relu(dev: Device, a: Unary) -> Step:
        return partial(dev.xp.maximum, a.x, 0, a.out)

Everything that depends only on shapes and attributes (views, strides, scratch) is done when binding; what is
returned (a callable, or a list of them) is all that runs in a step. A function for which nothing can be done
before is registered with ``each_step``, and gets the record alone. A slot not in use is None, one that takes
any number of variables is a list. A kernel of several ops takes the record that theirs are based on.

Rules: write every element of every output that is not None; never write an operand, except where the op
updates it (``ParamOut`` is the same memory as ``Param``); take scratch from ``dev.scratch``.

Of float16 and bfloat16 a kernel sees float32 (``widened.py``), unless it is registered with ``low``: it only
moves elements, or computes in float32 and rounds once itself.

A back end is an array module (``numpy``, ``cupy``) that can run every op, or a library that can run some of
them on its arrays, and some only under conditions (``takes``): then the driver gives it those nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from types import MappingProxyType
from typing import Any, TypeVar

from ...graph.ir.capabilities import IN_ORDER, Factors, Layout, Takes
from ...graph.ir.graph import Node
from ...graph.ops.operands import Operands
from ...graph.ops.registry import OPS, Op
from ...strategies.errors import Unsupported
from ...strategies.types import INTEGERS, VarType
from ..codegen.array_calls import bind_calls, bind_scalar
from ..device.device import Device
from .array.channels_last import in_order, is_last, node_in_order
from .array.expression import expressions_of
from .array.formula import ARRAY_MEANS, formula_steps
from .array.widened import has_low, widened
from .back_ends import BACK_ENDS

Step = Callable[[], Any]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Kernel:
    """A bound-to-be function ``f(dev, record)``, and which nodes it takes.

    ``needs`` are the libraries that it calls beside the one it is registered for; ``prefer_loops``: a
    compiled loop is faster, where there is one; ``low``: it takes float16 and bfloat16 as they are;
    ``any_order``: it takes images in any order of memory; ``layout``: in which it computes them fastest;
    ``factors``: what it takes in bfloat16 as it is, where products are computed so.
    """

    function: Callable[..., Any]
    takes: Takes | None = None
    needs: tuple[str, ...] = ()
    prefer_loops: bool = False
    low: bool = False
    any_order: bool = False
    layout: Layout = IN_ORDER
    factors: Factors = field(default_factory=dict)


KERNELS: dict[tuple[str, str], Kernel] = {}


def kernel(
    *op_types: str,
    on: Sequence[str] = BACK_ENDS,
    takes: Takes | None = None,
    needs: Sequence[str] = (),
    prefer_loops: bool = False,
    low: bool = False,
    any_order: bool = False,
    layout: Layout = IN_ORDER,
    factors: Factors = MappingProxyType({}),
    nonempty: bool = False,
    gapless: bool = False,
) -> Callable[[F], F]:
    """Register a function as the kernel of ops on back ends (both, for code written against ``dev.xp``).

    ``takes`` tells which nodes a library's kernel can compute (None: all of these ops), ``needs`` which other
    libraries it calls: it is chosen only where they are too. With ``prefer_loops`` it leaves to compiled loops
    what these can compute. With ``low`` it gets float16 and bfloat16 as they are, with ``any_order`` images
    whose elements lie in another order than that of their shape, NCHW. ``layout`` is the order in which the
    compiler lets images lie for it, or a function that tells this from a node and the strategy's math. Of
    ``factors`` it gets bfloat16 as it is, where products are computed in bfloat16. With ``nonempty`` it never
    sees an operand without elements, with ``gapless`` it sees only arrays that have elements, without gaps
    and in the order of their shape: the array module's kernel gets the others.
    """

    def asked(node: Node) -> bool:
        # A compiler of regions is asked about nodes of other ops, as they are.
        return takes is None or takes(node_in_order(node) if node.op in op_types else node)

    fits = is_gapless if gapless else has_elements if nonempty else None

    def register(function: F) -> F:
        for op_type in op_types:
            entry = Kernel(
                _or_arrays(op_type, function, fits) if fits is not None else function,
                takes=takes and asked,
                needs=tuple(needs),
                prefer_loops=prefer_loops,
                low=low,
                any_order=any_order,
                layout=layout,
                factors=factors,
            )
            for back_end in on:
                assert (op_type, back_end) not in KERNELS, (
                    f"{op_type} has two kernels on {back_end}"
                )
                KERNELS[op_type, back_end] = entry
        return function

    return register


def each_step(
    *op_types: str, on: Sequence[str] = BACK_ENDS, **how: Any
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a function of an op's record that is called in each step, as there is nothing to bind before.

    ``how``: more of what :func:`kernel` takes.
    """

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(function)
        def bound(dev: Device, a: Any) -> Step:
            return partial(function, a)

        kernel(*op_types, on=on, **how)(bound)
        return function

    return register


def has_kernel(op_type: str, back_end: str) -> bool:
    """Tell whether an op can run on a back end."""
    op = OPS[op_type]
    return (op_type, back_end) in KERNELS or op.scalar is not None or op.formula is not None


def bind(
    op_type: str,
    inputs: Mapping[str, Sequence[Any]],
    outputs: Mapping[str, Sequence[Any]],
    attrs: Mapping[str, Any],
    dev: Device,
    back_end: str = "",
) -> list[Step]:
    """Return the calls that compute the op on these arrays (slot -> arrays; None for an unwanted output).

    ``back_end`` is a library, or the device's array module.

    Raises:
        Unsupported: the op has no kernel on this device.
    """
    op = OPS[op_type]
    return bind_record(op, op.bound(inputs, outputs, attrs), dev, back_end)


def bind_record(op: Op, a: Operands, dev: Device, back_end: str = "") -> list[Step]:
    """Return the calls that compute an op on the arrays of its record (see :func:`bind`)."""
    return call(op, KERNELS.get((op.type, back_end or dev.name)), a, dev)


def call(op: Op, entry: Kernel | None, a: Operands, dev: Device) -> list[Step]:
    """Return the calls of a kernel (None: of the op's expression or formula)."""
    if entry is not None and is_last(op.type, vars(a)):
        return in_order(dev, op, a, entry.any_order, partial(_exact, op, entry, dev))
    return _exact(op, entry, dev, a)


def _exact(op: Op, entry: Kernel | None, dev: Device, a: Operands) -> list[Step]:
    """Return the calls of a kernel, which sees low precision as float32 unless it takes that itself."""
    if (entry is not None and entry.low) or not has_low(op.arrays(a)):
        return _bound(op, entry, dev, a)
    written = [slot.parameter for slot in op.output_slots]
    slots = [] if entry is None else [s for s in op.input_slots if s.name in entry.factors]
    factors = [slot.parameter for slot in slots]

    def bound(wide: Mapping[str, Any]) -> list[Step]:
        return _bound(op, entry, dev, a.replace(**wide))

    return widened(dev, op.arrays(a), written, bound, factors)


def _bound(op: Op, entry: Kernel | None, dev: Device, a: Operands) -> list[Step]:
    if entry is not None:
        if op.is_gradient and all(vars(a)[slot.parameter] is None for slot in op.output_slots):
            return []  # no result is wanted
        steps = entry.function(dev, a)
        if steps is None:
            return []
        return list(steps) if isinstance(steps, (list, tuple)) else [steps]
    if op.formula is not None:
        return formula_steps(dev, op, a, ARRAY_MEANS)
    return _bind_expression(op, a, dev)


def by_arrays(op_type: str, dev: Device, a: Operands) -> list[Step]:
    """Return the calls of the array module's kernel, to which a library leaves arrays that it cannot take."""
    return call(OPS[op_type], KERNELS.get((op_type, dev.name)), a, dev)


def has_elements(op: Op, a: Operands) -> bool:
    """Tell whether every operand has elements: libraries leave others to array modules."""
    arrays = (getattr(a, slot.parameter) for slot in op.input_slots)
    return all(array is None or array.size > 0 for array in arrays)


def is_gapless(op: Op, a: Operands) -> bool:
    """Tell whether all arrays have elements, without gaps and in order; but ``x_shape``, which has none."""
    arrays = (array for name, array in op.arrays(a).items() if name != "x_shape")
    return all(array is None or (array.size and array.flags.c_contiguous) for array in arrays)


def _or_arrays(
    op_type: str, function: Callable[..., Any], fits: Callable[[Op, Operands], bool]
) -> Callable[..., Any]:
    """Return a kernel that leaves arrays that do not fit to the array module's."""

    @wraps(function)
    def bound(dev: Device, a: Operands) -> Any:
        return function(dev, a) if fits(OPS[op_type], a) else by_arrays(op_type, dev, a)

    return bound


def _bind_expression(op: Op, a: Operands, dev: Device) -> list[Step]:
    if op.scalar is None:
        raise Unsupported(f"{op.type} has no kernel on {dev.name}.")
    written, read = expressions_of(op, a)
    whole_results = any(out.dtype.kind in "iu" for _, out in written)
    if op.type not in THROUGH_FLOATS or not whole_results:
        return bind_calls(dev, written, read)
    arrays, attrs = op.arrays(a), vars(a)
    (out,) = (arrays[slot.parameter] for slot in op.output_slots)
    exact = {n: None if a is None else dev.scratch(a.shape, "float64") for n, a in arrays.items()}
    result = dev.scratch(out.shape, "float64")
    whole = {n: int(v) if isinstance(v, float) else v for n, v in attrs.items()}
    return [
        *(partial(dev.xp.copyto, exact[n], a) for n, a in arrays.items() if a is not None),
        *bind_scalar(op.scalar, exact, whole, result, dev),
        partial(dev.xp.copyto, out, result, casting="unsafe"),
    ]


THROUGH_FLOATS = ("exp", "pow")  # of integers: computed as floats, with whole factors, and cut off


def of_types(*types: VarType, **slots: Sequence[VarType]) -> Takes:
    """Return the function that tells whether a node's values have these types; ``slots`` have their own."""

    def takes(node: Node) -> bool:
        own = {
            value: kinds
            for slot, kinds in slots.items()
            for value in (*node.inputs.get(slot, ()), *node.outputs.get(slot, ()))
        }
        return all(v.spec.dtype in own.get(v, types) for v in (*node.reads(), *node.writes()))

    return takes


def of_floats(node: Node) -> bool:
    """Tell whether an op's expression can be computed in the types of its values."""
    whole = any(value.spec.dtype in INTEGERS for value in node.writes())
    return node.op not in (*THROUGH_FLOATS, "elementwise_div") or not whole
