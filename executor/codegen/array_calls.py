"""A scalar expression as a list of array calls (NumPy or CuPy) that write into a given array."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ...graph.ops.expr import Expr, argument
from ...graph.ops.operands import attribute_name
from ...strategies.bounded_dict import BoundedDict
from ..device.device import Device
from ..host.writes import address
from .array_schedule import COPY, TRUTHS, Order
from .erf import erf_into

Step = Callable[[], Any]
Outputs = Sequence[tuple[Expr, Any]]


def trace(
    scalar: Callable[..., Any], attrs: Mapping[str, Any], unused: Collection[str] = ()
) -> tuple[Expr, ...]:
    """Return the expressions an op's ``scalar`` makes from its operands and these attributes.

    ``unused`` names the operands that are left out.
    """
    operands, names = _parameters(scalar)
    settings = {name: attrs[attribute_name(name)] for name in names}
    used = [None if name in unused else argument(name) for name in operands]
    key = scalar, repr(settings), tuple(operand is None for operand in used)
    if key not in _traced:
        result = scalar(*used, **settings)
        _traced[key] = result if isinstance(result, tuple) else (result,)
    return _traced[key]


_TRACED_KEPT = 1000
_traced: BoundedDict[tuple[Callable[..., Any], str, tuple[bool, ...]], tuple[Expr, ...]]
_traced = BoundedDict(_TRACED_KEPT)


@cache
def _parameters(scalar: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Return the names of a scalar's operands, and of the attributes it reads."""
    parameters = inspect.signature(scalar).parameters.values()
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    return [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY], names


def bind_scalar(
    scalar: Callable[..., Expr],
    arrays: Mapping[str, Any],
    attrs: Mapping[str, Any],
    out: Any,
    dev: Device,
) -> list[Step]:
    """Return the calls that evaluate ``scalar`` on ``arrays`` (which broadcast to ``out``) into ``out``."""
    (expression,) = trace(scalar, attrs)
    return bind_calls(dev, [(expression, out)], arrays)


def bind_calls(dev: Device, outputs: Outputs, arrays: Mapping[str, Any]) -> list[Step]:
    """Return the calls that evaluate expressions on ``arrays`` into the outputs.

    A result that has one element for several of its operands' is their sum. Results of one shape and type share
    what they have in common, and one may lie where an operand does.
    """
    whole: dict[Any, list[tuple[Expr, Any]]] = {}
    sums: list[tuple[Expr, Any, tuple[int, ...]]] = []
    for root, out in outputs:
        shape = np.broadcast_shapes(out.shape, *(arrays[name].shape for name in root.reads))
        if out.shape != shape:
            sums.append((root, out, shape))
        elif not lies_there(root, out, arrays):
            whole.setdefault((shape, out.dtype), []).append((root, out))
    terms = {root: out for group in whole.values() for root, out in group if root.fn != COPY}
    steps: list[Step] = []
    for root, out, terms_shape in sums:
        if root not in terms:
            steps += _summed(dev, root, out, terms_shape, arrays)
    for group in whole.values():
        steps += _together(dev, group, arrays)
    return steps + [_sum(dev, terms[root], out) for root, out, _ in sums if root in terms]


def _sum(dev: Device, terms: Any, out: Any) -> Step:
    axes = tuple(i for i, (n, m) in enumerate(zip(out.shape, terms.shape, strict=True)) if n != m)
    return partial(dev.xp.add.reduce, terms, axes, None, out, True)


def lies_there(root: Expr, out: Any, arrays: Mapping[str, Any]) -> bool:
    """Tell whether a result is an operand that lies where it is to be written."""
    if root.fn != COPY or root.args[0].fn != "arg":
        return False
    x = arrays[root.args[0].value]
    same = (x.shape, x.strides, x.dtype) == (out.shape, out.strides, out.dtype)
    return same and address(x) == address(out)


def _summed(
    dev: Device, root: Expr, out: Any, shape: tuple[int, ...], arrays: Mapping[str, Any]
) -> list[Step]:
    """Return the calls for a result that is a sum of terms of this shape."""
    read = [arrays[arg.value] for arg in root.args if arg.fn == "arg"]
    plain = len(read) == len(root.args) and all(array.shape == shape for array in read)
    dense = all(array.flags.c_contiguous for array in read)
    if root.fn == "multiply" and plain and dense and out.size == 1:  # takes no scratch
        left, right = read[0].reshape(1, -1), read[1].reshape(-1, 1)
        return [partial(dev.xp.matmul, left, right, out.reshape(1, 1))]
    if root.fn == COPY and plain:
        return [_sum(dev, read[0], out)]
    terms = dev.scratch(shape, out.dtype)
    return [*_together(dev, [(root, terms)], arrays), _sum(dev, terms, out)]


