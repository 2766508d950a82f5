"""Messages as the text that protocol buffers print, which ``Program.to_string`` returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....strategies.types import VarType
from .messages import Message, fields
from .op_table import Kind

_ENUMS = {
    ("VarType", "type"): VarType,
    ("TensorDesc", "data_type"): VarType,
    ("Attr", "type"): Kind,
}
DETAILS = "details"  # a key beside the fields: settings that the message does not hold
_ESCAPES = {"\\": "\\\\", '"': '\\"', "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def text(kind: str, message: Message, indent: str = "") -> str:
    """Return a message of this kind as lines, one a field."""
    return "".join(f"{line}\n" for line in _lines(kind, message, indent))


def _lines(kind: str, message: Message, indent: str) -> Iterator[str]:
    for field in fields(kind):
        if field.name not in message:
            continue
        value = message[field.name]
        for item in value if field.repeated else (value,):
            if isinstance(item, dict):
                yield f"{indent}{field.name} {{"
                yield from _lines(field.kind, item, indent + "  ")
                yield f"{indent}}}"
            else:
                yield f"{indent}{field.name}: {_value(kind, field.name, field.kind, item)}"
    yield from _details(message, indent)


def _details(message: Message, indent: str) -> Iterator[str]:
    for name, value in message.get(DETAILS, {}).items():
        yield f"{indent}{name}: {value}"


def _value(message: str, name: str, kind: str, value: Any) -> str:
    numbers = _ENUMS.get((message, name))
    if numbers is not None and int(value) in list(map(int, numbers)):
        return numbers(int(value)).name
    if kind == "bool":
        return "true" if value else "false"
    if kind == "float":
        return repr(float(np.float32(value)))
    if kind == "text":
        return '"' + "".join(_ESCAPES.get(letter, letter) for letter in value) + '"'
    return repr(value if kind == "double" else int(value))
