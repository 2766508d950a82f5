"""Layers with parameters: fc, embedding, normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue
from ...strategies.types import LOW, VarType
from ..program.variable import Variable
from .arguments import integers, known_sizes, of_family, variables_of
from .helper import LayerHelper, layer
from .initializer import ConstantInitializer
from .numbers import numbers_of
from .param_attr import ParamAttr


def fc(
    input: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Fully connected layer: act(input @ W + b), several inputs summed.

    Args:
        input: one or more variables of floats; dimensions from ``num_flatten_dims`` on are flattened to a
            width, so their sizes must be known.
        size: number of features of the result, which is [..., size] and has the input's type.
        num_flatten_dims: how many leading dimensions stay; below 0, counted from the end.
        param_attr: of W, [width, size] (default: Xavier, uniform); of several inputs one, or a list.
        bias_attr: of b, [size] (default: zeros); False leaves it out.
        act: the name of an activation ("relu"), or a dict with its ``type`` and attributes.

    Raises:
        InvalidType, InvalidValue: an argument has a wrong type or value, or a size of W is not known.
        ShapeError: ``num_flatten_dims`` leaves no dimension, or inputs give different shapes.
    """
    if size < 1:
        raise InvalidValue(f"fc: size must be above 0, got {size}.")
    helper = LayerHelper("fc", name)
    inputs = variables_of(input, "input", "fc")
    products = []
    for x, attr in zip(inputs, ParamAttr.many(param_attr, len(inputs)), strict=True):
        assert x.shape is not None
        dims = num_flatten_dims + len(x.shape) if num_flatten_dims < 0 else num_flatten_dims
        sizes = x.shape[dims:]
        width = math.prod(known_sizes("fc", x, slice(dims, None), f"the sizes {list(sizes)}"))
        w = helper.create_parameter(attr, [width, size], x.dtype)
        products.append(helper.layer("mul", x=x, y=w, x_num_col_dims=dims, y_num_col_dims=1))
    total = products[0] if len(products) == 1 else helper.layer("sum", x=products)
    return helper.activate(
        helper.add_bias(total, bias_attr, dim_start=len(total.shape or ()) - 1), act
    )


def _lookup(
    op_type: str,
    input: Variable,
    size: Any,
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Rows of a table for ids, which are integers: [...] of ``fluid.embedding``, [..., 1] of fluid.layers'.

    Args:
        input: ids from 0 to vocabulary - 1; the result is [..., width].
        size: [vocabulary, width] of the table.
        is_sparse: gradients are rows of the table, not a whole one.
        is_distributed: parameter servers hold the table, each some rows.
        padding_idx: the id whose row counts as zeros; below 0, counted from the end.

    Raises:
        InvalidValue: ``size`` is not two numbers above 0.
        ShapeError: ids are no integers, or fluid.layers' have no last dimension of 1.
        ExecutionError: when the program runs, an id is outside the table.
    """
    sizes = integers(size, "size", "embedding") if isinstance(size, (list, tuple)) else []
    if len(sizes) != 2 or min(sizes) < 1:
        raise InvalidValue(
            f"embedding: size must be two numbers above 0, [rows, width] of the table, got {size!r}."
        )
    helper = LayerHelper("embedding")
    w = helper.create_parameter(param_attr, sizes, dtype)
    padding = -1 if padding_idx is None else padding_idx
    return helper.layer(
        op_type,
        w=w,
        ids=input,
        is_sparse=is_sparse,
        is_distributed=is_distributed,
        padding_idx=padding if padding_idx is None or padding >= 0 else sizes[0] + padding,
        remote_prefetch=is_sparse and not is_distributed,
    )


embedding = of_family(_lookup, "lookup_table", "embedding")
embedding_v2 = of_family(_lookup, "lookup_table_v2", "embedding_v2")


def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """The gradient ``x`` of an embedding; of one that stays rows, equal ones are added up."""
    return layer("merge_selected_rows", name, x=x)


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """The gradient ``x`` of an embedding as a whole: [vocabulary, width], zeros where no row is."""
    return layer("get_tensor_from_selected_rows", name, x=x)


def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: Any = 0.9,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Variable:
    """Normalise each channel of floats [N, C, ...] over the batch; testing uses the running statistics.

    Scale (ones) and bias (zeros) are parameters [C], and so are mean and variance, which each step moves to
    momentum * old + (1 - momentum) * the batch's. ``data_layout="NHWC"``: channels are last. ``in_place`` is a
    hint: the result takes the operand's memory where nothing reads that again.

    Raises:
        InvalidType, InvalidValue: an argument has a wrong type or value, or the channels are not known.
        ShapeError: ``epsilon`` is negative, or ``input`` has more than 5 dimensions.
    """
    assert input.shape is not None
    helper = LayerHelper("batch_norm", name)
    axis = -1 if data_layout == "NHWC" else 1
    channels = known_sizes("batch_norm", input, axis, "the channels")
    # Halves are too coarse for parameters and statistics.
    dtype = VarType.FP32 if input.dtype in LOW else input.dtype
    ones = ConstantInitializer(1.0)
    scale = helper.create_parameter(param_attr, channels, dtype, default_initializer=ones)
    bias = helper.create_parameter(bias_attr, channels, dtype, is_bias=True)
    if scale is None or bias is None:
        raise InvalidType("batch_norm: param_attr and bias_attr cannot be False.")
    running = [
        helper.create_parameter(
            ParamAttr(name=moving_name, initializer=ConstantInitializer(start), trainable=False),
            channels,
            dtype,
            stop_gradient=True,
        )
        for moving_name, start in ((moving_mean_name, 0.0), (moving_variance_name, 1.0))
    ]
    *_, y = helper.layers(
        "batch_norm",
        "SavedMean SavedVariance Y",
        "SavedMean SavedVariance",
        x=input,
        scale=scale,
        bias=bias,
        mean=running[0],
        variance=running[1],
        mean_out=running[0],
        variance_out=running[1],
        epsilon=epsilon,
        is_test=is_test,
        data_layout=data_layout,
        use_global_stats=use_global_stats,
        **numbers_of("batch_norm", "momentum", momentum),
    )
    return helper.activate(y, act)


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-5,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Normalise each sample of floats over its dimensions from ``begin_norm_axis`` on.

    Their sizes must be known. The result has the input's shape and type. ``scale`` multiplies by a parameter of
    as many elements (ones), ``shift`` adds one (zeros).

    Raises:
        InvalidValue: a size that is normalised is not known.
        ShapeError: ``begin_norm_axis`` is 0 or outside, or ``epsilon`` is negative.
    """
    assert input.shape is not None
    helper = LayerHelper("layer_norm", name)
    normed = slice(begin_norm_axis, None)
    width = [math.prod(known_sizes("layer_norm", input, normed, "the sizes that are normalised"))]
    fields: dict[str, Any] = {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis}
    if scale:
        ones = ConstantInitializer(1.0)
        fields["scale"] = helper.create_parameter(
            param_attr, width, input.dtype, default_initializer=ones
        )
    if shift:
        fields["bias"] = helper.create_parameter(bias_attr, width, input.dtype, is_bias=True)
    results = ("Mean Variance Y", "Mean Variance")
    y = helper.layers("layer_norm", *results, x=input, **fields)[-1]
    return helper.activate(y, act)
