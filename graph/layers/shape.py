"""Layers that reduce, reshape, cut, join and fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidType, InvalidValue
from ...strategies.types import VarType, to_var_type
from ..variable import Variable
from .helper import LayerHelper, check_variable


def mean(x: Variable, name: str | None = None) -> Variable:
    """The mean of all elements: shape [1]."""
    check_variable(x, "x", "mean")
    return LayerHelper("mean", name).apply("mean", {"X": x}, dtype=x.dtype)


def _reduce(op_type: str) -> Callable[..., Variable]:
    def layer(
        input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None
    ) -> Variable:
        check_variable(input, "input", op_type)
        dims = [dim] if isinstance(dim, int) else list(dim or [])
        attrs = {"dim": dims or [0], "keep_dim": keep_dim, "reduce_all": not dims}
        return LayerHelper(op_type, name).apply(op_type, {"X": input}, attrs, dtype=input.dtype)

    layer.__name__ = layer.__qualname__ = op_type
    layer.__doc__ = f"``{op_type}`` over the dimensions ``dim`` (None: all)."
    return layer


reduce_sum = _reduce("reduce_sum")
reduce_mean = _reduce("reduce_mean")
reduce_max = _reduce("reduce_max")
reduce_min = _reduce("reduce_min")
reduce_prod = _reduce("reduce_prod")


def sums(input: Sequence[Variable], out: Variable | None = None) -> Variable:
    """The sum of several tensors of one shape."""
    terms: list[Any] = list(input) if isinstance(input, (list, tuple)) else [input]
    helper = LayerHelper("sum")
    if out is None:
        return helper.apply("sum", {"X": terms}, dtype=terms[0].dtype)
    helper.append_op("sum", {"X": terms}, {"Out": out})
    return out


sum = sums


def _view(helper: LayerHelper, op_type: str, x: Variable, attrs: dict[str, Any]) -> Variable:
    """Append an op that keeps the elements; XShape remembers the old shape for the gradient."""
    out, x_shape = helper.new(x.dtype), helper.new(x.dtype, stop_gradient=True)
    helper.append_op(op_type, {"X": x}, {"Out": out, "XShape": x_shape}, attrs)
    return out


def reshape(
    x: Variable,
    shape: Sequence[int],
    actual_shape: Any = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """The same elements in another shape: 0 copies a size, one -1 takes what is left."""
    check_variable(x, "x", "reshape")
    if not isinstance(shape, (list, tuple)) or actual_shape is not None:
        raise InvalidType(
            "reshape: the shape must be a list of ints; shapes given as tensors are not built."
        )
    helper = LayerHelper("reshape2", name)
    return helper.activate(_view(helper, "reshape2", x, {"shape": [int(s) for s in shape]}), act)


def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Dimension i of the result is dimension ``perm[i]`` of x."""
    check_variable(x, "x", "transpose")
    return _view(LayerHelper("transpose", name), "transpose2", x, {"axis": list(perm)})


def squeeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Variable:
    """Drop dimensions of size 1."""
    return _view(LayerHelper("squeeze", name), "squeeze2", input, {"axes": list(axes)})


def unsqueeze(input: Variable, axes: int | Sequence[int], name: str | None = None) -> Variable:
    """Insert dimensions of size 1."""
    axes = [axes] if isinstance(axes, int) else list(axes)
    return _view(LayerHelper("unsqueeze2", name), "unsqueeze2", input, {"axes": axes})


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """A matrix: dimensions before ``axis`` are rows."""
    return _view(LayerHelper("flatten", name), "flatten2", x, {"axis": axis})


def concat(input: Sequence[Variable], axis: int = 0, name: str | None = None) -> Variable:
    """Join tensors along a dimension."""
    parts: list[Any] = list(input) if isinstance(input, (list, tuple)) else [input]
    return LayerHelper("concat", name).apply(
        "concat", {"X": parts}, {"axis": axis}, dtype=parts[0].dtype
    )


