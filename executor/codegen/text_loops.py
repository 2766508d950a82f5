"""Loops written as text, in the language of ``translation.py``, whose arrays and numbers go by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from ..cuda.step import Step
from ..device.device import Device
from ..host.writes import address
from .native import Launch, launch
from .scalar_math import definitions

_T = TypeVar("_T")
# Pointers to elements, as ``translation.py`` has them, by the letter of a type; a bool is a byte.
_KINDS = {
    "f": "f32",
    "d": "f64",
    "i": "i32",
    "I": "u32",
    "l": "i64",
    "q": "i64",
    "B": "u8",
    "?": "u8",
}


def bind_text(
    text: str, arrays: Mapping[str, Any], functions: str = "", /, **numbers: int
) -> Launch:
    """Return the call of a text: the body of a function, four spaces from the margin.

    ``arrays`` are pointers there, to elements of their types (of one that is None: to nothing), ``numbers``
    are int64; ``functions`` are those of its own that it calls.
    """
    operands = arrays.values()
    kinds = tuple(["f32" if array is None else _KINDS[array.dtype.char] for array in operands])
    words = [0 if array is None else address(array) for array in operands]
    source = _source(text, functions, tuple(arrays), kinds, tuple(numbers))
    return launch(source, [*words, *numbers.values()], *operands)


def bind_checked(
    dev: Device,
    text: str,
    arrays: Mapping[str, Any],
    error: Callable[[int], Exception],
    /,
    **numbers: int,
) -> list[Step]:
    """Return the call of a text that may refuse a number, and the one that raises the error then.

    The text notes it by ``wrong[0], wrong[1] = 1, number``.
    """
    wrong = dev.scratch((2,), np.int64)

    def check() -> None:
        if wrong[0]:
            raise error(int(wrong[1]))

    return [_noting(text, arrays, wrong, "", numbers), check]


def bind_or(
    dev: Device,
    text: str,
    arrays: Mapping[str, Any],
    otherwise: Step,
    functions: str = "",
    /,
    **numbers: int,
) -> list[Step]:
    """Return the call of a text that leaves some operands to ``otherwise``, and the one that calls this then.

    The text notes it by ``wrong[0] = 1``. Of operands that are bad, ``otherwise`` raises the error.
    """
    wrong = dev.scratch((1,), np.int64)

    def check() -> None:
        if wrong[0]:
            otherwise()

    return [_noting(text, arrays, wrong, functions, numbers), check]


def _noting(
    text: str,
    arrays: Mapping[str, Any],
    wrong: Any,
    functions: str,
    numbers: Mapping[str, int],
) -> Launch:
    return bind_text(f"    wrong[0] = 0{text}", {**arrays, "wrong": wrong}, functions, **numbers)


def named(names: str, values: Iterable[_T]) -> dict[str, _T]:
    """Return values by names, which stand in one string."""
    return dict(zip(names.split(), values, strict=True))


def known(*arrays: Any) -> bool:
    """Tell whether a text can read and write these arrays, as far as their types go: sums are of float32."""
    return all(array.dtype.char in _KINDS and array.dtype.char != "d" for array in arrays)


@lru_cache(1024)
def _source(
    text: str, functions: str, arrays: Sequence[str], kinds: Sequence[str], numbers: Sequence[str]
) -> str:
    words = [f"{kind}(words[{k}])" for k, kind in enumerate(kinds)]
    words += [f"words[{k}]" for k, _ in enumerate(numbers, len(kinds))]
    pairs = zip((*arrays, *numbers), words, strict=True)
    head = [f"    {name} = {word}" for name, word in pairs]
    lines = [functions, "def run(words):", *head, text.strip("\n"), ""]
    return definitions(functions + text) + "\n".join(lines)
