"""Layers with parameters: fc, embedding, convolution, normalisation; and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue
from ...strategies.types import LOW, VarType
from ..program.variable import Variable
from .helper import LayerHelper, check_variable
from .initializer import ConstantInitializer, NormalInitializer
from .numbers import integer, real_number
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
    """Fully connected layer: input @ W + b, several inputs summed.

    Args:
        input: one or more variables; dimensions from ``num_flatten_dims`` on are flattened.
        size: number of features of the result, [..., size].
    """
    size = integer(size, "size", "fc")
    num_flatten_dims = integer(num_flatten_dims, "num_flatten_dims", "fc")
    if size < 1:
        raise InvalidValue(f"fc: size must be above 0, got {size}.")
    helper = LayerHelper("fc", name)
    inputs: list[Any] = list(input) if isinstance(input, (list, tuple)) else [input]
    products = []
    for x, attr in zip(inputs, ParamAttr.many(param_attr, len(inputs)), strict=True):
        check_variable(x, "input", "fc")
        assert x.shape is not None
        dims = num_flatten_dims + len(x.shape) if num_flatten_dims < 0 else num_flatten_dims
        width = math.prod(x.shape[dims:])
        if width < 0:
            raise InvalidValue(f"fc: the sizes {list(x.shape[dims:])} of {x.name!r} must be known.")
        w = helper.create_parameter(attr, [width, size], x.dtype)
        attrs = {"x_num_col_dims": dims, "y_num_col_dims": 1}
        products.append(helper.apply("mul", {"X": x, "Y": w}, attrs, dtype=x.dtype))
    total = products[0] if len(products) == 1 else helper.apply("sum", {"X": products})
    return helper.activate(
        helper.add_bias(total, bias_attr, dim_start=len(total.shape or ()) - 1), act
    )


def _lookup(
    op_type: str,
    input: Variable,
    size: Sequence[int],
    flags: dict[str, Any],
    param_attr: Any,
    dtype: Any,
) -> Variable:
    check_variable(input, "input", "embedding")
    helper = LayerHelper("embedding")
    w = helper.create_parameter(param_attr, size, dtype)
    padding = flags["padding_idx"]
    padding = -1 if padding is None else padding if padding >= 0 else size[0] + padding
    prefetch = flags["is_sparse"] and not flags["is_distributed"]
    attrs = {**flags, "padding_idx": padding, "remote_prefetch": prefetch}
    return helper.apply(op_type, {"W": w, "Ids": input}, attrs, dtype=dtype)


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Rows of a [vocabulary, width] table for ids [..., 1] (``fluid.layers.embedding``)."""
    flags = {"is_sparse": is_sparse, "is_distributed": is_distributed, "padding_idx": padding_idx}
    return _lookup("lookup_table", input, size, flags, param_attr, dtype)