def split(
    input: Variable, num_or_sections: int | Sequence[int], dim: int = -1, name: str | None = None
) -> list[Variable]:
    """Cut a tensor along a dimension into equal parts, or parts of given sizes."""
    check_variable(input, "input", "split")
    assert input.shape is not None
    helper = LayerHelper("split", name)
    axis = dim + len(input.shape) if dim < 0 else dim
    if isinstance(num_or_sections, int):
        attrs: dict[str, Any] = {"num": num_or_sections, "axis": axis}
        count = num_or_sections
    else:
        attrs = {"sections": list(num_or_sections), "axis": axis}
        count = len(num_or_sections)
    parts = [helper.new(input.dtype) for _ in range(count)]
    helper.append_op("split", {"X": input}, {"Out": parts}, attrs)
    return parts


def stack(x: Sequence[Variable], axis: int = 0) -> Variable:
    """Join tensors of one shape along a new dimension."""
    parts: list[Any] = list(x) if isinstance(x, (list, tuple)) else [x]
    return LayerHelper("stack").apply(
        "stack", {"X": parts}, {"axis": axis}, out="Y", dtype=parts[0].dtype
    )


def slice(
    input: Variable, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int]
) -> Variable:
    """Elements ``starts`` to ``ends`` of each of ``axes``."""
    attrs = {
        "axes": list(axes),
        "starts": list(starts),
        "ends": list(ends),
        "infer_flags": [1] * len(axes),
    }
    return LayerHelper("slice").apply("slice", {"Input": input}, attrs, dtype=input.dtype)


def expand(x: Variable, expand_times: Sequence[int], name: str | None = None) -> Variable:
    """Repeat dimension i ``expand_times[i]`` times."""
    attrs = {"expand_times": list(expand_times)}
    return LayerHelper("expand", name).apply("expand", {"X": x}, attrs, dtype=x.dtype)


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """Rows of a tensor at the indices."""
    inputs = {"X": input, "Index": index}
    return LayerHelper("gather").apply(
        "gather", inputs, {"overwrite": overwrite}, dtype=input.dtype
    )


def one_hot(input: Variable, depth: int, allow_out_of_range: bool = False) -> Variable:
    """[..., 1] labels to [..., depth] (``fluid.layers.one_hot``)."""
    attrs = {"depth": depth, "allow_out_of_range": allow_out_of_range}
    return LayerHelper("one_hot").apply("one_hot", {"X": input}, attrs, stop_gradient=True)


def one_hot_v2(input: Variable, depth: int, allow_out_of_range: bool = False) -> Variable:
    """[...] labels to [..., depth] (``fluid.one_hot``)."""
    attrs = {"depth": depth, "allow_out_of_range": allow_out_of_range}
    return LayerHelper("one_hot_v2").apply("one_hot_v2", {"X": input}, attrs, stop_gradient=True)


def topk(input: Variable, k: int, name: str | None = None) -> tuple[Variable, Variable]:
    """The ``k`` largest of the last dimension, and where they are."""
    helper = LayerHelper("top_k", name)
    values, indices = helper.new(input.dtype), helper.new("int64", stop_gradient=True)
    helper.append_op("top_k", {"X": input}, {"Out": values, "Indices": indices}, {"k": k})
    return values, indices


def argmax(x: Variable, axis: int = 0) -> Variable:
    """Index of the largest element along ``axis``."""
    return LayerHelper("arg_max").apply("arg_max", {"X": x}, {"axis": axis}, stop_gradient=True)


def argmin(x: Variable, axis: int = 0) -> Variable:
    """Index of the smallest element along ``axis``."""
    return LayerHelper("arg_min").apply("arg_min", {"X": x}, {"axis": axis}, stop_gradient=True)


def cast(x: Variable, dtype: Any) -> Variable:
    """Convert the elements."""
    check_variable(x, "x", "cast")
    assert x.dtype is not None
    attrs = {"in_dtype": int(x.dtype), "out_dtype": int(to_var_type(dtype))}
    return LayerHelper("cast").apply("cast", {"X": x}, attrs, dtype=dtype)


