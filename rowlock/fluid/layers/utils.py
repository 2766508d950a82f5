"""``fluid.layers.utils``: nested lists, tuples and dicts."""

from __future__ import annotations

from typing import Any

from ...graph.layers.nest import assert_same_structure as assert_same_structure
from ...graph.layers.nest import copy_mutable_vars as copy_mutable_vars
from ...graph.layers.nest import flatten as flatten
from ...graph.layers.nest import hold_mutable_vars as hold_mutable_vars
from ...graph.layers.nest import is_sequence as is_sequence
from ...graph.layers.nest import map_structure as map_structure
from ...graph.layers.nest import pack_sequence_as as pack_sequence_as
from ...names import publish_definitions
from ...strategies.errors import InvalidValue


def convert_to_list(value: Any, n: int, name: str, dtype: Any = int) -> list[Any]:
    """Return ``n`` numbers: one number repeated, or the list itself.

    Raises:
        InvalidValue: it is no number and no list of ``n`` numbers.
    """
    if isinstance(value, dtype):
        return [value] * n
    numbers = list(value) if isinstance(value, (list, tuple)) else None
    if (
        numbers is None
        or len(numbers) != n
        or not all(_is_number(number, dtype) for number in numbers)
    ):
        raise InvalidValue(f"{name} must be a number or a list of {n} numbers, got {value!r}.")
    return numbers


def _is_number(value: Any, dtype: Any) -> bool:
    try:
        dtype(value)
    except (TypeError, ValueError):
        return False
    return True


publish_definitions(
    __name__,
    "assert_same_structure copy_mutable_vars flatten hold_mutable_vars is_sequence map_structure "
    "pack_sequence_as",
)
