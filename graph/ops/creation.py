"""Ops that make tensors from nothing but attributes or another tensor's shape, and change of type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...strategies.types import VarType
from . import formula as f
from .lod import no_sequences
from .operands import Input, Inputs, Offsets, Operands, Output, Positive, Unary, named
from .registry import Grad, Inference, Op, Spec, Specs, define, in_steps
from .rules import hold_integers, of_shape, same, sizes_read
from .samples import sample
from .shapes import Sized

attribute_shape = Sized(
    "-> Out dtype [*shape]", "min(shape, default=0) >= 0; shape must not have negative sizes"
)


def filled_shape(op: Inference) -> Mapping[str, Specs]:
    """Sizes are elements of tensors; -1 stands for those that only the running program knows."""
    sizes = sizes_read(op, "ShapeTensor", "ShapeTensorList", op.attr("shape"))
    known = [n for n in sizes if n is not None]
    op.require(min(known, default=0) >= 0, f"shape {known} is negative")
    shape = tuple(-1 if n is None else n for n in sizes)
    return {"Out": Spec(shape, VarType(op.attr("dtype")))}


SIZES = ("ShapeTensor", "ShapeTensorList")


class Filled(Operands):
    """One result, whose sizes are an attribute or elements of tensors."""

    shape_tensor: Input | None
    shape_tensor_list: Inputs | None
    out: Output
    shape: Sequence[int] = []


class FillConstant(Filled):
    value_tensor: Input | None
    dtype: int = int(VarType.FP32)
    value: float = 0.0
    str_value: str = ""
    force_cpu: bool = False


define(
    "fill_constant",
    FillConstant,
    filled_shape,
    numbers={"ValueTensor": "value", "ShapeTensor": "shape", "ShapeTensorList": "shape"},
    numbers_set={"ValueTensor": {"str_value": ""}},
    samples=(
        sample(shape=[2, 3], value=1.5),
        sample(shape=[1], value=7.0, dtype=int(VarType.INT64)),
    ),
    refuses=(sample(shape=[2, -1]),),
    in_steps=in_steps(
        samples=(
            sample("ShapeTensorList* lengths [3] [2]", value=1.5),
            sample("ShapeTensor lengths [2 0]", value=1.5, shape=[-1, -1]),
            sample("ValueTensor lengths [4]", shape=[2, 3], dtype=int(VarType.INT64)),
        ),
        refuses=(sample("ShapeTensor lengths [2 -1]"),),
        reads=SIZES,
    ),
)
SAMPLE_SHARE = "sample_share"  # not in Paddle: this place's rows as a part of the whole batch


class SampleShare(Operands):
    out: Output
    shape: Sequence[int] = []
    dtype: int = int(VarType.FP32)


define(
    SAMPLE_SHARE,
    SampleShare,
    attribute_shape,
    by_place=lambda attrs: True,
    samples=(sample(shape=[1]), sample(shape=[2, 3], dtype=int(VarType.FP64))),
)


class AssignValue(Operands):
    out: Output
    shape: Sequence[int] = []
    dtype: int = int(VarType.FP32)
    bool_values: Sequence[bool] = []
    fp32_values: Sequence[float] = []
    int32_values: Sequence[int] = []
    int64_values: Sequence[int] = []


define(
    "assign_value",
    AssignValue,
    attribute_shape.extended(
        "->",
        "count = max(len(values) for values in (bool_values, fp32_values, int32_values, int64_values))",
        "prod(shape) == count; shape must hold as many as there are values",
    ),
    samples=(
        sample(shape=[2], fp32_values=[1.0, 2.0]),
        sample(shape=[1], int64_values=[3], dtype=3),
    ),
    refuses=(sample(shape=[-2], fp32_values=[1.0, 2.0]),),
)


def batch_size_like(op: Inference) -> Mapping[str, Specs]:
    """The ``shape`` attribute, one size of it taken from Input."""
    shape = list(op.attr("shape"))
    source = op.shape("Input")
    at, place = op.attr("input_dim_idx"), op.attr("output_dim_idx")
    op.require(
        0 <= at < len(source) and 0 <= place < len(shape),
        f"input_dim_idx={at} or output_dim_idx={place} is out of range",
    )
    others = shape[:place] + shape[place + 1 :]
    op.require(
        min(others, default=0) >= 0, f"shape {shape} has a negative size that is not at {place}"
    )
    sequences = at == 0 and op.has("Input@LOD")
    shape[place] = op.sequences("Input") if sequences else source[at]
    return {"Out": Spec(tuple(shape), VarType(op.attr("dtype")))}


class FillConstantBatchSizeLike(Operands):
    input: Input
    input_lod: Offsets  # a batch of sequences is as large as there are of them
    out: Output
    shape: Sequence[int] = []
    input_dim_idx: int = 0
    output_dim_idx: int = 0
    dtype: int = int(VarType.FP32)
    value: float = 0.0
    str_value: str = ""
    force_cpu: bool = False


define(
    "fill_constant_batch_size_like",
    FillConstantBatchSizeLike,
    batch_size_like,
    lod=no_sequences,
    shapes_of=("Input",),
    samples=(
        sample("Input [4 2]", shape=[-1, 3], value=2.0),
        sample("Input [5 2], Input@LOD [2 0 3]", shape=[-1, 3]),
    ),
    refuses=(
        sample("Input [4 2]", shape=[-1, 3], input_dim_idx=-3),
        sample("Input [4 2]", shape=[3, -1]),
    ),
)
define("fill_zeros_like", Unary, same("X"), shapes_of=("X",), samples=(sample("X [3 4]"),))


class FillAnyLike(Unary):
    value: float = 0.0
    dtype: int = -1


define(
    "fill_any_like",
    FillAnyLike,
    Sized("X -> Out dtype"),
    shapes_of=("X",),
    samples=(sample("X [3 4]", value=2.5),),
)


class Assign(Operands):
    x: Input | None
    out: Output


define(
    "assign",
    Assign,
    same("X"),
    grad=Grad.swap("assign"),
    views={"Out": "X"},
    samples=(sample("X [3 4]"),),
)


class Increment(Unary):
    step: float = 1.0


define(
    "increment",
    Increment,
    same("X"),
    in_place={"Out": "X"},
    samples=(sample("X [1]", step=2.0),),
)


class Cast(Unary):
    in_dtype: int = int(VarType.FP32)
    out_dtype: int = int(VarType.FP32)


define(
    "cast",
    Cast,
    Sized("X -> Out out_dtype"),
    grad=Grad.swap(
        "cast", attrs=lambda a: {"in_dtype": a["out_dtype"], "out_dtype": a["in_dtype"]}
    ),
    samples=(
        sample("X [3 4]", in_dtype=5, out_dtype=6),
        sample("X [3 4]", in_dtype=5, out_dtype=3),
    ),
)


class Shape(Operands):
    input: Input
    out: Output


define(
    "shape",
    Shape,
    Sized("Input -> Out int32 [rank]", "rank = len(Input)"),
    shapes_of=("Input",),
    samples=(sample("Input [3 4]"),),
)


def one_hot_shape(op: Inference) -> Mapping[str, Specs]:
    """A last dimension of ``depth``; the first form of the op replaces X's last dimension if that is 1."""
    hold_integers(op, "X")
    shape = op.shape("X")
    if op.op.type == "one_hot" and len(shape) > 1 and shape[-1] in (1, -1):
        shape = shape[:-1]
    return {"Out": Spec((*shape, op.attr("depth")), VarType(op.attr("dtype")))}


