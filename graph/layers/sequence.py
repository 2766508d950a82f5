"""Layers on sequences of rows (LoD)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidValue, Unsupported, require_type
from ...strategies.types import to_var_type
from ..program.variable import Variable
from .arguments import Floats, check_variable, integers, known_sizes
from .helper import LayerHelper, constant_layer, layer, layers
from .numbers import numbers_of


def sequence_pool(
    input: Floats, pool_type: str, is_test: bool = False, pad_value: float = 0.0
) -> Variable:
    """Pool the rows of each sequence of the last level: [N, ...] to [sequences, ...].

    Args:
        pool_type: ``average``, ``sum``, ``sqrt`` (sum / sqrt(length)), ``max``, ``last`` or ``first``.
        pad_value: the row of an empty sequence.
    """
    if not input.lod_level:
        raise InvalidValue(
            f"sequence_pool: {input.name!r} holds no sequences (lod_level 0): declare it with lod_level=1."
        )
    require_type(pool_type, str, "sequence_pool: pool_type must be a str")
    attrs = {"pooltype": pool_type.upper(), "is_test": is_test, "pad_value": pad_value}
    return layers("sequence_pool", None, "Out MaxIndex", "MaxIndex", x=input, **attrs)[0]


def sequence_first_step(input: Variable) -> Variable:
    """Return the first row of each sequence."""
    return sequence_pool(input, "first")


def sequence_last_step(input: Variable) -> Variable:
    """Return the last row of each sequence."""
    return sequence_pool(input, "last")


def sequence_softmax(input: Floats, use_cudnn: bool = False, name: str | None = None) -> Variable:
    """Softmax over the numbers of each sequence, [N, 1] or [N]."""
    return layer("sequence_softmax", name, x=input, use_cudnn=use_cudnn)


def sequence_expand(
    x: Variable, y: Variable, ref_level: int = -1, name: str | None = None
) -> Variable:
    """Repeat sequence (or row) i of ``x`` as often as sequence i of ``y`` is long at ``ref_level``."""
    return layer("sequence_expand", name, x=x, y=y, ref_level=ref_level)


def sequence_expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Repeat row i of ``x`` for each row of sequence i of ``y``, whose sequences the result has."""
    return layer("sequence_expand_as", name, x=x, y=y)


def sequence_reverse(x: Variable, name: str | None = None) -> Variable:
    """Return the rows of each sequence from the last to the first."""
    return layer("sequence_reverse", name, x=x)


def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> tuple[Variable, Variable]:
    """Pad sequences to one length.

    Args:
        pad_value: one number, or a row of ``x``.
        maxlen: the length; that of the longest sequence unless told.

    Returns:
        [sequences, maxlen, ...], and the lengths, int64 [sequences].
    """
    attrs = {"padded_length": -1 if maxlen is None else maxlen}
    inputs = {"X": x, "PadValue": pad_value}
    out, length = layers("sequence_pad", name, "Out Length", "Length", **inputs, **attrs)
    return out, length


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Variable:
    """Return the first ``length[i]`` steps of row i as sequence i; lengths must follow from what is fed."""
    return layer("sequence_unpad", name, x=x, length=length)


def sequence_mask(
    x: Variable, maxlen: Any = None, dtype: Any = "int64", name: str | None = None
) -> Variable:
    """Return x.shape + [maxlen]: 1 where the position is below ``x``.

    Args:
        x: lengths, integers.
        maxlen: an int or a Variable; None is the largest of ``x``, which must follow from what is fed.
    """
    number = to_var_type(dtype)
    longest = -1 if maxlen is None else maxlen
    fields = numbers_of("sequence_mask", "maxlen", longest)
    return constant_layer("sequence_mask", name, x=x, **fields, out_dtype=int(number))


def lod_reset(x: Variable, y: Variable | None = None, target_lod: Any = None) -> Variable:
    """Give rows other sequences: those of ``y`` (or its elements as offsets), or offsets ``target_lod``."""
    if y is not None:
        return layer("lod_reset", x=x, y=y)
    if target_lod is None:
        raise InvalidValue("lod_reset: y and target_lod should not be both None.")
    return layer("lod_reset", x=x, target_lod=integers(target_lod, "target_lod", "lod_reset", 0))


