"""Layers that reduce, reshape, cut, join and fill."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, require_type
from ...strategies.types import VarType, to_var_type
from ..program.variable import Variable
from .arguments import check_variable, integer, of_family, variables_of
from .helper import LayerHelper, constant_layer, constant_layers, layer
from .initializer import VALUE_ATTRIBUTES
from .numbers import numbers_of


def mean(x: Variable, name: str | None = None) -> Variable:
    """The mean of all elements, which are floats: shape [1], of their type.

    Raises:
        InvalidType: ``x`` is no Variable.
        ShapeError: it holds no floats.
    """
    return layer("mean", name, x=x)


def _reduce(
    op_type: str, input: Variable, dim: Any = None, keep_dim: bool = False, name: str | None = None
) -> Variable:
    """``{name}`` over the dimensions ``dim``, a number or several, which go, or with ``keep_dim`` are 1.

    None, the default, is all dimensions: the result is [1]. Its type is that of ``input``.

    Raises:
        InvalidType: ``dim`` is no int.
        ShapeError: a dimension is outside.
    """
    several = () if dim is None else dim if isinstance(dim, Iterable) else [dim]
    dims = [integer(axis, "dim", op_type) for axis in several]
    attrs = {"dim": dims or [0], "keep_dim": keep_dim, "reduce_all": not dims}
    return layer(op_type, name, x=input, **attrs)


reduce_sum = of_family(_reduce, "reduce_sum")
reduce_mean = of_family(_reduce, "reduce_mean")
reduce_max = of_family(_reduce, "reduce_max")
reduce_min = of_family(_reduce, "reduce_min")
reduce_prod = of_family(_reduce, "reduce_prod")


def sums(input: Sequence[Variable], out: Variable | None = None) -> Variable:
    """The sum of several tensors of one shape."""
    terms = variables_of(input, "input", "sums")
    return layer("sum", x=terms, out=out)


def sum(x: Variable | Sequence[Variable]) -> Variable:
    """Sum of tensors of one shape."""
    return sums([x] if isinstance(x, Variable) else x)


def _view(helper: LayerHelper, x: Variable, **fields: Any) -> Variable:
    """Append the second form of an op that keeps the elements: XShape has the old shape, for the gradient."""
    op_type = helper.layer_type.removesuffix("2") + "2"
    return helper.layers(op_type, "Out XShape", "XShape", x=x, **fields)[0]


def reshape(
    x: Variable,
    shape: Any,
    actual_shape: Any = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """The same elements in another shape: 0 copies a size, one -1 takes the remaining elements.

    Sizes may be Variables, or one Variable holds them all; ``actual_shape`` is such a Variable and counts
    first: what it leaves open is built with the sizes of ``shape``. ``inplace``: ``x`` itself has the other
    shape from here on, and is returned.
    """
    fields = numbers_of("reshape2", "shape", shape, "reshape")
    if actual_shape is not None:
        numbers = numbers_of("reshape2", "shape", actual_shape, "reshape", "actual_shape")
        fields = {"shape": fields.get("shape"), **numbers}
    helper = LayerHelper("reshape2", name)
    return helper.activate(_view(helper, x, out=x if inplace else None, **fields), act)


def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Dimension i of the result is dimension ``perm[i]`` of x."""
    return _view(LayerHelper("transpose", name), x, axis=list(perm))


def squeeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Variable:
    """Drop dimensions of size 1."""
    return _view(LayerHelper("squeeze", name), input, axes=list(axes))


def unsqueeze(input: Variable, axes: Any, name: str | None = None) -> Variable:
    """Insert dimensions of size 1, at an axis or several (numbers or Variables)."""
    axes = [axes] if isinstance(axes, int) else axes
    fields = numbers_of("unsqueeze2", "axes", axes, "unsqueeze")
    return _view(LayerHelper("unsqueeze2", name), input, **fields)


def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """A matrix: dimensions before ``axis`` are rows."""
    return _view(LayerHelper("flatten", name), x, axis=axis)


def concat(input: Sequence[Variable], axis: Any = 0, name: str | None = None) -> Variable:
    """Join tensors of one type, equal but for one dimension, along that (a number or a Variable).

    Raises:
        InvalidType: ``input`` holds no Variable, or something else.
        ShapeError: types or other sizes differ, or ``axis`` is outside.
    """
    parts = variables_of(input, "input", "concat")
    return layer("concat", name, x=parts, **numbers_of("concat", "axis", axis))


