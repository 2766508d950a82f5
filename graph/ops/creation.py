"""Ops that make tensors from nothing but attributes or another tensor's shape, and change of type."""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import VarType
from .registry import Grad, Inference, Op, Spec, Specs, define
from .rules import normal_axis, of_shape, same
from .samples import integers, normal, sample

_VALUE_TENSORS = ("ValueTensor?", "ShapeTensor?", "ShapeTensorList*?")


def attribute_shape(op: Inference) -> Mapping[str, Specs]:
    """Shape and dtype are attributes."""
    for slot in ("ValueTensor", "ShapeTensorList"):
        op.require(not op.has(slot), f"{slot} is not built: give numbers")
    if op.has("ShapeTensor"):
        # A shape that the program computes is known when it runs; its length is known now.
        op.fail("ShapeTensor is not built: give the shape as numbers")
    return {"Out": Spec(tuple(op.attr("shape")), VarType(op.attr("dtype")))}


define(
    Op(
        type="fill_constant",
        inputs=_VALUE_TENSORS,
        outputs=("Out",),
        attrs={
            "shape": [],
            "dtype": int(VarType.FP32),
            "value": 0.0,
            "str_value": "",
            "force_cpu": False,
        },
        shape=attribute_shape,
        samples=(
            sample(shape=[2, 3], value=1.5),
            sample(shape=[1], value=7.0, dtype=int(VarType.INT64)),
        ),
    )
)
SAMPLE_SHARE = "sample_share"  # not in Paddle: this place's rows as a part of the whole batch
define(
    Op(
        type=SAMPLE_SHARE,
        inputs=(),
        outputs=("Out",),
        attrs={"shape": [], "dtype": int(VarType.FP32)},
        shape=attribute_shape,
        by_place=lambda attrs: True,
        samples=(sample(shape=[1]), sample(shape=[2, 3], dtype=int(VarType.FP64))),
    )
)
define(
    Op(
        type="assign_value",
        outputs=("Out",),
        attrs={
            "shape": [],
            "dtype": int(VarType.FP32),
            "bool_values": [],
            "fp32_values": [],
            "int32_values": [],
            "int64_values": [],
        },
        shape=lambda op: {"Out": Spec(tuple(op.attr("shape")), VarType(op.attr("dtype")))},
        samples=(
            sample(shape=[2], fp32_values=[1.0, 2.0]),
            sample(shape=[1], int64_values=[3], dtype=3),
        ),
    )
)


def batch_size_like(op: Inference) -> Mapping[str, Specs]:
    """The ``shape`` attribute, one size of it taken from Input."""
    shape = list(op.attr("shape"))
    source = op.shape("Input")
    at, place = op.attr("input_dim_idx"), op.attr("output_dim_idx")
    op.require(
        at < len(source) and place < len(shape), "input_dim_idx or output_dim_idx is out of range"
    )
    shape[place] = source[at]
    return {"Out": Spec(tuple(shape), VarType(op.attr("dtype")))}


define(
    Op(
        type="fill_constant_batch_size_like",
        inputs=("Input",),
        outputs=("Out",),
        attrs={
            "shape": [],
            "input_dim_idx": 0,
            "output_dim_idx": 0,
            "dtype": int(VarType.FP32),
            "value": 0.0,
            "str_value": "",
            "force_cpu": False,
        },
        shape=batch_size_like,
        samples=(sample({"Input": normal(4, 2)}, shape=[-1, 3], value=2.0),),
    )
)
define(
    Op(
        type="fill_zeros_like",
        inputs=("X",),
        outputs=("Out",),
        shape=same("X"),
        samples=(sample({"X": normal(3, 4)}),),
    )
)


def any_like(op: Inference) -> Mapping[str, Specs]:
    """X's shape, in ``dtype`` (-1: X's)."""
    x, dtype = op.spec("X"), op.attr("dtype")
    return {"Out": Spec(x.shape, x.dtype if dtype < 0 else VarType(dtype))}


