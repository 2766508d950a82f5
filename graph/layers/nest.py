"""Structures of variables: nested lists, tuples and dicts, and their leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue


def is_sequence(seq: Any) -> bool:
    """Tell whether ``seq`` is a list, a tuple or a dict: what has a structure."""
    return isinstance(seq, dict) or (isinstance(seq, Sequence) and not isinstance(seq, str))


def _items(nest: Any) -> list[Any]:
    """Return the entries of one level, those of dicts in the order of their keys."""
    return [nest[key] for key in sorted(nest)] if isinstance(nest, dict) else list(nest)


def flatten(nest: Any) -> list[Any]:
    """Return the leaves of a structure as a list."""
    if not is_sequence(nest):
        return [nest]
    return [leaf for item in _items(nest) for leaf in flatten(item)]


def _like(nest: Any, items: Sequence[Any]) -> Any:
    """Return a level of the kind of ``nest``."""
    if isinstance(nest, dict):
        by_key = dict(zip(sorted(nest), items, strict=True))
        return type(nest)((key, by_key[key]) for key in nest)
    return type(nest)(*items) if hasattr(nest, "_fields") else type(nest)(items)


def _packed(nest: Any, leaves: Iterator[Any]) -> Any:
    if not is_sequence(nest):
        return next(leaves)
    return _like(nest, [_packed(item, leaves) for item in _items(nest)])


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """Return leaves in a structure, as ``flatten`` took them from one.

    Raises:
        InvalidType: ``flat_sequence`` is no list.
        InvalidValue: it has more or fewer leaves than the structure.
    """
    if not is_sequence(flat_sequence):
        raise InvalidType(f"pack_sequence_as takes a list of leaves, got {flat_sequence!r}.")
    count = len(flatten(structure))
    if count != len(flat_sequence):
        raise InvalidValue(
            f"pack_sequence_as: a structure of {count} leaves, and {len(flat_sequence)} to pack."
        )
    return _packed(structure, iter(flat_sequence))


def map_structure(func: Callable[..., Any], *structure: Any) -> Any:
    """Return the structure of the first with ``func`` of the leaves of all, place by place."""
    rows = zip(*[flatten(one) for one in structure], strict=False)
    return pack_sequence_as(structure[0], [func(*row) for row in rows])


def hold_mutable_vars(structure: Any) -> bool:
    """Tell whether there is a list or a dict in a structure, which a program could change."""
    if not is_sequence(structure):
        return False
    return isinstance(structure, (list, dict)) or any(map(hold_mutable_vars, structure))


def copy_mutable_vars(structure: Any) -> Any:
    """Return a structure whose lists and dicts are copies, with the same leaves."""
    return pack_sequence_as(copy.copy(structure), flatten(structure))


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True) -> None:
    """Check that two structures are alike.

    Raises:
        InvalidValue: they differ in their numbers of entries or in the keys of dicts.
        InvalidType: with ``check_types``, a level of one is of another type.
    """
    if is_sequence(nest1) != is_sequence(nest2):
        raise InvalidValue(f"The structures differ: {nest1!r} and {nest2!r}.")
    if not is_sequence(nest1):
        return
    if check_types and type(nest1) is not type(nest2):
        raise InvalidType(f"The structures differ: a {type(nest1)} and a {type(nest2)}.")
    keys = [sorted(nest) if isinstance(nest, dict) else len(nest) for nest in (nest1, nest2)]
    if keys[0] != keys[1]:
        raise InvalidValue(f"The structures differ: {nest1!r} and {nest2!r}.")
    for one, other in zip(_items(nest1), _items(nest2), strict=True):
        assert_same_structure(one, other, check_types)