def embedding_v2(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Rows of a [vocabulary, width] table for ids [...] (``fluid.embedding``)."""
    flags = {"is_sparse": is_sparse, "is_distributed": is_distributed, "padding_idx": padding_idx}
    return _lookup("lookup_table_v2", input, size, flags, param_attr, dtype)


def pair(value: int | Sequence[int], argument: str) -> list[int]:
    """Return two numbers from one or two."""
    if isinstance(value, int):
        return [value, value]
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return [int(v) for v in value]
    raise InvalidValue(f"{argument} must be an int or a list of two, got {value!r}.")


def image_format(data_format: Any, layer: str) -> bool:
    """Tell whether channels are last; refuse orders that images do not have."""
    if data_format not in ("NCHW", "NHWC"):
        raise InvalidValue(f"{layer}: data_format must be 'NCHW' or 'NHWC', got {data_format!r}.")
    return bool(data_format == "NHWC")


def paddings_of(padding: Any, channels_last: bool = False) -> tuple[list[int], str]:
    """Return (numbers, algorithm) from an int, a list, per-dimension pairs, or "SAME"/"VALID".

    Pairs for all four dimensions are in the order of the image's shape; batch and channels are not padded.
    """
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise InvalidValue(f"padding must be 'SAME', 'VALID' or numbers, got {padding!r}.")
        return [0, 0], padding.upper()
    if isinstance(padding, (list, tuple)) and padding and isinstance(padding[0], (list, tuple)):
        if len(padding) not in (2, 4):
            raise InvalidValue(f"padding must have a pair for each dimension, got {padding!r}.")
        first = 0 if len(padding) == 2 else 1 if channels_last else 2
        others = [n for i, dims in enumerate(padding) for n in dims if not first <= i < first + 2]
        if any(others):
            raise InvalidValue(f"batch and channels cannot be padded, got {padding!r}.")
        padding = [n for dims in padding[first : first + 2] for n in dims]
    if isinstance(padding, (list, tuple)) and len(padding) == 4:
        return [int(p) for p in padding], "EXPLICIT"
    return pair(padding, "padding"), "EXPLICIT"


def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Convolution of images [N, C, H, W] or, with ``data_format="NHWC"``, [N, H, W, C].

    Weights are [O, C / groups, kh, kw], normal with deviation sqrt(2 / (kh kw C)).
    """
    check_variable(input, "input", "conv2d")
    last = image_format(data_format, "conv2d")
    num_filters = integer(num_filters, "num_filters", "conv2d")
    assert input.shape is not None
    if len(input.shape) != 4:
        raise InvalidValue(f"conv2d: input must have 4 dimensions, got {list(input.shape)}.")
    channels, groups = input.shape[3 if last else 1], groups or 1
    if channels < 0:
        raise InvalidValue(f"conv2d: the channels of {input.name!r} must be known.")
    if channels % groups or num_filters % groups:
        raise InvalidValue(
            f"conv2d: {channels} channels and {num_filters} filters do not split in {groups}."
        )
    depthwise = groups == channels and num_filters % channels == 0 and not use_cudnn
    op_type = "depthwise_conv2d" if depthwise else "conv2d"
    helper = LayerHelper(op_type, name)
    size = pair(filter_size, "filter_size")
    deviation = math.sqrt(2.0 / (size[0] * size[1] * channels))
    w = helper.create_parameter(
        param_attr,
        [num_filters, channels // groups, *size],
        input.dtype,
        default_initializer=NormalInitializer(0.0, deviation),
    )
    paddings, algorithm = paddings_of(padding, last)
    attrs = {
        "strides": pair(stride, "stride"),
        "paddings": paddings,
        "dilations": pair(dilation, "dilation"),
        "groups": groups,
        "use_cudnn": use_cudnn,
        "padding_algorithm": algorithm,
        "data_format": data_format,
    }
    inputs = {"Input": input, "Filter": w}
    out = helper.apply(op_type, inputs, attrs, out="Output", dtype=input.dtype)
    axis = 3 if last else 1
    return helper.activate(helper.add_bias(out, bias_attr, dim_start=axis, dim_end=axis + 1), act)


def pool2d(
    input: Variable,
    pool_size: int | Sequence[int] = -1,
    pool_type: str = "max",
    pool_stride: int | Sequence[int] = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Maximum or average over windows of images [N, C, H, W] or, with ``"NHWC"``, [N, H, W, C]."""
    check_variable(input, "input", "pool2d")
    last = image_format(data_format, "pool2d")
    if pool_type not in ("max", "avg"):
        raise InvalidValue(f"pool2d: pool_type must be 'max' or 'avg', got {pool_type!r}.")
    if not global_pooling and pool_size == -1:
        raise InvalidValue("pool2d: pool_size is needed unless global_pooling is set.")
    paddings, algorithm = paddings_of(pool_padding, last)
    if algorithm == "VALID" and ceil_mode:
        raise InvalidValue('pool2d: ceil_mode must be False where pool_padding is "VALID".')
    attrs = {
        "pooling_type": pool_type,
        "ksize": pair(pool_size, "pool_size"),
        "global_pooling": global_pooling,
        "strides": pair(pool_stride, "pool_stride"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "use_cudnn": use_cudnn,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
        "data_format": data_format,
    }
    return LayerHelper("pool2d", name).apply("pool2d", {"X": input}, attrs, dtype=input.dtype)


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
    """Normalise each channel over the batch; running statistics are used when testing."""
    check_variable(input, "input", "batch_norm")
    assert input.shape is not None
    helper = LayerHelper("batch_norm", name)
    channels = [input.shape[-1] if data_layout == "NHWC" else input.shape[1]]
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
    saved_mean = helper.new(dtype, stop_gradient=True)
    saved_variance = helper.new(dtype, stop_gradient=True)
    y = input if in_place else helper.new(input.dtype)
    inputs, attrs = real_number(momentum, "MomentumTensor", "momentum", "momentum", "batch_norm")
    inputs |= {"X": input, "Scale": scale, "Bias": bias, "Mean": running[0]}
    helper.append_op(
        "batch_norm",
        {**inputs, "Variance": running[1]},
        {
            "Y": y,
            "MeanOut": running[0],
            "VarianceOut": running[1],
            "SavedMean": saved_mean,
            "SavedVariance": saved_variance,
        },
        {
            **attrs,
            "epsilon": epsilon,
            "is_test": is_test,
            "data_layout": data_layout,
            "use_global_stats": use_global_stats,
        },
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
    """Normalise each sample over its dimensions from ``begin_norm_axis`` on."""
    check_variable(input, "input", "layer_norm")
    assert input.shape is not None
    helper = LayerHelper("layer_norm", name)
    width = [math.prod(input.shape[begin_norm_axis:])]
    inputs: dict[str, Any] = {"X": input}
    if scale:
        ones = ConstantInitializer(1.0)
        inputs["Scale"] = helper.create_parameter(
            param_attr, width, input.dtype, default_initializer=ones
        )
    if shift:
        inputs["Bias"] = helper.create_parameter(bias_attr, width, input.dtype, is_bias=True)
    mean = helper.new(input.dtype, stop_gradient=True)
    variance = helper.new(input.dtype, stop_gradient=True)
    y = helper.new(input.dtype)
    attrs = {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis}
    helper.append_op("layer_norm", inputs, {"Y": y, "Mean": mean, "Variance": variance}, attrs)
    return helper.activate(y, act)