def fill_constant(
    shape: Sequence[int],
    dtype: Any,
    value: Any,
    force_cpu: bool = False,
    out: Variable | None = None,
) -> Variable:
    """A tensor of one value."""
    helper = LayerHelper("fill_constant")
    kind = to_var_type(dtype)
    out = helper.new(kind) if out is None else out
    integral = kind in (VarType.INT32, VarType.INT64)
    attrs = {
        "shape": [int(size) for size in shape],
        "dtype": int(kind),
        "value": float(value),
        "str_value": str(int(value)) if integral else str(float(value)),
        "force_cpu": force_cpu,
    }
    helper.append_op("fill_constant", None, {"Out": out}, attrs)
    out.stop_gradient = True
    return out


def ones(shape: Sequence[int], dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of ones."""
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros(shape: Sequence[int], dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of zeros."""
    return fill_constant(shape, dtype, 0.0, force_cpu)


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Zeros in the shape and dtype of x."""
    helper = LayerHelper("zeros_like")
    out = helper.new(x.dtype) if out is None else out
    helper.append_op("fill_zeros_like", {"X": x}, {"Out": out})
    out.stop_gradient = True
    return out


def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Ones in the shape and dtype of x."""
    helper = LayerHelper("ones_like")
    out = helper.new(x.dtype) if out is None else out
    helper.append_op("fill_any_like", {"X": x}, {"Out": out}, {"value": 1.0})
    return out


def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """A tensor of one value, one size of which is taken from ``input``."""
    attrs = {
        "shape": list(shape),
        "dtype": int(to_var_type(dtype)),
        "value": float(value),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "force_cpu": force_cpu,
    }
    helper = LayerHelper("fill_constant_batch_size_like")
    return helper.apply(helper.layer_type, {"Input": input}, attrs, dtype=dtype, stop_gradient=True)


_VALUES = {
    VarType.BOOL: "bool_values",
    VarType.FP16: "fp32_values",
    VarType.BF16: "fp32_values",
    VarType.FP32: "fp32_values",
    VarType.INT32: "int32_values",
    VarType.INT64: "int64_values",
}


def assign(input: Variable | np.ndarray, output: Variable | None = None) -> Variable:
    """Copy a variable, or an array that becomes part of the program."""
    helper = LayerHelper("assign")
    if isinstance(input, Variable):
        output = helper.new(input.dtype) if output is None else output
        helper.append_op("assign", {"X": input}, {"Out": output})
        return output
    if not isinstance(input, np.ndarray):
        raise InvalidType(f"assign takes a Variable or a numpy array, got {type(input).__name__}.")
    kind = VarType.FP32 if input.dtype == np.float64 else to_var_type(input.dtype)
    if kind not in _VALUES:
        raise InvalidValue(f"assign: arrays of {input.dtype} are not built.")
    output = helper.new(kind) if output is None else output
    attrs = {"shape": list(input.shape), "dtype": int(kind), _VALUES[kind]: input.ravel().tolist()}
    helper.append_op("assign_value", None, {"Out": output}, attrs)
    return output


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """x + value, in place unless told otherwise; x has one element."""
    helper = LayerHelper("increment")
    out = x if in_place else helper.new(x.dtype)
    helper.append_op("increment", {"X": x}, {"Out": out}, {"step": float(value)})
    return out


def where(condition: Variable, x: Variable, y: Variable) -> Variable:
    """x where the condition holds, else y."""
    inputs = {"Condition": condition, "X": x, "Y": y}
    return LayerHelper("where").apply("where", inputs, dtype=x.dtype)


def shape(input: Variable) -> Variable:
    """The shape of a tensor, as int32."""
    return LayerHelper("shape").apply("shape", {"Input": input}, dtype="int32", stop_gradient=True)
