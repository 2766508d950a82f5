"""Results of the elements so far along a dimension, and runs of equal ones, with Paddle 2.x's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from ..graph.layers import binary, tensors
from ..graph.layers import shape as layers
from ..graph.layers.arguments import axis_of, of_family
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from .creation import arange, constant, full_like
from .elementwise import logaddexp
from .manipulation import gather
from .math import cumsum, floats
from .places import take_along_axis
from .search import argsort, nonzero, where
from .views import diff

Values = tuple[Variable, ...]


def _scanned(values: Values, axis: int, combine: Callable[[Values, Values], Values]) -> Values:
    """Combine each element with all before it, in as many rounds as the length has binary digits.

    In each round every element takes in the one that is 1, 2, 4, ... places before it: Hillis and Steele, CACM
    29 (1986). ``combine`` takes what comes first, then what follows.
    """
    size, step = (values[0].shape or ())[axis], 1
    while step < size:
        ends = [(0, step), (0, size - step), (step, size)]
        head, before, after = (
            tuple(layers.slice(v, [axis], [start], [end]) for v in values) for start, end in ends
        )
        pairs = zip(head, combine(before, after), strict=True)
        values = tuple(layers.concat(list(pair), axis) for pair in pairs)
        step *= 2
    return values


def _line(x: Variable, axis: int | None, function: str) -> tuple[Variable, int]:
    """Return x, flat without ``axis``, and the number of the dimension.

    Raises:
        InvalidValue: its size is not known.
    """
    x, place = (layers.reshape(x, [-1]), 0) if axis is None else (x, axis_of(x, axis, function))
    if (x.shape or ())[place] < 1:
        raise InvalidValue(
            f"{function}: how many elements {x.name!r} has along axis must be known."
        )
    return x, place


def _extreme(
    x: Variable, axis: int | None, dtype: Any, function: str, beats: Callable[..., Variable]
) -> tuple[Variable, Variable]:
    x, place = _line(x, axis, function)
    size = (x.shape or ())[place]
    sizes = [size if i == place else 1 for i in range(x.ndim)]
    numbers = layers.reshape(arange(size, dtype="int64"), sizes)
    numbers = binary.elementwise_add(layers.cast(full_like(x, 0), "int64"), numbers)

    def combine(before: Values, after: Values) -> Values:
        stays = beats(after[0], before[0])
        stays = binary.logical_or(stays, binary.not_equal(after[0], after[0]))  # NaN
        return tuple(where(stays, b, a) for a, b in zip(before, after, strict=True))

    _, best = _scanned((x, numbers), place, combine)
    best.stop_gradient = True
    return take_along_axis(x, best, place), layers.cast(best, dtype)


def cummax(
    x: Variable, axis: int | None = None, dtype: Any = "int64", name: str | None = None
) -> tuple[Variable, Variable]:
    """The largest of the elements so far along ``axis`` (None: of all, in a row), and where it stands.

    Of equal ones the last counts; NaN is larger than all.
    """
    return _extreme(x, axis, dtype, "cummax", binary.greater_equal)


def cummin(
    x: Variable, axis: int | None = None, dtype: Any = "int64", name: str | None = None
) -> tuple[Variable, Variable]:
    """The smallest of the elements so far along ``axis`` (None: of all, in a row), and where it stands.

    Of equal ones the last counts; NaN is smaller than all.
    """
    return _extreme(x, axis, dtype, "cummin", binary.less_equal)


def logcumsumexp(
    x: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """log(sum(exp)) of the elements so far along ``axis`` (None: of all, in a row), without overflow."""
    x, place = _line(floats(x) if dtype is None else layers.cast(x, dtype), axis, "logcumsumexp")
    return _scanned((x,), place, lambda a, b: (logaddexp(a[0], b[0]),))[0]


def unique_consecutive(
    x: Variable,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: Any = "int64",
    name: str | None = None,
) -> Any:
    """One of each run of equal elements (along ``axis``: slices).

    Args:
        return_inverse: also return, for each element, the number of its run.
        return_counts: also return how long the runs are.

    Raises:
        InvalidValue: there is no such dimension.
    """
    x, place = (
        (layers.reshape(x, [-1]), 0)
        if axis is None
        else (x, axis_of(x, axis, "unique_consecutive"))
    )
    pair = [layers.slice(x, [place], [start], [end]) for start, end in ((1, 2**31 - 1), (0, -1))]
    begins = binary.not_equal(*pair)
    others = [i for i in range(x.ndim) if i != place]
    if others:
        begins = tensors.reduce_any(begins, others)
    begins = layers.concat([constant([True], "bool"), begins], 0)
    starts = layers.reshape(nonzero(begins), [-1])
    results = [gather(x, starts, place)]
    if return_inverse:
        results.append(layers.cast(cumsum(layers.cast(begins, "int64"), 0) - 1, dtype))
    if return_counts:
        size = layers.cast(layers.shape(x)[place : place + 1], "int64")
        results.append(layers.cast(diff(layers.concat([starts, size], 0)), dtype))
    return results[0] if len(results) == 1 else tuple(results)


def _among_numbers(
    x: Variable, axis: int | Sequence[int] | None, keepdim: bool, function: str
) -> Any:
    """Return the numbers along ``axis`` in order, NaN behind them; how many; and how to shape a result."""
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    axes = sorted(axis_of(x, a, function) for a in axes)
    rest = [i for i in range(x.ndim) if i not in axes]
    rows = layers.transpose(floats(x), [*rest, *axes])
    rows = layers.reshape(rows, [*([0] * len(rest)), -1])
    is_number = binary.equal(rows, rows)
    count = layers.reduce_sum(layers.cast(is_number, "int64"), -1, True)
    rows = where(is_number, rows, full_like(rows, float("inf")))

    def shaped(result: Variable) -> Variable:
        if not rest:
            return layers.reshape(result, [1] * x.ndim) if keepdim else result
        result = layers.squeeze(result, [len(rest)])
        return layers.unsqueeze(result, axes) if keepdim else result

    return rows, count, shaped


def _at(rows: Variable, order: Variable, count: Variable, place: Variable) -> Variable:
    """Return the element at a place in order, NaN where there are no numbers."""
    place = where(place < 0, full_like(place, 0), place)
    value = take_along_axis(rows, take_along_axis(order, place, -1), -1)
    return where(binary.equal(count, full_like(count, 0)), full_like(value, float("nan")), value)


def nanmedian(
    x: Variable,
    axis: Any = None,
    keepdim: bool = False,
    mode: Literal["avg", "min"] = "avg",
    name: str | None = None,
) -> Any:
    """The middle of the elements that are numbers; of an even count the mean of two, or the lower ("min").

    With "min" and one dimension as ``axis`` the result is (values, indices).
    """
    rows, count, shaped = _among_numbers(x, axis, keepdim, "nanmedian")
    order = argsort(rows, -1)
    low = _halved(count - 1)
    value = _at(rows, order, count, low)
    if mode == "avg":
        return shaped((value + _at(rows, order, count, _halved(count))) * 0.5)
    if not isinstance(axis, int):
        return shaped(value)
    place = where(low < 0, full_like(low, 0), low)
    return shaped(value), shaped(take_along_axis(order, place, -1))


def _halved(count: Variable) -> Variable:
    return binary.elementwise_floordiv(count, full_like(count, 2))


# Of a place between two elements, the share of the second: what is behind the point, and whether that is 0.
_SHARES: dict[str, Callable[[Variable, Variable], Variable]] = {
    "linear": lambda share, above: share,
    "lower": lambda share, above: above * 0.0,
    "higher": lambda share, above: above,
    "midpoint": lambda share, above: above * 0.5,
    "nearest": lambda share, above: layers.cast(share > 0.5, share.dtype),
}


def _quantile(
    skips_nan: bool,
    x: Variable,
    q: float | Sequence[float],
    axis: int | Sequence[int] | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
    name: str | None = None,
) -> Variable:
    """The values below which parts ``q`` of the elements along ``axis`` lie; several ``q`` come in front.

    Between two elements: "linear", "lower", "higher", "midpoint" or "nearest". Integers become float32. NaN in
    a row makes its quantiles NaN; ``nanquantile`` leaves it out.

    Raises:
        InvalidValue: a ``q`` is outside [0, 1], or ``interpolation`` is another word.
    """
    function = "nanquantile" if skips_nan else "quantile"
    parts = [q] if isinstance(q, (int, float)) else list(q)
    if interpolation not in _SHARES or not parts or not all(0 <= part <= 1 for part in parts):
        raise InvalidValue(
            f"{function}: q is in [0, 1] and interpolation one of {', '.join(_SHARES)}, got {q!r}, "
            f"{interpolation!r}."
        )
    rows, count, shaped = _among_numbers(x, axis, keepdim, function)
    size = layers.cast(layers.shape(rows)[-1:], "int64")
    order, results = argsort(rows, -1), []
    for part in parts:
        at = layers.cast(count - 1, rows.dtype) * float(part)
        low = layers.cast(at, "int64")
        share = at - layers.cast(low, rows.dtype)
        above = layers.cast(share > 0.0, rows.dtype)
        ends = [
            _at(rows, order, count, place) for place in (low, low + layers.cast(above, "int64"))
        ]
        share = _SHARES[interpolation](share, above)
        value = ends[0] * (1.0 - share) + ends[1] * share
        if not skips_nan:
            value = where(count == size, value, full_like(value, float("nan")))
        results.append(shaped(value))
    return results[0] if len(results) == 1 else layers.stack(results, 0)


quantile = of_family(_quantile, False, "quantile")
nanquantile = of_family(_quantile, True, "nanquantile")


publish_definitions(__name__)