def lod_append(x: Variable, level: Any) -> Variable:
    """Put a level of sequences behind those of ``x``: offsets, or the sequences of a Variable instead."""
    helper = LayerHelper("lod_append")
    if isinstance(level, Variable):
        return helper.layer("lod_reset", x=x, y=level, append=True)
    attrs = {"append": True, "target_lod": integers(level, "level", "lod_append", 0)}
    return helper.layer("lod_reset", x=x, **attrs)


def sequence_conv(
    input: Floats,
    num_filters: int,
    filter_size: int = 3,
    filter_stride: int = 1,
    padding: Any = True,
    padding_start: int | None = None,
    bias_attr: Any = None,
    param_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Convolve the rows of each sequence: [N, D] to [N, num_filters]; outside of it are zeros.

    Args:
        padding_start: where the window begins, from its row on; ``-(filter_size // 2)`` unless told.
        padding: has no effect, as in Paddle.
    """
    helper = LayerHelper("sequence_conv", name)
    (width,) = known_sizes("sequence_conv", input, 1, "the width")
    weight = helper.create_parameter(param_attr, [filter_size * width, num_filters], input.dtype)
    start = -(filter_size // 2) if padding_start is None else padding_start
    attrs = {"contextStride": filter_stride, "contextStart": start, "contextLength": filter_size}
    out = helper.layer("sequence_conv", x=input, filter=weight, **attrs)
    return helper.activate(helper.add_bias(out, bias_attr), act)


def row_conv(
    input: Floats, future_context_size: int, param_attr: Any = None, act: str | None = None
) -> Variable:
    """Add up a row and ``future_context_size`` behind it in its sequence, each times a row of weights.

    Args:
        input: rows of sequences [N, D], or padded ones [B, T, D].
    """
    helper = LayerHelper("row_conv")
    (width,) = known_sizes("row_conv", input, -1, "the width")
    size = future_context_size + 1
    weight = helper.create_parameter(param_attr, [size, width], input.dtype)
    return helper.activate(helper.layer("row_conv", x=input, filter=weight), act)


def sequence_slice(
    input: Variable, offset: Variable, length: Variable, name: str | None = None
) -> Variable:
    """Return ``length[i]`` rows of sequence i from ``offset[i]`` on; both are integers [B, 1]."""
    offset.stop_gradient = length.stop_gradient = True
    return layer("sequence_slice", name, x=input, offset=offset, length=length)


def sequence_concat(input: Sequence[Variable], name: str | None = None) -> Variable:
    """Put sequence i of each operand behind each other."""
    require_type(input, list, "sequence_concat: input must be a list of Variables")
    for k, variable in enumerate(input):
        check_variable(variable, f"input[{k}]", "sequence_concat")
    return layer("sequence_concat", name, x=input)


def sequence_reshape(input: Variable, new_dim: int) -> Variable:
    """Give the elements of each sequence rows of ``new_dim``."""
    return layer("sequence_reshape", x=input, new_dim=new_dim)


def sequence_scatter(
    input: Variable, index: Variable, updates: Variable, name: str | None = None
) -> Variable:
    """Add the numbers of sequence i of ``updates`` to row i of ``input``, in the columns of ``index``."""
    return layer("sequence_scatter", name, x=input, ids=index, updates=updates)


def sequence_enumerate(
    input: Variable, win_size: int, pad_value: int = 0, name: str | None = None
) -> Variable:
    """Return each number and those behind it in its sequence, [N, win_size], then ``pad_value``."""
    attrs = {"win_size": win_size, "pad_value": pad_value}
    return constant_layer("sequence_enumerate", name, x=input, **attrs)


def im2sequence(
    input: Floats,
    filter_size: Any = 1,
    stride: Any = 1,
    padding: Any = 0,
    input_image_size: Variable | None = None,
    out_stride: Any = 1,
    name: str | None = None,
) -> Variable:
    """Return the patches of each image as a sequence: [B, C, H, W] to [patches, C kernel elements].

    Args:
        filter_size, stride: one number, or [height, width].
        padding: one number, [up and down, left and right], or [up, left, down, right].

    Raises:
        Unsupported: ``input_image_size``: images of several sizes in one array.
    """
    if input_image_size is not None:
        raise Unsupported("im2sequence: images of several sizes (input_image_size) are not built.")
    paddings = integers(padding, "padding", "im2sequence", 2)
    attrs = {
        "kernels": integers(filter_size, "filter_size", "im2sequence", 2),
        "strides": integers(stride, "stride", "im2sequence", 2),
        "paddings": paddings * 2 if len(paddings) == 2 else paddings,
    }
    return layer("im2sequence", name, x=input, **attrs)


def match_matrix_tensor(
    x: Floats,
    y: Floats,
    channel_num: int,
    act: str | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Return x_i W[:, c] y_j for each pair of sequences, channel c and rows i, j: a sequence of [.., 1].

    Args:
        x, y: equally many sequences, [N, D] and [M, E]; W is [D, channel_num, E].

    Returns:
        These, and x times W.
    """
    helper = LayerHelper("match_matrix_tensor", name)
    widths = [known_sizes("match_matrix_tensor", v, -1, "the width")[0] for v in (x, y)]
    weight = helper.create_parameter(param_attr, [widths[0], channel_num, widths[1]], dtype)
    fields = {"x": x, "y": y, "w": weight, "dim_t": channel_num}
    out, tmp = helper.layers("match_matrix_tensor", "Out Tmp", "Tmp", **fields)
    return helper.activate(out, act), tmp


def var_conv_2d(
    input: Floats,
    row: Variable,
    col: Variable,
    input_channel: int,
    output_channel: int,
    filter_size: Any,
    stride: Any = 1,
    param_attr: Any = None,
    act: str | None = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Convolve images of several sizes, padded so that a stride of 1 keeps their size.

    Args:
        input: for each image its numbers [input_channel, height, width], as a sequence of [N, 1].
        row, col: sequences as long as the images are high and wide.
        filter_size, stride: one number, or [height, width]; a side of n gets (n - 1) // stride + 1.

    Returns:
        For each image [output_channel, height, width], as a sequence of [.., 1].
    """
    helper = LayerHelper("var_conv_2d", name)
    kernel, steps = (
        integers(value, argument, "var_conv_2d", 2)
        for argument, value in (("filter_size", filter_size), ("stride", stride))
    )
    shape = [output_channel, input_channel * kernel[0] * kernel[1]]
    weight = helper.create_parameter(param_attr, shape, dtype)
    out, _ = helper.layers(
        "var_conv_2d",
        "Out Col",
        "Col",
        **{"X": input, "ROW": row, "COLUMN": col, "W": weight},
        InputChannel=input_channel,
        OutputChannel=output_channel,
        **dict(zip(("KernelH", "KernelW"), kernel, strict=True)),
        **dict(zip(("StrideH", "StrideW"), steps, strict=True)),
    )
    return helper.activate(out, act)


def sequence_topk_avg_pooling(
    input: Variable, row: Variable, col: Variable, topks: Sequence[int], channel_num: int
) -> Variable:
    """Average the largest numbers of each row of pairs of sequences: [rows, channels * len(topks)].

    Args:
        input: for each pair its numbers [channels, rows, columns], as a sequence of [N, 1].
        row, col: sequences as long as the pairs have rows and columns; the result has those of ``row``.
        topks: how many of the largest, rising; a sum is divided by that even where there are fewer.
    """
    attrs = {"topks": list(topks), "channel_num": channel_num}
    inputs = {"X": input, "ROW": row, "COLUMN": col}
    out, _ = layers("sequence_topk_avg_pooling", None, "Out pos", "pos", **inputs, **attrs)
    return out


def fused_embedding_seq_pool(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    padding_idx: int | None = None,
    combiner: str = "sum",
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Return the sum of the rows of a [vocabulary, width] table that each sequence of ids names.

    With ``is_sparse`` the gradient is rows. Rows of ``padding_idx`` (negative: from the end)
    count as zeros.
    """
    helper = LayerHelper("fused_embedding_seq_pool")
    weight = helper.create_parameter(param_attr, size, dtype)
    padding = -1 if padding_idx is None else padding_idx + size[0] * (padding_idx < 0)
    attrs = {"is_sparse": is_sparse, "combiner": combiner, "padding_idx": padding}
    inputs = {"Ids": input, "W": weight}
    return helper.layer("fused_embedding_seq_pool", **inputs, **attrs)
