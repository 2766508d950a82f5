"""Turn numbers of an op that are passed as variables into attributes, where the program knows their values.

An op's declaration names such input slots (``Op.numbers``: slot -> attribute). They become attributes before
shapes are inferred, and again when the program is compiled; kernels see numbers only. Known are constants
(fill_constant, assign_value), shapes, and the results of a few small ops on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...strategies.errors import InvalidValue
from ...strategies.types import to_numpy, to_var_type
from ..ops.indexing import slice_bounds
from ..ops.registry import OPS, Op
from ..ops.rules import UNKNOWN_SIZE
from ..ops.view import VIEWS
from .role import EMPTY_VAR

_LARGEST = 1024  # elements: numbers of an op are few
LEFT_TO_RUN = ("reshape", "reshape2")  # -1 in their shape stands for one size that is not known
# Ops that read numbers while the program runs, if it does not know them, and what they are called then.
READ_IN_STEPS = {
    **{kind: f"{kind}_at" for kind in OPS if f"{kind}_at" in OPS},
    "reshape2": "reshape_at",
    "unsqueeze2": "unsqueeze_at",
    "slice_grad": "slice_at_grad",
}
# Gradient ops whose operands tell the sizes, too.
NEEDLESS = {f"{kind}_grad" for kind in READ_IN_STEPS} - READ_IN_STEPS.keys()


class Number(NamedTuple):
    """A variable in a slot of numbers: its elements (None: not known), and its name for errors."""

    elements: np.ndarray | None
    name: str


def numbers_in_use(op: Op, slots: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the slots of an op that stand for attributes and are in use."""
    return [s for s in op.numbers if any(name != EMPTY_VAR for name in slots.get(s, ()))]


def with_numbers(
    op: Op,
    numbers_by_slot: Mapping[str, Sequence[Number]],
    attrs: Mapping[str, Any],
    where: str = "",
) -> dict[str, Any]:
    """Return the attributes, with the values of ``numbers_by_slot`` in place of those they stand for.

    Of two slots for one attribute the one that is declared first counts.

    Raises:
        InvalidValue: the value of a variable is not known before the program runs.
    """
    numbered = dict(attrs)
    for slot, attr in reversed(list(op.numbers.items())):
        if not numbers_by_slot.get(slot):
            continue
        numbers: list[Any] = []
        for number in numbers_by_slot[slot]:
            if number.elements is None:
                raise unknown_error(op, slot, attr, number.name, where)
            numbers += np.ravel(number.elements).tolist()
        if UNKNOWN_SIZE in numbers:
            if op.type not in LEFT_TO_RUN:
                raise unknown_error(op, slot, attr, numbers_by_slot[slot][0].name, where)
            numbers = [-1 if n == UNKNOWN_SIZE else n for n in numbers]
        if isinstance(attr, tuple):
            numbered.update(zip(attr, numbers, strict=True))
        else:
            numbered[attr] = numbers if isinstance(op.attrs[attr], list) else numbers[0]
        numbered.update(op.numbers_set.get(slot, {}))
        if slot == op.numbers_dtype:
            (first, *_) = numbers_by_slot[slot]
            numbered["dtype"] = int(to_var_type(first.elements.dtype))  # type: ignore[union-attr]
    return numbered


def unknown_error(
    op: Op, slot: str, attr: str | tuple[str, ...], name: str, where: str
) -> InvalidValue:
    place = f" Built at {where}." if where else ""
    names = " and ".join(map(repr, attr)) if isinstance(attr, tuple) else repr(attr)
    return InvalidValue(
        f"{op.type}: the values of {names} must be known, and those of {slot} = {name!r} are known only when "
        "the program runs. Pass numbers, or results of fill_constant, assign of an array or shape of known "
        f"sizes.{place}"
    )


def is_computable(op_type: str, shape: Sequence[int]) -> bool:
    """Tell whether the results of an op type may be known, and one of this shape is small enough."""
    return op_type in _MAKERS and prod(abs(size) for size in shape) <= _LARGEST


def of_sizes(
    op_type: str,
    operands: Sequence[np.ndarray | None],
    attrs: Mapping[str, Any],
    shape: Sequence[int],
    dtype: Any,
) -> np.ndarray | None:
    """Return a computable op's results for operands in which UNKNOWN_SIZE may stand for a size, or None."""
    present = [operand for operand in operands if operand is not None]
    if len(present) < len(operands):
        return None
    if op_type in VIEWS:
        return np.reshape(present[0], shape)
    if op_type in _MOVES:
        return _MOVES[op_type](present, attrs)
    if any(UNKNOWN_SIZE in operand for operand in present):
        return _open_result(op_type, present, attrs)
    result = _MAKERS[op_type](present, attrs)
    return None if result is None else np.asarray(result).astype(to_numpy(dtype))


def _open_result(
    op_type: str, operands: Sequence[np.ndarray], attrs: Mapping[str, Any]
) -> np.ndarray | None:
    """Return arithmetic's result for operands with unknown sizes: it is unknown where one takes part."""
    if op_type not in _ARITHMETIC:
        return None
    opened = [operand == UNKNOWN_SIZE for operand in operands]
    closed = [np.where(o, 1, operand) for o, operand in zip(opened, operands, strict=True)]
    result = _MAKERS[op_type](closed, attrs)
    if result is None:
        return None
    reach = opened[0] if len(opened) == 1 else _binary(np.logical_or)(opened, attrs)
    reach = _reduced(np.any)([reach], attrs) if op_type in _REDUCTIONS else reach
    sizes: np.ndarray = np.where(reach, UNKNOWN_SIZE, result).astype(np.int64)
    return sizes