def split(
    input: Variable, num_or_sections: Any, dim: Any = -1, name: str | None = None
) -> list[Variable]:
    """Cut a tensor along a dimension into equal parts, or parts of given sizes (numbers or Variables).

    One size may be -1: what is left.

    Raises:
        InvalidArgument: ``num_or_sections`` is below 1.
        ShapeError: the parts are not the whole.
    """
    assert input.shape is not None
    helper = LayerHelper("split", name)
    if not isinstance(dim, Variable):
        dim = integer(dim, "dim", "split")
        dim = dim + len(input.shape) if dim < 0 else dim
    fields = numbers_of("split", "axis", dim, argument="dim")
    if isinstance(num_or_sections, (int, np.integer)):
        fields["num"] = count = integer(num_or_sections, "num_or_sections", "split")
        if count < 1:
            raise InvalidArgument(f"split: num_or_sections must be above 0, got {count}.")
    else:
        if isinstance(num_or_sections, Variable):
            raise InvalidType("split: num_or_sections must be an int, a list or a tuple.")
        fields |= numbers_of("split", "sections", num_or_sections, argument="num_or_sections")
        count = len(num_or_sections)
    parts = [helper.new(input.dtype) for _ in range(count)]
    helper.layers("split", "", x=input, out=parts, **fields)
    return parts


def stack(x: Sequence[Variable], axis: int = 0) -> Variable:
    """Join tensors of one shape along a new dimension."""
    parts = variables_of(x, "x", "stack")
    return layer("stack", x=parts, axis=axis)


def slice(input: Variable, axes: Sequence[int], starts: Any, ends: Any) -> Variable:
    """Elements ``starts`` to ``ends`` (numbers or Variables) of each of ``axes``."""
    return window("slice", input, list(axes), starts=starts, ends=ends)


def window(op_type: str, x: Variable, axes: list[int], **bounds: Any) -> Variable:
    """Append an op that takes a part of ``x``; ``bounds``, by attribute, are numbers or Variables."""
    fields: dict[str, Any] = {}
    for attr, numbers in bounds.items():
        fields |= numbers_of(op_type, attr, numbers)
    known = 1 if fields.keys() == bounds.keys() else -1
    return layer(op_type, input=x, axes=axes, infer_flags=[known] * len(axes), **fields)


def expand(x: Variable, expand_times: Any, name: str | None = None) -> Variable:
    """Repeat dimension i ``expand_times[i]`` times (numbers or Variables)."""
    helper = LayerHelper("expand", name)
    fields = numbers_of("expand", "expand_times", expand_times, owner=helper)
    return helper.layer("expand", x=x, **fields)


def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """Rows of a tensor [N, ...] at integer indices [M] or [M, 1]: [M, ...].

    Raises:
        ShapeError: indices are no integers.
        ExecutionError: when the program runs, an index is outside.
    """
    return layer("gather", x=input, index=index, overwrite=overwrite)


def one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """[..., 1] labels to [..., depth] (``fluid.layers.one_hot``)."""
    return _one_hot("one_hot", input, depth, allow_out_of_range)


