"""Binary elementwise ops. Y is aligned with X at ``axis`` (-1: at the end) and broadcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...strategies.types import INTEGERS, VarType
from . import expr as e
from .operands import Binary, BinaryGrad, Input, Operands
from .pointwise import BINARY_GRADS
from .registry import (
    Grad,
    Inference,
    Op,
    ShapeRule,
    Shapes,
    Spec,
    Specs,
    define,
    differentiable,
    register,
)
from .rules import merge_dims
from .samples import Sample, sample
from .second_order import Second, derived


def broadcast_shape(op: Inference) -> tuple[int, ...]:
    """Return the shape of X op Y; refuse operands that do not align at ``axis``."""
    x, y = op.spec("X"), op.spec("Y")
    op.require(
        x.dtype == y.dtype, f"X and Y must have one dtype, got {x.dtype.name} and {y.dtype.name}"
    )
    big, small = (x.shape, y.shape) if len(x.shape) >= len(y.shape) else (y.shape, x.shape)
    axis = op.attr("axis")
    start = len(big) - len(small) if axis == -1 else axis
    while len(small) > 1 and small[-1] == 1 and start + len(small) > len(big):
        small = small[:-1]
    op.require(0 <= start <= len(big) - len(small), f"axis={axis} does not place Y inside X")
    dims = list(big)
    for i, dim in enumerate(small, start):
        agreed = dims[i] if dim == 1 else dim if dims[i] == 1 else merge_dims(dims[i], dim)
        op.require(
            agreed is not None, f"sizes {big[i]} and {dim} of dimension {i} do not broadcast"
        )
        dims[i] = agreed if agreed is not None else dim
    return tuple(dims)


def placed(small: tuple[int, ...], rank: int, axis: int) -> tuple[int, ...]:
    """Return a shape with ``rank`` dimensions, its own from ``axis`` on (-1: at the end)."""
    start = rank - len(small) if axis == -1 else axis
    while len(small) > 1 and small[-1] == 1 and start + len(small) > rank:
        small = small[:-1]
    return (1,) * start + small + (1,) * (rank - start - len(small))


def beside(shapes: Shapes, attrs: Mapping[str, Any]) -> Shapes:
    """Return the shapes of operands and results as they lie beside those with the most dimensions."""
    rank = max(map(len, shapes.values()))
    return {n: placed(s, rank, attrs["axis"]) for n, s in shapes.items() if len(s) < rank}


def elementwise_shape(op: Inference) -> Mapping[str, Specs]:
    """The broadcast shape, in X's dtype."""
    return {"Out": Spec(broadcast_shape(op), op.spec("X").dtype)}


def whole_shape(op: Inference) -> Mapping[str, Specs]:
    """The broadcast shape; the op is for integers alone, as in Paddle."""
    op.require(op.spec("X").dtype in INTEGERS, "X and Y must be integers")
    return elementwise_shape(op)


def compare_shape(op: Inference) -> Mapping[str, Specs]:
    """The broadcast shape, as booleans."""
    return {"Out": Spec(broadcast_shape(op), VarType.BOOL)}


class ElementwiseAttributes(Operands):
    axis: int = -1
    use_mkldnn: bool = False
    x_data_format: str = ""
    y_data_format: str = ""


class Elementwise(Binary, ElementwiseAttributes): ...


class ElementwiseGrad(BinaryGrad, ElementwiseAttributes): ...


class ElementwiseDivGrad(ElementwiseGrad):
    out: Input
    d_out: Input


# gradients that are Out's, as long as nothing was broadcast
_PASSED_ON = {
    "elementwise_add": {"X@GRAD": "Out@GRAD", "Y@GRAD": "Out@GRAD"},
    "elementwise_sub": {"X@GRAD": "Out@GRAD"},
}
_UNREAD = {**dict.fromkeys(_PASSED_ON, ("X", "Y")), "elementwise_div": ("Out",)}  # by gradients


def _second_order(name: str) -> Second:
    """Return the gradient of the gradient: that of a quotient reads what Paddle's does."""
    if name == "elementwise_div":
        return _QUOTIENT
    gradient = derived(
        BINARY_GRADS[name],
        ("X", "Y", "Out@GRAD"),
        ("X@GRAD", "Y@GRAD"),
        {},
        always=("Y", "Out@GRAD"),
        direct=True,
    )
    assert gradient is not None
    return gradient


