"""Paddle's global flags: ``set_flags``, ``get_flags``.

Each starts from the environment variable of its name, which is read at the first access to the flag. Only
``FLAGS_selected_gpus`` follows its variable until it is set, as in Paddle.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import InvalidType, InvalidValue, nearest, require_type


@dataclass(frozen=True)
class Flag:
    """One flag: its default, its effect here, and whether it follows its environment variable."""

    default: bool | int | float | str
    meaning: str
    follows: bool = False


FLAGS: dict[str, Flag] = {
    "FLAGS_selected_gpus": Flag("", "ids that cuda_places() returns, such as '0,1'", follows=True),
    "FLAGS_fuse_parameter_memory_size": Flag(
        -1.0,
        "MB of gradients that travel in one collective; not above 0: ClusterConfig.bucket_bytes",
    ),
    "FLAGS_fuse_parameter_groups_size": Flag(
        1, "above 1: no more gradients than this travel in one collective"
    ),
    "FLAGS_eager_delete_tensor_gb": Flag(
        0.0, "read back only: temporaries live in one planned arena"
    ),
    "FLAGS_cpu_deterministic": Flag(
        False, "read back only: sums are always formed in the order of the places"
    ),
    "FLAGS_measure_kernels": Flag(
        True,
        "kernels are chosen by what was measured for a program's shapes (not in Paddle); off: by rule alone, "
        "for the same bits on every machine",
    ),
    "FLAGS_check_nan_inf": Flag(
        False, "a step names the first op that makes NaN or infinity, and changes nothing then"
    ),
}
_values: dict[str, Any] = {}


def get_flags(flags: str | Sequence[str]) -> dict[str, Any]:
    """Return the values of one flag or several, by name.

    Raises:
        InvalidType: neither a name nor a list or tuple of names.
        InvalidValue: there is no such flag.
    """
    names = [flags] if isinstance(flags, str) else flags
    if not isinstance(names, (list, tuple)):
        raise InvalidType(f"get_flags takes a name or a list of names, got {flags!r}.")
    return {name: flag_value(name) for name in names}


def set_flags(flags: Mapping[str, Any]) -> None:
    """Set flags by name. Programs compiled afterwards see them.

    Raises:
        InvalidType: not a dict.
        InvalidValue: there is no such flag, or it does not take this value.
    """
    require_type(flags, dict, "set_flags takes a dict of values by name")
    values = {name: _read(name, value) for name, value in flags.items()}
    _values.update(values)


def flag_value(name: str) -> Any:
    """Return a flag's value: the one set, else the environment's, else the default.

    Raises:
        InvalidValue: there is no such flag, or the environment's value cannot be read.
    """
    value = _values.get(name)
    if value is None:
        flag, text = _flag(name), os.environ.get(name)
        value = flag.default if text is None else _read(name, text)
        if not flag.follows:
            _values[name] = value
    return value


def _flag(name: Any) -> Flag:
    if name not in FLAGS:
        raise InvalidValue(f"there is no flag {name!r}.{nearest(str(name), FLAGS)}")
    return FLAGS[name]


def _read(name: str, value: Any) -> Any:
    kind = type(_flag(name).default)
    try:
        if kind is bool and isinstance(value, str):
            return {"1": True, "true": True, "0": False, "false": False}[value.lower()]
        if isinstance(value, str) != (kind is str) and not isinstance(value, str):
            raise ValueError
        return kind(value)
    except (KeyError, TypeError, ValueError):
        raise InvalidValue(
            f"{name} takes a value of type {kind.__name__}, got {value!r}."
        ) from None
