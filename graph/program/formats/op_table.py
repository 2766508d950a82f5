"""Ops as Paddle 1.8.5 writes them: input slots, and attributes with their kinds and defaults."""

from __future__ import annotations

import base64
import json
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ....strategies.errors import InvalidValue


class Kind(IntEnum):
    """Kinds of attributes by number (``AttrType``); those from FLOAT64S on came after 1.8."""

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOLEAN = 6
    BOOLEANS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11
    FLOAT64S = 12
    VAR = 13
    VARS = 14
    FLOAT64 = 15
    SCALAR = 16
    SCALARS = 17


# The field of an Attr message that holds a value of each kind.
FIELDS = {
    Kind.INT: "i",
    Kind.FLOAT: "f",
    Kind.STRING: "s",
    Kind.INTS: "ints",
    Kind.FLOATS: "floats",
    Kind.STRINGS: "strings",
    Kind.BOOLEAN: "b",
    Kind.BOOLEANS: "bools",
    Kind.BLOCK: "block_idx",
    Kind.LONG: "l",
    Kind.BLOCKS: "blocks_idx",
    Kind.LONGS: "longs",
    Kind.FLOAT64S: "float64s",
    Kind.VAR: "var_name",
    Kind.VARS: "vars_name",
    Kind.FLOAT64: "float64",
    Kind.SCALAR: "scalar",
    Kind.SCALARS: "scalars",
}
LISTS = {kind for kind in Kind if kind.name.endswith("S")}
_FIXED = {
    "op_role": Kind.INT,
    "op_role_var": Kind.STRINGS,
    "op_namescope": Kind.STRING,
    "op_callstack": Kind.STRINGS,
    "op_device": Kind.STRING,
}
_INT32 = range(-(1 << 31), 1 << 31)


# Attributes that Paddle's layers pass and those here do not: this decides an attribute's place in the file.
ALSO_GIVEN = {
    "adam": {"lazy_mode", "min_row_size_to_use_multithread"},
    "batch_norm": {"fuse_with_relu", "use_mkldnn"},
    "conv2d": {"fuse_relu_before_depthwise_conv", "use_mkldnn"},
    "depthwise_conv2d": {"fuse_relu_before_depthwise_conv", "use_mkldnn"},
    "gaussian_random": {"use_mkldnn"},
    "pool2d": {"use_mkldnn"},
}
# Outputs of which Paddle's shape inference does not say how many LoD levels they have.
WITHOUT_LEVELS = {
    ("accuracy", "Correct"),
    ("accuracy", "Total"),
    ("batch_norm", "SavedMean"),
    ("batch_norm", "SavedVariance"),
    ("cross_entropy2", "MatchX"),
    ("dropout", "Mask"),
    ("fill_constant", "Out"),
    ("layer_norm", "Mean"),
    ("layer_norm", "Variance"),
    ("mean", "Out"),
    ("transpose2", "Out"),
}


class OpEntry(NamedTuple):
    """An op's input slots, and by attribute its kind and Paddle's default (None: it has none)."""

    inputs: tuple[str, ...]
    attrs: dict[str, tuple[Kind, Any]]


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_name("paddle_ops.json").read_text())
    return table


@cache
def entry_of(op_type: str) -> OpEntry | None:
    """Return Paddle's entry of an op type, None if 1.8.5 does not have it."""
    record = _table()["ops"].get(op_type)
    if record is None:
        return None
    attrs = {name: (Kind(kind), default) for name, (kind, default) in record["attrs"].items()}
    return OpEntry(tuple(record["in"]), attrs)


def compatible_map() -> bytes:
    """Return the field ``op_compatible_map`` of a model that 1.8.5 saved, as bytes."""
    return base64.b64decode(_table()["compatible"])


def kind_of(op_type: str, name: str, value: Any) -> Kind:
    """Return the kind of an attribute: the declared one (a gradient's are its forward op's), or the value's.

    Raises:
        InvalidValue: no kind holds the value.
    """
    if name in _FIXED:
        return _FIXED[name]
    for candidate in (op_type, op_type.removesuffix("_grad"), op_type.removesuffix("_grad2")):
        entry = entry_of(candidate)
        if entry is not None and name in entry.attrs:
            return entry.attrs[name][0]
    if isinstance(value, (list, tuple)):
        return Kind[_single(op_type, name, value[0] if value else 0).name + "S"]
    return _single(op_type, name, value)


def _single(op_type: str, name: str, value: Any) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, int):
        return Kind.INT if value in _INT32 else Kind.LONG
    for python, kind in ((float, Kind.FLOAT), (str, Kind.STRING)):
        if isinstance(value, python):
            return kind
    raise InvalidValue(
        f"{op_type}: the attribute {name!r} cannot be written to a file: {value!r} is a {type(value).__name__}."
    )
