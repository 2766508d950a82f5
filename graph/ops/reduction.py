"""Ops that sum, average, or take extremes over dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...strategies.types import VarType
from . import expr as e
from . import formula as f
from .expr import Expr
from .operands import Array, Inputs, Operands, Output, SlopeOfBoth, SlopeOfX, Unary, record_of
from .registry import Grad, Inference, Op, ShapeRule, Shapes, Spec, Specs, define
from .rules import normal_axis, product, same
from .samples import Draw, sample
from .shapes import Sized, names_dimensions, one_element

scalar_like = Sized("X floats -> Out [1]")


def _one_beside(shapes: Shapes, attrs: Mapping[str, Any]) -> Shapes:
    """The gradient of one number lies beside all elements."""
    return {"d_out": (1,) * len(shapes["x"])}


define(
    "mean",
    Unary,
    scalar_like,
    linear=("X",),
    samples=(sample("X [3 4]"), sample("X [5]")),
    slope=Op(
        "mean_grad",
        SlopeOfX,
        Sized("X, Out@GRAD -> X@GRAD as X", one_element("Out@GRAD")),
        scalar=lambda d_out, *, count: d_out / count,
        aligned=_one_beside,
        counts=lambda shapes, attrs: {"count": max(product(shapes["x"]), 1)},
        shapes_of=("X",),
    ),
)


class Sum(Operands):
    x: Inputs
    out: Output
    use_mkldnn: bool = False


define(
    "sum",
    Sum,
    Sized("X as X [...] -> Out [...]"),
    grad=Grad.swap("scale", attrs=lambda a: {"scale": 1.0}, each="X"),
    in_place={"Out": "X"},
    samples=(sample("X* [3 4] [3 4] [3 4]"), sample("X* [5]")),
)


class ReduceAttributes(Operands):
    dim: Sequence[int] = [0]
    keep_dim: bool = False
    reduce_all: bool = False
    in_dtype: int = -1
    out_dtype: int = -1


class Reduce(Unary, ReduceAttributes): ...


class ReduceGrad(SlopeOfX, ReduceAttributes):
    """Of a sum or a mean."""


class ReduceGradOfOut(SlopeOfBoth, ReduceAttributes):
    """Of what depends on more than the number of elements."""


def reduced_axes(op: Inference, rank: int) -> tuple[int, ...]:
    """Return the dimensions that ``dim`` names, all of them for ``reduce_all``."""
    dims = op.attr("dim")
    dims = [dims] if isinstance(dims, int) else dims
    if op.attr("reduce_all") or len(dims) == 0:
        return tuple(range(rank))
    return tuple(sorted({normal_axis(op, dim, rank) for dim in dims}))


def reduce_shape(op: Inference) -> Mapping[str, Specs]:
    """The named dimensions go (or become 1); if none is left the result has one element."""
    x = op.spec("X")
    axes = reduced_axes(op, len(x.shape))
    if op.attr("keep_dim"):
        shape = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
    else:
        shape = tuple(d for i, d in enumerate(x.shape) if i not in axes)
    out_dtype = op.attrs["out_dtype"]
    return {"Out": Spec(shape or (1,), x.dtype if out_dtype < 0 else VarType(out_dtype))}


def extreme_shape(op: Inference) -> Mapping[str, Specs]:
    """As other reductions, of one element at least."""
    shape = op.shape("X")
    axes = reduced_axes(op, len(shape))
    op.require(
        0 not in (shape[axis] for axis in axes),
        f"there is no element along dimensions {list(axes)}",
    )
    return reduce_shape(op)


_SAMPLES = (
    sample("X [3 4]", dim=[0]),
    sample("X [2 3 4]", dim=[1, -1], keep_dim=True),
    sample("X [2 3]", reduce_all=True),
    sample("X [2 3 4]", dim=[0, 2]),
    sample("X [300 4]", dim=[0]),  # many short rows
    sample("X [40 30 3]", dim=[0, 2], keep_dim=True),
)
_POSITIVE = (sample("X 0.5:2.0 [3 4]", dim=[1]), sample("X 0.5:2.0 [3 2]", reduce_all=True))


def axes_of(rank: int, dim: Any, reduce_all: bool) -> tuple[int, ...]:
    """Return the dimensions of an array that are reduced."""
    dims = [dim] if isinstance(dim, int) else dim
    if reduce_all or len(dims) == 0:
        return tuple(range(rank))
    return tuple(sorted({d % rank for d in dims}))


def _beside(shapes: Shapes, attrs: Mapping[str, Any]) -> Shapes:
    """What was reduced keeps its dimensions, of size 1."""
    x = shapes["x"]
    axes = axes_of(len(x), attrs["dim"], attrs["reduce_all"])
    small = tuple(1 if i in axes else n for i, n in enumerate(x))
    return {name: small for name in ("out", "d_out") if name in shapes}


def _share(shapes: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"share": product(shapes["d_out"]) / max(product(shapes["x"]), 1)}


def _of_extreme(x: Expr, out: Expr, d_out: Expr) -> Expr:
    """Every element equal to the extreme gets the gradient, as in Paddle."""
    return d_out * e.equal(x, out)


def _define(
    name: str,
    gradient: type[Operands],
    scalar: Callable[..., Any],
    samples: tuple[object, ...],
    linear: Sequence[str] = (),
    shape: ShapeRule = reduce_shape,
    refuses: tuple[object, ...] = (),
) -> None:
    define(
        name,
        Reduce,
        shape,
        samples=samples,
        refuses=(sample("X [3 4]", dim=[2]), *refuses),
        linear=linear,
        slope=Op(
            f"{name}_grad",
            gradient,
            scalar=scalar,
            aligned=_beside,
            counts=_share if name == "reduce_mean" else None,
            shapes_of=("X",) if linear else (),
        ),
    )


_define("reduce_sum", ReduceGrad, lambda d_out: e.copy(d_out), _SAMPLES, ("X",))
_define("reduce_mean", ReduceGrad, lambda d_out, *, share: d_out * share, _SAMPLES, ("X",))
for _name in ("reduce_max", "reduce_min"):
    _of_none = sample("X [3 0]", dim=[1])
    _define(_name, ReduceGradOfOut, _of_extreme, _SAMPLES, shape=extreme_shape, refuses=(_of_none,))
# As Paddle computes it; undefined where an element is 0
_define("reduce_prod", ReduceGradOfOut, lambda x, out, d_out: out / x * d_out, _POSITIVE)


def logic_shape(op: Inference) -> Mapping[str, Specs]:
    """As other reductions, of booleans."""
    op.require(op.spec("X").dtype == VarType.BOOL, "X must be bool")
    return reduce_shape(op)


for _name in ("reduce_all", "reduce_any"):
    define(
        _name,
        Reduce,
        logic_shape,
        samples=(
            sample("X bool [3 4]", dim=[0]),
            sample("X bool [3 2]", dim=[-1], keep_dim=True),
            sample("X bool [2 2]", reduce_all=True),
        ),
        refuses=(sample("X [3 4]"), sample("X bool [3 4]", dim=[2])),
    )

for _name in ("isfinite", "isnan", "isinf"):
    define(
        _name,
        Unary,
        Sized("X -> Out bool [1]"),
        samples=(sample("X [3 4]"), sample({"X": Draw((3, 4), "special")})),
    )


class Cumsum(Unary):
    axis: int = -1
    exclusive: bool = False
    reverse: bool = False


define(
    "cumsum",
    Cumsum,
    Sized("X -> Out", names_dimensions("axis")),
    grad=Grad.swap("cumsum", attrs=lambda a: {**a, "reverse": not a["reverse"]}),
    samples=(
        sample("X [3 4]"),
        sample("X [3 4]", axis=0, exclusive=True),
        sample("X [3 4]", reverse=True),
        sample("X [2 3 2]", axis=1, reverse=True, exclusive=True),
    ),
    refuses=(sample("X [3 4]", axis=2),),
)


define(
    "squared_l2_norm",
    Unary,
    scalar_like,
    samples=(sample("X [3 4]"),),
    slope=Op(
        "squared_l2_norm_grad", SlopeOfX, scalar=lambda x, d_out: x * d_out * 2, aligned=_one_beside
    ),
)


def clipping(x: Array, max_norm: float) -> Array:
    """Return the factor that scales an array to a norm of at most ``max_norm``, with the array's rank."""
    norm = f.sqrt((x * x).sum(keepdims=True))
    return max_norm / f.maximum(norm, max_norm)


define(
    "clip_by_norm",
    record_of("x", "out", max_norm=1.0),
    same("X"),
    formula=lambda a: {"out": a.x * clipping(a.x, a.max_norm)},
    samples=(sample("X [3 4]", max_norm=0.5), sample("X [2 2]", max_norm=100.0)),
)
