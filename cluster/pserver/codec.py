"""Records of ``executor/rpc/messages.py`` as messages of the channel: arrays beside a head of plain data.

What arrives is checked field by field: a head that lacks one, or has one of another type, is no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args, get_type_hints

import numpy as np

from ...executor.replica.message import Message as Framed
from ...executor.rpc import messages as rpc
from ...executor.rpc.messages import Answer, Message
from ...strategies.errors import ProtocolError

Record = Message | Answer
Head = Mapping[str, Any]
Arrays = Sequence[np.ndarray]


def framed(record: Record) -> Framed:
    """Return a record as a message of the channel; its arrays are not copied."""
    kind = type(record).__name__
    if isinstance(record, rpc.Together):
        parts = [framed(part) for part in record.messages]
        listed = [[part.kind, dict(part.head), len(part.arrays)] for part in parts]
        return Framed(kind, {"parts": listed}, [array for part in parts for array in part.arrays])
    if isinstance(record, rpc.Arrays):
        return Framed(kind, {"names": list(record.by_name)}, list(record.by_name.values()))
    fields = vars(record)
    arrays = [value for value in fields.values() if isinstance(value, np.ndarray)]
    plain = {n: v for n, v in fields.items() if v is not None and not isinstance(v, np.ndarray)}
    return Framed(kind, {n: [*v] if isinstance(v, tuple) else v for n, v in plain.items()}, arrays)


def record_of(message: Framed) -> Record:
    """Return the record that a message of the channel carries.

    Raises:
        ProtocolError: it carries none.
    """
    reader = _READERS.get(message.kind)
    try:
        if reader is None:
            raise ValueError("there is no such kind")
        return reader(message.head, message.arrays)
    except (KeyError, ValueError, TypeError) as error:
        raise ProtocolError(
            f"{message.kind!r} is no message between trainers and servers: {error}."
        ) from error


def pushes_of(kind: str, head: Head) -> Iterator[tuple[int, int, int, str]]:
    """Yield (number of the array, trainer, step, name) for the values of each dense push in a message.

    A head that is wrong is found out when the message is read.
    """
    try:
        at = 0
        parts: Any = [[kind, head, 1]] if kind == "Push" else head.get("parts", ())
        for part, fields, count in parts:
            if part == "Push" and count == 1 and not fields["height"]:
                yield (
                    at,
                    _number(fields, "trainer"),
                    _number(fields, "number"),
                    _text(fields, "name"),
                )
            at += count
    except (KeyError, ValueError, TypeError):
        return


def _number(head: Head, name: str) -> int:
    value = head[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"its {name} is {value!r}")
    return value


def _text(head: Head, name: str) -> str:
    value = head[name]
    if not isinstance(value, str):
        raise ValueError(f"its {name} is {value!r}")
    return value


def _texts(head: Head, name: str) -> tuple[str, ...]:
    values = head[name]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"its {name} are {values!r}")
    return tuple(values)


def _row_numbers(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.int64 or array.ndim != 1:
        raise ValueError(f"its rows are {array.dtype}{list(array.shape)}, not int64[n]")
    return array


def _facts(head: Head, name: str) -> Mapping[str, Any]:
    facts = head[name]
    if not isinstance(facts, dict):
        raise ValueError(f"its {name} are no map")
    return facts


def _fields(record: Any, head: Head) -> dict[str, Any]:
    """Return the plain fields of a record, as its head has them."""
    return {name: read(head, name) for name, read in _PLAIN[record].items()}


def _push(head: Head, arrays: Arrays) -> rpc.Push:
    values, *rows = arrays
    if len(rows) > 1:
        raise ValueError(f"it has {len(arrays)} arrays")
    numbers = _row_numbers(rows[0]) if rows else None
    if numbers is not None and (not values.ndim or len(values) != len(numbers)):
        raise ValueError(f"it has {len(numbers)} row numbers for {list(values.shape)} values")
    return rpc.Push(**_fields(rpc.Push, head), values=values, rows=numbers)


def _lookup(head: Head, arrays: Arrays) -> rpc.Lookup:
    (ids,) = arrays
    return rpc.Lookup(**_fields(rpc.Lookup, head), ids=_row_numbers(ids))


def _together(head: Head, arrays: Arrays) -> rpc.Together:
    messages: list[rpc.Single] = []
    at = 0
    for kind, fields, count in head["parts"]:
        if kind not in _SINGLE or type(count) is not int or count < 0:
            raise ValueError(f"a part of it is {kind!r} of {count!r} arrays")
        part: Any = _READERS[kind](fields, arrays[at : at + count])
        messages.append(part)
        at += count
    if at != len(arrays) or not messages:
        raise ValueError(f"it has {len(messages)} parts and {len(arrays)} arrays")
    return rpc.Together(tuple(messages))


def _without_arrays(record: Any, head: Head, arrays: Arrays) -> Any:
    if len(arrays):
        raise ValueError(f"it has {len(arrays)} arrays")
    return record(**_fields(record, head))


_READ: dict[Any, Callable[[Head, str], Any]] = {
    int: _number, str: _text, tuple[str, ...]: _texts, Mapping[str, Any]: _facts
}  # fmt: skip
_RECORDS = (*get_args(rpc.Single), rpc.Welcome, rpc.Taken, rpc.Report, rpc.Refused)
_PLAIN = {
    record: {name: _READ[hint] for name, hint in get_type_hints(record).items() if hint in _READ}
    for record in _RECORDS
}
_SINGLE = {record.__name__ for record in get_args(rpc.Single)}
_READERS: dict[str, Callable[[Head, Arrays], Record]] = {
    **{record.__name__: partial(_without_arrays, record) for record in _RECORDS},
    "Push": _push,
    "Lookup": _lookup,
    "Together": _together,
    "Arrays": lambda head, a: rpc.Arrays(dict(zip(_texts(head, "names"), a, strict=True))),
}