define(
    Op(
        type="fill_any_like",
        inputs=("X",),
        outputs=("Out",),
        attrs={"value": 0.0, "dtype": -1},
        shape=any_like,
        samples=(sample({"X": normal(3, 4)}, value=2.5),),
    )
)
define(
    Op(
        type="assign",
        inputs=("X?",),
        outputs=("Out",),
        shape=same("X"),
        grad=Grad("assign", {"X": "Out@GRAD"}, {"Out": "X@GRAD"}),
        views={"Out": "X"},
        samples=(sample({"X": normal(3, 4)}),),
    )
)
define(
    Op(
        type="increment",
        inputs=("X",),
        outputs=("Out",),
        attrs={"step": 1.0},
        shape=same("X"),
        in_place={"Out": "X"},
        samples=(sample({"X": normal(1)}, step=2.0),),
    )
)
define(
    Op(
        type="cast",
        inputs=("X",),
        outputs=("Out",),
        attrs={"in_dtype": int(VarType.FP32), "out_dtype": int(VarType.FP32)},
        shape=lambda op: {"Out": Spec(op.shape("X"), VarType(op.attr("out_dtype")))},
        grad=Grad(
            "cast",
            {"X": "Out@GRAD"},
            {"Out": "X@GRAD"},
            attrs=lambda a: {"in_dtype": a["out_dtype"], "out_dtype": a["in_dtype"]},
        ),
        samples=(
            sample({"X": normal(3, 4)}, in_dtype=5, out_dtype=6),
            sample({"X": normal(3, 4)}, in_dtype=5, out_dtype=3),
        ),
    )
)
define(
    Op(
        type="shape",
        inputs=("Input",),
        outputs=("Out",),
        shape=lambda op: {"Out": Spec((len(op.shape("Input")),), VarType.INT32)},
        samples=(sample({"Input": normal(3, 4)}),),
    )
)


def one_hot_shape(op: Inference) -> Mapping[str, Specs]:
    """A last dimension of ``depth``; the first form of the op replaces X's last dimension, which is 1."""
    op.require(not op.has("depth_tensor"), "depth_tensor is not built: give depth as a number")
    op.require(not op.attr("allow_out_of_range"), "allow_out_of_range is not built")
    op.require(op.attr("depth") > 0, f"depth must be above 0, got {op.attr('depth')}")
    shape = op.shape("X")
    if op.op.type == "one_hot":
        op.require(len(shape) > 0 and shape[-1] in (1, -1), "X's last dimension must be 1")
        shape = shape[:-1]
    return {"Out": Spec((*shape, op.attr("depth")), VarType(op.attr("dtype")))}


for _name, _dims in (("one_hot", (4, 1)), ("one_hot_v2", (4,))):
    define(
        Op(
            type=_name,
            inputs=("X", "depth_tensor?"),
            outputs=("Out",),
            attrs={"depth": -1, "dtype": int(VarType.FP32), "allow_out_of_range": False},
            shape=one_hot_shape,
            samples=(sample({"X": integers(*_dims, high=5)}, depth=5),),
        )
    )


def top_k_shape(op: Inference) -> Mapping[str, Specs]:
    """The last dimension becomes ``k``."""
    op.require(not op.has("K"), "K as a tensor is not built: give k as a number")
    x, k = op.spec("X"), op.attr("k")
    op.require(
        k >= 1 and (x.shape[-1] < 0 or k <= x.shape[-1]),
        f"k={k} does not fit {x.shape[-1]} elements",
    )
    shape = (*x.shape[:-1], k)
    return {"Out": of_shape(shape, x), "Indices": Spec(shape, VarType.INT64)}


define(
    Op(
        type="top_k",
        inputs=("X", "K?"),
        outputs=("Out", "Indices"),
        attrs={"k": 1},
        shape=top_k_shape,
        grad=Grad("top_k_grad", ("X", "Indices", "Out@GRAD"), ("X@GRAD",), keep_attrs=False),
        samples=(sample({"X": normal(3, 6)}, k=2), sample({"X": normal(4)}, k=1)),
        refuses=(sample({"X": normal(3, 4)}, k=5),),
    )
)
define(
    Op(
        type="top_k_grad",
        inputs=("X", "Indices", "Out@GRAD"),
        outputs=("X@GRAD",),
        shape=same("X", "X@GRAD"),
    )
)


def arg_shape(op: Inference) -> Mapping[str, Specs]:
    """``axis`` goes (or becomes 1 with keepdims); the result is int64."""
    shape = list(op.shape("X"))
    axis = normal_axis(op, op.attr("axis"), len(shape))
    op.require(op.attr("dtype") in (-1, int(VarType.INT64)), "only int64 indices are built")
    kept = shape[:axis] + ([1] if op.attr("keepdims") else []) + shape[axis + 1 :]
    return {"Out": Spec(tuple(kept) or (1,), VarType.INT64)}


for _name in ("arg_max", "arg_min"):
    define(
        Op(
            type=_name,
            inputs=("X",),
            outputs=("Out",),
            attrs={"axis": -1, "dtype": -1, "keepdims": False},
            shape=arg_shape,
            samples=(
                sample({"X": normal(3, 4)}),
                sample({"X": normal(3, 4)}, axis=0, keepdims=True),
            ),
        )
    )
