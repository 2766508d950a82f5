"""``paddle.geometric``: segments of rows, and messages along the edges of a graph, each reduced to one row.

The edges of a graph are two vectors of integers: edge i goes from row ``src_index[i]`` to row ``dst_index[i]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from .functions.creation import constant, full_like, zeros_like
from .functions.manipulation import concat, gather, reshape
from .functions.math import add, cumsum, divide, multiply, subtract
from .functions.places import sizes_of_step
from .functions.search import argsort, where
from .graph.layers import binary, picks, sequence
from .graph.layers import shape as layers
from .graph.layers.arguments import Integers, integer
from .graph.program.variable import Variable
from .names import publish_definitions
from .strategies.errors import InvalidValue
from .strategies.types import FLOATS, INTEGERS

_MESSAGES: dict[str, Callable[..., Variable]] = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "div": divide,
}


def segment_sum(data: Variable, segment_ids: Integers, name: str | None = None) -> Variable:
    """The sums of the rows of each segment: [largest id + 1, ...] for data [N, ...] and ids [N].

    Ids rise along the rows. Segments without a row have zeros.
    """
    return _of_segments("sum", data, segment_ids)


def segment_mean(data: Variable, segment_ids: Integers, name: str | None = None) -> Variable:
    """The means of the rows of each segment: see :func:`segment_sum`."""
    return _of_segments("mean", data, segment_ids)


def segment_max(data: Variable, segment_ids: Integers, name: str | None = None) -> Variable:
    """The largest elements of the rows of each segment: see :func:`segment_sum`.

    All that are as large get the gradient.
    """
    return _of_segments("max", data, segment_ids)


def segment_min(data: Variable, segment_ids: Integers, name: str | None = None) -> Variable:
    """The smallest elements of the rows of each segment: see :func:`segment_max`."""
    return _of_segments("min", data, segment_ids)


def send_u_recv(
    x: Variable,
    src_index: Integers,
    dst_index: Integers,
    reduce_op: Literal["sum", "mean", "max", "min"] = "sum",
    out_size: Any = None,
    name: str | None = None,
) -> Variable:
    """The rows of x [N, ...] sent along edges, those that come to a row reduced: [N or ``out_size``, ...].

    ``reduce_op`` is "sum", "mean", "max" or "min"; rows to which no edge goes have zeros. ``out_size`` is an
    int or a Variable of one element.

    Raises:
        InvalidValue: ``out_size`` is below 1.
    """
    messages = gather(x, src_index)
    return _received("send_u_recv", reduce_op, messages, dst_index, x, out_size)


def send_ue_recv(
    x: Variable,
    y: Variable,
    src_index: Integers,
    dst_index: Integers,
    message_op: Literal["add", "sub", "mul", "div"] = "add",
    reduce_op: Literal["sum", "mean", "max", "min"] = "sum",
    out_size: Any = None,
    name: str | None = None,
) -> Variable:
    """As :func:`send_u_recv`, after each row sent met the row of y [edges, ...] that belongs to its edge.

    ``message_op`` is "add", "sub", "mul" or "div"; rows broadcast.

    Raises:
        InvalidValue: ``out_size`` is below 1.
    """
    messages = _message(message_op, gather(x, src_index), y)
    return _received("send_ue_recv", reduce_op, messages, dst_index, x, out_size)


def send_uv(
    x: Variable,
    y: Variable,
    src_index: Integers,
    dst_index: Integers,
    message_op: Literal["add", "sub", "mul", "div"] = "add",
    name: str | None = None,
) -> Variable:
    """Of each edge the row of x that it leaves and the row of y that it goes to, in one: [edges, ...]."""
    return _message(message_op, gather(x, src_index), gather(y, dst_index))


def _message(message_op: str, x: Variable, y: Variable) -> Variable:
    """Combine rows [edges, ...], whose further dimensions are broadcast from the last one."""
    rank = max(x.ndim, y.ndim, 2)
    wide = [
        v if v.ndim == rank else layers.unsqueeze(v, list(range(1, 1 + rank - v.ndim)))
        for v in (x, y)
    ]
    return _MESSAGES[message_op](*wide)


def _check_rows(layer: str, argument: str, numbers: Variable, rows: Variable) -> None:
    """Refuse what does not tell one number for each row."""
    count, (rows_count, *_) = numbers.shape or (), rows.shape or (-1,)
    fits = len(count) == 1 and (count[0] == rows_count or -1 in (count[0], rows_count))
    if not fits:
        raise InvalidValue(
            f"{layer}: {argument} must be a vector with a number for each of {rows_count} rows, and "
            f"{numbers.name!r} has shape {list(count)}."
        )


def _of_segments(reduction: str, data: Variable, ids: Variable) -> Variable:
    _check_rows(f"segment_{reduction}", "segment_ids", ids, data)
    count = reshape(layers.reduce_max(layers.cast(ids, "int64")), [1]) + 1
    return _reduced(reduction, data, ids, count)


def _received(
    layer: str, reduce_op: str, messages: Variable, rows: Variable, x: Variable, out_size: Any
) -> Variable:
    _check_rows(layer, "dst_index", rows, messages)
    if out_size is None:
        out_size = sizes_of_step(x)[0]
    elif not isinstance(out_size, Variable) and integer(out_size, "out_size", layer) < 1:
        raise InvalidValue(f"{layer}: out_size must be above 0, got {out_size!r}.")
    return _reduced(reduce_op, messages, rows, out_size)


def _reduced(reduction: str, messages: Variable, rows: Variable, count: Any) -> Variable:
    """Reduce the messages [M, ...] that go to each of ``count`` rows; zeros where none goes."""
    width = sizes_of_step(messages)[1:]
    places = layers.unsqueeze(rows, [1])

    def total(values: Variable, sizes: list[Any]) -> Variable:
        start = layers.fill_constant([count, *sizes], values.dtype, 0)
        return picks.scatter_nd_add(start, places, values)

    if reduction == "sum":
        return total(messages, width)
    counts = total(full_like(rows, 1, "int64"), [])
    if reduction == "mean":
        counts = binary.elementwise_max(counts, full_like(counts, 1))
        divisor = layers.cast(reshape(counts, [-1] + [1] * len(width)), messages.dtype)
        sums = total(messages, width)
        is_whole = messages.dtype in INTEGERS
        return divide(sums, divisor, rounding_mode="trunc" if is_whole else None)
    sign = 1 if reduction == "max" else -1
    ends = concat([constant([0], "int64"), cumsum(counts, 0)], 0)
    largest = _largest(messages * sign, argsort(rows), ends) * sign
    # What is largest is no function of a sequence's order; its gradient goes to every message that is as large.
    equal = binary.equal(messages, gather(largest, rows))
    chosen = total(where(equal, messages, zeros_like(messages)), width)
    return largest + (chosen - _constant_copy(chosen))


def _largest(messages: Variable, order: Variable, ends: Variable) -> Variable:
    """Return the largest of the messages that lie between ``ends`` in this order; no gradient passes."""
    kind = messages.dtype
    floats = messages if kind in FLOATS else layers.cast(messages, "float64")
    sorted_messages = sequence.lod_reset(gather(_constant_copy(floats), order), ends)
    sorted_messages.desc.set_lod_level(1)
    largest = sequence.sequence_pool(sorted_messages, "max")
    return _constant_copy(largest if kind in FLOATS else layers.cast(largest, kind))


def _constant_copy(x: Variable) -> Variable:
    copy = layers.assign(x)
    copy.stop_gradient = True
    return copy


publish_definitions(__name__)