class OneHot(Unary):
    depth_tensor: Input | None = named("depth_tensor")
    depth: Positive = -1
    dtype: int = int(VarType.FP32)
    allow_out_of_range: bool = False


def one_hot(a: OneHot) -> f.Results:
    """1 at the index, 0 elsewhere; a row of 0 for an index outside ``depth``, if that is allowed."""
    x = a.x if a.allow_out_of_range else f.checked(a.x, a.depth, "index", "classes")
    hot = f.equal(x.reshape(*a.out.shape[:-1], 1), np.arange(a.depth, dtype=a.x.dtype))
    return {"out": hot.astype(a.out.dtype)}


for _name, _dims in (("one_hot", "4 1"), ("one_hot_v2", "4")):
    define(
        _name,
        OneHot,
        one_hot_shape,
        formula=one_hot,
        numbers={"depth_tensor": "depth"},
        samples=(
            sample(f"X 0:5 [{_dims}]", depth=5),
            sample(f"X 0:9 [{_dims}]", depth=5, allow_out_of_range=True),
            sample("X 0:5 [4]", depth=5),
        ),
    )


def top_k_shape(op: Inference) -> Mapping[str, Specs]:
    """The last dimension becomes ``k``, -1 where a tensor's number is not known."""
    x, (k,) = op.spec("X"), sizes_read(op, "K", "", [] if op.has("K") else [op.attr("k")])
    op.require(
        k is None or (k >= 1 and (x.shape[-1] < 0 or k <= x.shape[-1])),
        f"k={k} does not fit {x.shape[-1]} elements",
    )
    shape = (*x.shape[:-1], -1 if k is None else k)
    return {"Out": of_shape(shape, x), "Indices": Spec(shape, VarType.INT64)}


class TopK(Unary):
    k_tensor: Input | None = named("K")
    indices: Output
    k: int = 1


class TopKGrad(Operands):
    x: Input
    indices: Input
    d_out: Input
    d_x: Output


define(
    "top_k",
    TopK,
    top_k_shape,
    numbers={"K": "k"},
    samples=(sample("X [3 6]", k=2), sample("X [4]", k=1)),
    refuses=(sample("X [3 4]", k=5),),
    slope=Op("top_k_grad", TopKGrad, shapes_of=("X",)),
    in_steps=in_steps(
        samples=(sample("X [3 6], K lengths [2]"),),
        refuses=(sample("X [3 4], K lengths [5]"),),
    ),
)


_INDICES = (int(VarType.INT32), int(VarType.INT64))


class ArgExtreme(Unary):
    axis: int = -1
    dtype: int = -1
    keepdims: bool = False


for _name in ("arg_max", "arg_min"):
    define(
        _name,
        ArgExtreme,
        Sized(
            "X -> Out kind [*left]",
            f"dtype in {(-1, *_INDICES)}; dtype must be int32 or int64",
            f"kind = dtype if dtype in {_INDICES} else {_INDICES[-1]}",
            "at = front(axis, X)",
            "X[at] != 0; there is no element along axis",
            "left = X[:at] + (1,) * keepdims + X[at + 1 :] or (1,)",
        ),
        lod=no_sequences,
        samples=(
            sample("X [3 4]"),
            sample("X [3 4]", axis=0, keepdims=True),
            sample("X [3 4]", dtype=int(VarType.INT32)),
        ),
        refuses=(sample("X [3 0]"), sample("X [3 4]", axis=2)),
    )
