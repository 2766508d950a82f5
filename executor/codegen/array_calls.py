"""A scalar expression as a list of array calls (NumPy or CuPy) that write into a given array."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from ...graph.ops.expr import Expr, argument
from ...graph.ops.operands import attribute_name
from ..device.device import Device
from ..host.bounded_dict import BoundedDict
from .erf import erf_into

_BOOLEAN = {
    "greater", "greater_equal", "less", "less_equal", "equal", "not_equal",
    "logical_and", "logical_or", "logical_not", "logical_xor", "isfinite",
}  # fmt: skip


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
) -> list[Callable[[], Any]]:
    """Return the calls that evaluate ``scalar`` on ``arrays`` (which broadcast to ``out``) into ``out``."""
    (expression,) = trace(scalar, attrs)
    return bind_expression(expression, arrays, out, dev)


def bind_expression(
    expression: Expr, arrays: Mapping[str, Any], out: Any, dev: Device
) -> list[Callable[[], Any]]:
    """Return the calls that evaluate an expression on ``arrays`` (which broadcast to ``out``) into ``out``."""
    return _Emitter(arrays, out, dev).emit(expression)


class _Emitter:
    """Orders the calls of one expression and reuses scratch arrays as soon as they are read."""

    def __init__(self, arrays: Mapping[str, Any], out: Any, dev: Device) -> None:
        self.arrays = arrays
        self.out = out
        self.dev = dev
        self.steps: list[Callable[[], Any]] = []
        self.readers: dict[int, int] = {}
        self.values: dict[int, Any] = {}
        self.spare: dict[np.dtype, list[Any]] = {}
        self.work_dtype = out.dtype
        if out.dtype == np.bool_:
            floats = [a.dtype for a in arrays.values() if a is not None and hasattr(a, "dtype")]
            self.work_dtype = np.result_type(*floats) if floats else out.dtype

    def emit(self, root: Expr) -> list[Callable[[], Any]]:
        self._count(root)
        self._value(root, target=self.out)
        return self.steps

    def _count(self, node: Expr) -> None:
        self.readers[id(node)] = self.readers.get(id(node), 0) + 1
        if self.readers[id(node)] == 1:
            for arg in node.args:
                self._count(arg)

    def _value(self, node: Expr, target: Any = None) -> Any:
        if id(node) in self.values:
            return self.values[id(node)]
        if node.fn == "const":
            return self._constant(node.value)
        if node.fn == "arg" and target is None:
            return self.arrays[node.value]
        args = [self._value(arg) for arg in node.args] if node.args else [self.arrays[node.value]]
        for arg in node.args:
            self._release(arg)
        result = self._space(node.fn) if target is None else target
        self.steps += calls(self.dev, node.fn, args, result)
        self.values[id(node)] = result
        return result

    def _constant(self, value: Any) -> Any:
        """A whole number stays one among integers: 2.0, an attribute, is 2."""
        whole = isinstance(value, float) and value.is_integer()
        return int(value) if whole and np.dtype(self.work_dtype).kind in "iu" else value

    def _space(self, fn: str) -> Any:
        dtype = np.dtype(np.bool_) if fn in _BOOLEAN else np.dtype(self.work_dtype)
        spare = self.spare.get(dtype)
        return spare.pop() if spare else self.dev.scratch_like(self.out, dtype)

    def _release(self, node: Expr) -> None:
        """Let the array of a value with no reader left be used again (also as the reader's result)."""
        self.readers[id(node)] -= 1
        if node.fn not in ("arg", "const") and self.readers[id(node)] == 0:
            array = self.values[id(node)]
            self.spare.setdefault(array.dtype, []).append(array)


def calls(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Callable[[], Any]]:
    """Return the array calls of a function, by its NumPy name, on arrays and numbers into an array."""
    special = _SPECIAL.get(fn)
    return (
        [partial(getattr(dev.xp, fn), *args, out)]
        if special is None
        else special(dev, fn, args, out)
    )


def _by_keyword(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Callable[[], Any]]:
    """NumPy wants these to be told by keyword where they write."""
    return [partial(getattr(dev.xp, fn), *args, out=out)]


def _copy(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Callable[[], Any]]:
    return [partial(dev.xp.copyto, out, args[0])]


def _erf(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Callable[[], Any]]:
    return erf_into(dev, args[0], out)


def _rounded_once(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Callable[[], Any]]:
    """Of one number, such as a learning rate, round once: Paddle calls C's function, which does so."""
    if dev.xp is not np or out.size != 1 or out.dtype != np.float32:
        return [partial(getattr(dev.xp, fn), args[0], out)]
    wide = dev.scratch(out.shape, np.float64)
    return [
        partial(getattr(np, fn), args[0], wide, dtype=np.float64),
        partial(np.copyto, out, wide, casting="same_kind"),
    ]


def _power(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Callable[[], Any]]:
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


def _where(dev: Device, fn: str, args: Sequence[Any], out: Any) -> list[Callable[[], Any]]:
    """``out`` may be the memory of what is chosen: write the other one, masked, over it.

    A condition may be numbers: what is not 0 holds.
    """
    (condition, yes, no), copy = args, dev.xp.copyto
    if condition.dtype != np.bool_:
        mask = dev.scratch_like(out, np.bool_)
        tested = [partial(dev.xp.not_equal, condition, 0, mask)]
        return tested + _where(dev, fn, [mask, yes, no], out)
    if out is yes:
        unwanted = dev.scratch_like(out, np.bool_)
        return [
            partial(dev.xp.logical_not, condition, unwanted),
            partial(copy, out, no, where=unwanted),
        ]
    first = [] if out is no else [partial(copy, out, no)]
    return [*first, partial(copy, out, yes, where=condition)]


_SPECIAL: Mapping[str, Callable[..., list[Callable[[], Any]]]] = {
    "arg": _copy,
    "cos": _rounded_once,
    "erf": _erf,
    "exp": _rounded_once,
    "maximum": _by_keyword,
    "minimum": _by_keyword,
    "power": _power,
    "where": _where,
}
