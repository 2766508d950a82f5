"""Ops that sum, average, or take extremes over dimensions."""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import FLOATS, VarType
from .registry import Grad, Inference, Op, Spec, Specs, define
from .rules import grads_like, merge_dims, normal_axis, product, same
from .samples import Draw, booleans, normal, sample, uniform


def scalar_like(op: Inference) -> Mapping[str, Specs]:
    """Out is a tensor of one element in X's dtype, which is a float."""
    op.require(op.spec("X").dtype in FLOATS, "X must be of a float type")
    return {"Out": Spec((1,), op.spec("X").dtype)}


define(
    Op(
        type="mean",
        inputs=("X",),
        outputs=("Out",),
        shape=scalar_like,
        grad=Grad("mean_grad", ("X", "Out@GRAD"), ("X@GRAD",), keep_attrs=False),
        samples=(sample({"X": normal(3, 4)}), sample({"X": normal(5)})),
        refuses=(sample({"X": booleans(3, 4)}),),
    )
)


def mean_grad_shape(op: Inference) -> Mapping[str, Specs]:
    """The gradient of a mean is one number."""
    op.require(
        product(op.shape("Out@GRAD")) in (1, -1), "the gradient of a mean must have one element"
    )
    return {"X@GRAD": op.spec("X")}


define(
    Op(
        type="mean_grad",
        inputs=("X", "Out@GRAD"),
        outputs=("X@GRAD",),
        attrs={},
        shape=mean_grad_shape,
    )
)


def sum_shape(op: Inference) -> Mapping[str, Specs]:
    """All terms have one shape and dtype."""
    specs = op.specs("X")
    shape = specs[0].shape
    for spec in specs[1:]:
        fits = len(spec.shape) == len(shape) and spec.dtype == specs[0].dtype
        dims = [merge_dims(a, b) for a, b in zip(shape, spec.shape, strict=False)]
        op.require(fits and None not in dims, "all terms must have one shape and dtype")
        shape = tuple(d for d in dims if d is not None)
    return {"Out": Spec(shape, specs[0].dtype)}


define(
    Op(
        type="sum",
        inputs=("X*",),
        outputs=("Out",),
        attrs={"use_mkldnn": False},
        shape=sum_shape,
        grad=Grad(
            "scale", {"X": "Out@GRAD"}, {"Out": "X@GRAD"}, attrs=lambda a: {"scale": 1.0}, each="X"
        ),
        in_place={"Out": "X"},
        samples=(
            sample({"X": [normal(3, 4), normal(3, 4), normal(3, 4)]}),
            sample({"X": [normal(5)]}),
        ),
        refuses=(sample({"X": [normal(3, 4), normal(4, 3)]}),),
    )
)

_REDUCE = {
    "dim": [0],
    "keep_dim": False,
    "reduce_all": False,
    "in_dtype": -1,
    "out_dtype": -1,
}


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


_SAMPLES = (
    sample({"X": normal(3, 4)}, dim=[0]),
    sample({"X": normal(2, 3, 4)}, dim=[1, -1], keep_dim=True),
    sample({"X": normal(2, 3)}, reduce_all=True),
    sample({"X": normal(2, 3, 4)}, dim=[0, 2]),
)
_POSITIVE = (
    sample({"X": uniform(3, 4, low=0.5, high=2.0)}, dim=[1]),
    sample({"X": uniform(3, 2, low=0.5, high=2.0)}, reduce_all=True),
)


def _define(name: str, reads: tuple[str, ...], samples: tuple[object, ...]) -> None:
    inputs = (*reads, "Out@GRAD")
    define(
        Op(
            type=name,
            inputs=("X",),
            outputs=("Out",),
            attrs=_REDUCE,
            shape=reduce_shape,
            grad=Grad(f"{name}_grad", inputs, ("X@GRAD",)),
            samples=samples,
            refuses=(sample({"X": normal(3, 4)}, dim=[2]),),
        )
    )
    define(
        Op(
            type=f"{name}_grad",
            inputs=inputs,
            outputs=("X@GRAD",),
            attrs=_REDUCE,
            shape=grads_like("X"),
        )
    )


_define("reduce_sum", ("X",), _SAMPLES)
_define("reduce_mean", ("X",), _SAMPLES)
_define("reduce_max", ("X", "Out"), _SAMPLES)
_define("reduce_min", ("X", "Out"), _SAMPLES)
_define("reduce_prod", ("X", "Out"), _POSITIVE)


def logic_shape(op: Inference) -> Mapping[str, Specs]:
    """As other reductions, of booleans."""
    op.require(op.spec("X").dtype == VarType.BOOL, "X must be bool")
    return reduce_shape(op)


for _name in ("reduce_all", "reduce_any"):
    define(
        Op(
            type=_name,
            inputs=("X",),
            outputs=("Out",),
            attrs=_REDUCE,
            shape=logic_shape,
            samples=(
                sample({"X": booleans(3, 4)}, dim=[0]),
                sample({"X": booleans(3, 2)}, dim=[-1], keep_dim=True),
                sample({"X": booleans(2, 2)}, reduce_all=True),
            ),
            refuses=(sample({"X": normal(3, 4)}), sample({"X": booleans(3, 4)}, dim=[2])),
        )
    )

for _name in ("isfinite", "isnan", "isinf"):
    define(
        Op(
            type=_name,
            inputs=("X",),
            outputs=("Out",),
            shape=lambda op: {"Out": Spec((1,), VarType.BOOL)},
            samples=(
                sample({"X": normal(3, 4)}),
                sample({"X": Draw((3, 4), "special")}),
            ),
        )
    )


def cumsum_shape(op: Inference) -> Mapping[str, Specs]:
    """Like X."""
    x = op.spec("X")
    normal_axis(op, op.attr("axis"), len(x.shape))
    return {"Out": x}


define(
    Op(
        type="cumsum",
        inputs=("X",),
        outputs=("Out",),
        attrs={"axis": -1, "exclusive": False, "reverse": False},
        shape=cumsum_shape,
        grad=Grad(
            "cumsum",
            {"X": "Out@GRAD"},
            {"Out": "X@GRAD"},
            attrs=lambda a: {**a, "reverse": not a["reverse"]},
        ),
        samples=(
            sample({"X": normal(3, 4)}),
            sample({"X": normal(3, 4)}, axis=0, exclusive=True),
            sample({"X": normal(3, 4)}, reverse=True),
            sample({"X": normal(2, 3, 2)}, axis=1, reverse=True, exclusive=True),
        ),
        refuses=(sample({"X": normal(3, 4)}, axis=2),),
    )
)

define(
    Op(
        type="squared_l2_norm",
        inputs=("X",),
        outputs=("Out",),
        shape=scalar_like,
        grad=Grad("squared_l2_norm_grad", ("X", "Out@GRAD"), ("X@GRAD",)),
        samples=(sample({"X": normal(3, 4)}),),
    )
)
define(
    Op(
        type="squared_l2_norm_grad",
        inputs=("X", "Out@GRAD"),
        outputs=("X@GRAD",),
        shape=grads_like("X"),
    )
)


define(
    Op(
        type="clip_by_norm",
        inputs=("X",),
        outputs=("Out",),
        attrs={"max_norm": 1.0},
        shape=same("X"),
        samples=(
            sample({"X": normal(3, 4)}, max_norm=0.5),
            sample({"X": normal(2, 2)}, max_norm=100.0),
        ),
    )
)
