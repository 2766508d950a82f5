"""``paddle.compat``: text and numbers as Python 2 and 3 have them alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .names import publish_listed
from .strategies.errors import InvalidArgument

__all__ = ["floor_division", "get_exception_message", "long_type", "round", "to_bytes", "to_text"]

long_type = int


def _converted(obj: Any, convert: Callable[[Any], Any], inplace: bool) -> Any:
    """Return what lists, sets and dicts hold converted: in a new one, or in the same."""
    if isinstance(obj, list):
        items: Any = [convert(item) for item in obj]
        if inplace:
            obj[:] = items
    elif isinstance(obj, set):
        items = {convert(item) for item in obj}
    elif isinstance(obj, dict):
        items = {convert(key): convert(value) for key, value in obj.items()}
    else:
        return convert(obj)
    if inplace and not isinstance(obj, list):
        obj.clear()
        obj.update(items)
    return obj if inplace else items


def to_text(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Return bytes decoded, by themselves or in a list, set or dict; other things but floats as text."""

    def text(item: Any) -> Any:
        if item is None or isinstance(item, (str, bool, float)):
            return item
        return item.decode(encoding) if isinstance(item, bytes) else str(item)

    return _converted(obj, text, inplace)


def to_bytes(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Return text encoded, by itself or in a list or set."""

    def coded(item: Any) -> Any:
        if item is None or isinstance(item, bytes):
            return item
        return str(item).encode(encoding)

    return coded(obj) if isinstance(obj, dict) else _converted(obj, coded, inplace)


def round(x: float, d: int = 0) -> float:
    """Return x rounded to ``d`` decimals, halves away from zero, as Python 2 does."""
    if x == 0:
        return math.copysign(0.0, x)
    power = 10.0**d
    toward_zero: Callable[[float], int] = math.floor if x > 0 else math.ceil
    return float(toward_zero(x * power + math.copysign(0.5, x))) / power


def floor_division(x: Any, y: Any) -> Any:
    """Return x // y."""
    return x // y


def get_exception_message(exc: BaseException) -> str:
    """Return the message of an exception.

    Raises:
        InvalidArgument: there is no exception.
    """
    if exc is None:
        raise InvalidArgument("get_exception_message takes an exception, got None.")
    return str(exc)


publish_listed(__name__)