def one_hot_v2(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """[...] labels to [..., depth] (``fluid.one_hot``)."""
    return _one_hot("one_hot_v2", input, depth, allow_out_of_range)


def _one_hot(op_type: str, input: Variable, depth: Any, allow_out_of_range: bool) -> Variable:
    fields = numbers_of(op_type, "depth", depth, "one_hot")
    return constant_layer(op_type, x=input, allow_out_of_range=allow_out_of_range, **fields)


def topk(input: Variable, k: Any, name: str | None = None) -> tuple[Variable, Variable]:
    """The ``k`` largest of the last dimension (a number or a Variable), and int64 where they are: [..., k].

    No gradient passes, as in Paddle 1.x, unless ``stop_gradient`` of the first result is set to False.
    """
    slots = "Out Indices"
    fields = numbers_of("top_k", "k", k, "topk")
    values, indices = constant_layers("top_k", name, slots, x=input, **fields)
    return values, indices


def argmax(x: Variable, axis: int = 0) -> Variable:
    """Index of the largest element along ``axis``."""
    return constant_layer("arg_max", x=x, axis=axis)


def argmin(x: Variable, axis: int = 0) -> Variable:
    """Index of the smallest element along ``axis``."""
    return constant_layer("arg_min", x=x, axis=axis)


def cast(x: Variable, dtype: Any) -> Variable:
    """Convert the elements: ``dtype`` is a name ("float32"), a NumPy type or a VarType.

    Raises:
        InvalidValue: there is no such type.
    """
    assert x.dtype is not None
    return layer("cast", x=x, in_dtype=int(x.dtype), out_dtype=int(to_var_type(dtype)))


def fill_constant(
    shape: Any, dtype: Any, value: Any, force_cpu: bool = False, out: Variable | None = None
) -> Variable:
    """A tensor of one value, of ``shape``, a list, and ``dtype``; sizes and the value may be Variables.

    No gradient flows into it. ``out`` is a variable to write to instead of a new one.

    Raises:
        InvalidType, InvalidValue: a shape, type or value is none.
    """
    helper = LayerHelper("fill_constant")
    kind = to_var_type(dtype)
    out = helper.new(kind) if out is None else out
    fields = numbers_of("fill_constant", "shape", shape)
    fields |= {"dtype": int(kind), "force_cpu": force_cpu}
    if isinstance(value, Variable):
        fields["ValueTensor"] = value
    else:
        integral = kind in (VarType.INT32, VarType.INT64)
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise InvalidType(
                f"fill_constant: value must be a number or a Variable, got {value!r}."
            ) from None
        if integral and not math.isfinite(number):
            raise InvalidValue(f"fill_constant: no {kind.name} is {value!r}. Use a whole number.")
        fields |= {"value": number, "str_value": str(int(value) if integral else number)}
    helper.layers("fill_constant", "", out=out, **fields)
    out.stop_gradient = True
    return out


def ones(shape: Any, dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of ones."""
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros(shape: Any, dtype: Any, force_cpu: bool = False) -> Variable:
    """A tensor of zeros."""
    return fill_constant(shape, dtype, 0.0, force_cpu)


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Zeros in the shape and dtype of x."""
    result = LayerHelper("zeros_like").layer("fill_zeros_like", x=x, out=out)
    result.stop_gradient = True
    return result


def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Ones in the shape and dtype of x."""
    return LayerHelper("ones_like").layer("fill_any_like", x=x, out=out, value=1.0)


def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any,
    value: bool | float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """A tensor of one value, one size of which is taken from ``input``."""
    attrs = {
        "shape": list(shape),
        "dtype": int(to_var_type(dtype)),
        "value": float(value) if isinstance(value, (bool, np.bool_)) else value,
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
        "force_cpu": force_cpu,
    }
    return constant_layer("fill_constant_batch_size_like", input=input, **attrs)


def assign(input: Variable | np.ndarray, output: Variable | None = None) -> Variable:
    """Copy a variable, or an array that becomes part of the program."""
    helper = LayerHelper("assign")
    if isinstance(input, Variable):
        output = helper.new(input.dtype) if output is None else output
        helper.layers("assign", "", x=input, out=output)
        return output
    require_type(input, np.ndarray, "assign takes a Variable or a numpy array")
    kind = VarType.FP32 if input.dtype == np.float64 else to_var_type(input.dtype)
    if kind not in VALUE_ATTRIBUTES:
        raise InvalidValue(f"assign: arrays of {input.dtype} are not built.")
    output = helper.new(kind) if output is None else output
    attrs = {
        "shape": list(input.shape),
        "dtype": int(kind),
        VALUE_ATTRIBUTES[kind]: input.ravel().tolist(),
    }
    helper.layers("assign_value", "", out=output, **attrs)
    return output


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """x + value, in place by default; x has one element."""
    helper = LayerHelper("increment")
    out = x if in_place else helper.new(x.dtype)
    helper.layers("increment", "", x=x, out=out, step=value)
    return out


def where(condition: Variable, x: Variable | None = None, y: Variable | None = None) -> Variable:
    """x where the condition holds, else y; of a condition alone the places of what is not zero, int64."""
    if x is None and y is None:
        return constant_layer("where_index", condition=condition)
    check_variable(x, "x", "where")
    check_variable(y, "y", "where")
    assert x is not None
    return layer("where", condition=condition, x=x, y=y)


def shape(input: Variable) -> Variable:
    """The shape of a tensor, as int32."""
    return constant_layer("shape", input=input)