def _together(dev: Device, outputs: Outputs, arrays: Mapping[str, Any]) -> list[Step]:
    """Return the calls for results of one shape and type."""
    places = {f"result{k}": out for k, (_, out) in enumerate(outputs)}
    like = outputs[0][1]
    dtype = like.dtype
    if dtype == np.bool_:
        floats = [a.dtype for a in arrays.values()]
        dtype = np.result_type(*floats) if floats else dtype
    share = dev.xp.may_share_memory
    updated = {
        name: [operand for operand, x in arrays.items() if share(x, out)]
        for name, out in places.items()
    }
    results = {name: root for name, (root, _) in zip(places, outputs, strict=True)}
    order = Order(results, "scratch", updated=updated, truths=TRUTHS)
    ordered = order.calls()
    memory = {**arrays, **places}
    memory |= {name: dev.scratch_like(like, dtype) for name in order.scratch}
    memory |= {name: dev.scratch_like(like, np.bool_) for name in order.flags}
    steps: list[Step] = []
    for fn, operands, name in ordered:
        values = [memory[x] if isinstance(x, str) else _number(x, dtype) for x in operands]
        steps += calls(dev, fn, values, memory[name])
    return steps


def _number(value: Any, dtype: Any) -> Any:
    """A whole number stays one among integers: 2.0, an attribute, is 2."""
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole and np.dtype(dtype).kind in "iu" else value


def calls(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Step]:
    """Return the array calls of a function, by its NumPy name, on arrays and numbers into an array."""
    special = _SPECIAL.get(fn)
    return (
        [partial(getattr(dev.xp, fn), *args, out)]
        if special is None
        else special(dev, fn, args, out)
    )


def _by_keyword(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Step]:
    """NumPy wants these to be told by keyword where they write."""
    return [partial(getattr(dev.xp, fn), *args, out=out)]


def _copy(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Step]:
    return [partial(dev.xp.copyto, out, args[0])]


def _erf(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Step]:
    return erf_into(dev, args[0], out)


def _rounded_once(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Step]:
    """Of one number, such as a learning rate, round once: Paddle calls C's function, which does so."""
    if dev.xp is not np or out.size != 1 or out.dtype != np.float32:
        return [partial(getattr(dev.xp, fn), args[0], out)]
    wide = dev.scratch(out.shape, np.float64)
    return [
        partial(getattr(np, fn), args[0], wide, dtype=np.float64),
        partial(np.copyto, out, wide, casting="same_kind"),
    ]


def _power(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Step]:
    base, exponent = args
    if out.dtype.kind == "i" and isinstance(exponent, dev.xp.ndarray):
        return [partial(_whole_power, dev.xp, base, exponent, out)]
    return [partial(dev.xp.power, base, exponent, out)]


def _whole_power(xp: Any, base: Any, exponent: Any, out: Any) -> None:
    """A negative power is 1 over a product, cut at the point; of 0 it is the least number, as in Paddle."""
    inverts = exponent < 0
    product = xp.power(base, xp.where(inverts, exponent & 1, exponent))
    is_unit = (base == 1) | (base == -1)
    inverse = xp.where(is_unit, product, xp.where(base == 0, np.iinfo(out.dtype).min, 0))
    xp.copyto(out, xp.where(inverts, inverse, product))


def _where(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Step]:
    """``out`` may be the memory of what is chosen: write the other one, masked, over it.

    A condition may be numbers: what is not 0 holds.
    """
    (condition, yes, no), copy = args, dev.xp.copyto
    if condition.dtype != np.bool_:
        mask = dev.scratch_like(out, np.bool_)
        tested = [partial(dev.xp.not_equal, condition, 0, mask)]
        return tested + _where(dev, fn, [mask, yes, no], out)
    if _same(dev, out, no) and _of_rows(condition, out) and not isinstance(yes, dev.xp.ndarray):
        return [partial(out.__setitem__, condition[..., 0], yes)]
    if _same(dev, out, yes):
        unwanted = dev.scratch_like(out, np.bool_)
        return [
            partial(dev.xp.logical_not, condition, unwanted),
            partial(copy, out, no, where=unwanted),
        ]
    first = [] if _same(dev, out, no) else [partial(copy, out, no)]
    return [*first, partial(copy, out, yes, where=condition)]


def _of_rows(condition: Any, out: Any) -> bool:
    """Tell whether a condition is one for each row: a masked copy would look at each element."""
    return out.shape[-1:] != (1,) and condition.shape == (*out.shape[:-1], 1)


def _same(dev: Device, out: Any, x: Any) -> bool:
    return out is x or (isinstance(x, dev.xp.ndarray) and bool(dev.xp.may_share_memory(out, x)))


_SPECIAL: Mapping[str, Callable[..., list[Step]]] = {
    COPY: _copy,
    "cos": _rounded_once,
    "erf": _erf,
    "exp": _rounded_once,
    "maximum": _by_keyword,
    "minimum": _by_keyword,
    "power": _power,
    "where": _where,
}