def _quotient(
    y: e.Expr,
    out: e.Expr,
    dx: e.Expr | None = None,
    d_output: e.Expr | None = None,
    ddx: e.Expr | None = None,
    ddy: e.Expr | None = None,
) -> tuple[e.Expr, e.Expr, e.Expr]:
    """The gradients of Y, Out and Out@GRAD, where X@GRAD = Out@GRAD / Y and Y@GRAD = -X@GRAD Out.

    Where X was broadcast, X@GRAD is a sum: Out@GRAD is read, which Paddle's op does not have.
    """
    zero = e.copy(e.constant(0))
    slope = dx if d_output is None else d_output / y
    if slope is None or (ddx is None and ddy is None):
        return zero, zero, zero
    change = ddx / y if ddx is not None else zero
    change = change if ddy is None else change - out * ddy / y
    return -(slope * change), zero if ddy is None else -(slope * ddy), change


_QUOTIENT = Second(
    {
        "Y": "Y",
        "Out": "Out",
        "DX": "X@GRAD",
        "DOutput": "Out@GRAD",
        "DDX": "X@GRAD@GRAD",
        "DDY": "Y@GRAD@GRAD",
    },
    {"Y@GRAD": "Y@GRAD", "DOut": "Out@GRAD", "DDOut": "Out@GRAD@GRAD"},
    {"Y@GRAD": ["Y"], "DOut": ["Out"], "DDOut": ["Out"]},
    _quotient,
    optional=("DX", "DOutput"),
)


_SHAPES = (
    ("3 4", "3 4", -1),
    ("2 3 4", "4", -1),
    ("2 3 4", "3", 1),
    ("2 3 4", "2 3", 0),
    ("2 1", "1", -1),
)
_SAMPLES = tuple(sample(f"X [{x}], Y [{y}]", axis=axis) for x, y, axis in _SHAPES)
_POSITIVE = tuple(sample(f"X 0.5:2.0 [{x}], Y 0.5:2.0 [{y}]", axis=axis) for x, y, axis in _SHAPES)
_REFUSES = (sample("X [3 4], Y [3]"), sample("X [3 4], Y [4]", axis=2))


def _define(
    name: str,
    scalar: Callable[..., Any] | None,
    gradient: type[Operands] | None = ElementwiseGrad,
    *,
    shape: ShapeRule = elementwise_shape,
    samples: tuple[Sample, ...] = _SAMPLES,
    refuses: tuple[Sample, ...] = _REFUSES,
) -> None:
    grad = None
    if gradient is not None:
        backward = Op(
            f"{name}_grad",
            gradient,
            scalar=BINARY_GRADS[name],
            aligned=beside,
            in_place={"X@GRAD": "Out@GRAD"},
            views=_PASSED_ON.get(name, {}),
            shapes_of=_UNREAD.get(name, ()),
        )
        grad = Grad.of(register(differentiable(backward, _second_order(name), aligned=beside)))
    define(
        name,
        Elementwise,
        shape,
        grad=grad,
        scalar=scalar,
        aligned=beside,
        in_place={"Out": "X"},
        samples=samples,
        refuses=refuses,
    )


_define("elementwise_add", lambda x, y: x + y)
_define("elementwise_sub", lambda x, y: x - y)
_define("elementwise_mul", lambda x, y: x * y)
_define("elementwise_div", lambda x, y: x / y, ElementwiseDivGrad, samples=_POSITIVE)
_define("elementwise_max", lambda x, y: e.maximum(x, y))
_define("elementwise_min", lambda x, y: e.minimum(x, y))
_define("elementwise_pow", lambda x, y: x**y, samples=_POSITIVE)

# What they compute depends on the element type (see the kernels), so they have no expression.
_WHOLE = (sample("X -9:9 [3 4], Y 1:5 [3 4]"), sample("X -9:9 [3 4], Y -5:-1 [4]"))
_define("elementwise_mod", None, None, samples=(*_WHOLE, *_POSITIVE[:2]))
_define(
    "elementwise_floordiv",
    None,
    None,
    shape=whole_shape,
    samples=_WHOLE,
    refuses=(sample("X [3 4], Y [3 4]"),),
)