def computed(
    type: str, operands: Sequence[Any], attrs: Mapping[str, Any], dtype: Any
) -> np.ndarray | None:
    """Return an op's results for known operands, or None if they are not known here."""
    compute = _MAKERS.get(type) or _TESTS.get(type)
    few = all(operand.size <= _LARGEST for operand in operands)
    if compute is None or type in ("shape", "size", *VIEWS) or not few:
        return None
    if type in ("fill_constant", "assign_value") and prod(attrs["shape"]) > _LARGEST:
        return None
    result = compute(list(operands), attrs)
    return None if result is None else np.asarray(result).astype(to_numpy(dtype))


def size_values(shape: Sequence[int]) -> np.ndarray:
    return np.array([UNKNOWN_SIZE if size < 0 else size for size in shape], np.int64)


def _fill(operands: list[Any], attrs: Mapping[str, Any]) -> Any:
    value = float(attrs["str_value"] or attrs["value"])
    return np.full([int(n) for n in attrs["shape"]], value)


def _assign(operands: list[Any], attrs: Mapping[str, Any]) -> Any:
    kinds = ("fp32_values", "int64_values", "int32_values", "bool_values")
    values: list[Any] = next((attrs[kind] for kind in kinds if attrs.get(kind)), [])
    return np.array(values).reshape(attrs["shape"])


def _slice(operands: list[Any], attrs: Mapping[str, Any]) -> Any:
    (x,) = operands
    at = [slice(None)] * x.ndim
    for axis, start, end in zip(attrs["axes"], attrs["starts"], attrs["ends"], strict=True):
        at[axis] = slice(*slice_bounds(x.shape[axis], start, end))
    part = x[tuple(at)]
    shape = [n for i, n in enumerate(part.shape) if i not in attrs["decrease_axis"]]
    return part.reshape(shape or [1])


def _scale(operands: list[Any], attrs: Mapping[str, Any]) -> Any:
    (x,), scale, bias = operands, attrs["scale"], attrs["bias"]
    return x * scale + bias if attrs["bias_after_scale"] else (x + bias) * scale


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[list[Any], Mapping[str, Any]], Any]:
    def compute(operands: list[Any], attrs: Mapping[str, Any]) -> Any:
        x, y = operands
        same = x.shape == y.shape or 1 in (x.size, y.size)
        return function(x, y.ravel() if y.size == 1 else y) if same else None

    return compute


def _quotient(x: Any, y: Any) -> Any:
    """Divide; integers as a processor does, which cuts off the fraction."""
    return None if not np.all(y) else np.trunc(x / y) if x.dtype.kind in "iu" else x / y


def _reduced(function: Callable[..., Any]) -> Callable[[list[Any], Mapping[str, Any]], Any]:
    def compute(operands: list[Any], attrs: Mapping[str, Any]) -> Any:
        dims = attrs["dim"] if isinstance(attrs["dim"], list) else [attrs["dim"]]
        axis = None if attrs["reduce_all"] or not dims else tuple(dims)
        return np.atleast_1d(function(operands[0], axis=axis, keepdims=attrs["keep_dim"]))

    return compute


def _cast(operands: list[Any], attrs: Mapping[str, Any]) -> Any:
    (x,) = operands  # a size that is not known yet keeps its stand-in
    return x if UNKNOWN_SIZE in x else x.astype(to_numpy(attrs["out_dtype"]))


_MOVES: dict[str, Callable[[list[Any], Mapping[str, Any]], Any]] = {
    "assign": lambda operands, attrs: operands[0],
    "cast": _cast,
    "slice": _slice,
    "concat": lambda operands, attrs: np.concatenate(operands, attrs["axis"]),
    "stack": lambda operands, attrs: np.stack(operands, attrs["axis"]),
    "gather": lambda operands, attrs: operands[0][np.ravel(operands[1])],
}
_REDUCTIONS = {"reduce_prod": _reduced(np.prod), "reduce_sum": _reduced(np.sum)}
_ARITHMETIC: dict[str, Callable[[list[Any], Mapping[str, Any]], Any]] = {
    "scale": _scale,
    "increment": lambda operands, attrs: operands[0] + attrs["step"],
    "elementwise_add": _binary(np.add),
    "elementwise_sub": _binary(np.subtract),
    "elementwise_mul": _binary(np.multiply),
    "elementwise_div": _binary(_quotient),
    "elementwise_floordiv": _binary(_quotient),
    "elementwise_mod": _binary(lambda x, y: np.mod(x, y) if np.all(y) else None),
    "elementwise_max": _binary(np.maximum),
    "elementwise_min": _binary(np.minimum),
    **_REDUCTIONS,
}
_MAKERS: dict[str, Callable[[list[Any], Mapping[str, Any]], Any]] = {
    **_MOVES,
    **dict.fromkeys(("shape", "size", *VIEWS), lambda operands, attrs: None),
    "fill_constant": _fill,
    "assign_value": _assign,
    "seed": lambda operands, attrs: np.array([attrs["seed"]]) if attrs["seed"] else None,
    **_ARITHMETIC,
}
_TESTS: dict[str, Callable[[list[Any], Mapping[str, Any]], Any]] = {
    "less_than": _binary(np.less),
    "less_equal": _binary(np.less_equal),
    "greater_than": _binary(np.greater),
    "greater_equal": _binary(np.greater_equal),
    "equal": _binary(np.equal),
    "not_equal": _binary(np.not_equal),
    "logical_and": _binary(np.logical_and),
    "logical_or": _binary(np.logical_or),
    "logical_not": lambda operands, attrs: np.logical_not(operands[0]),
}
