"""Messages of Paddle's programs (protocol buffers, ``framework.proto``) as dictionaries, and as bytes.

A message is a dict from field name to value; a repeated field holds a list, and an absent one is no key.
Unknown fields are stored under ``UNKNOWN`` and written again behind the rest, so that bytes stay as they were.
The tables below hold the fields of 1.8.5 and those that later versions added, whose numbers do not overlap.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....strategies.errors import DamagedFile

Message = dict[str, Any]
UNKNOWN = "?"

# number, name, kind; * stands for repeated, ! for required. Kinds are those below, or a message of this table.
_FIELDS = {
    "Version": "1 version int64",
    "ProgramDesc": "1 blocks BlockDesc*; 3 op_compatible_map OpCompatibleMap; 4 version Version; "
    "5 op_version_map OpVersionMap",
    "BlockDesc": "1 idx int32!; 2 parent_idx int32!; 3 vars VarDesc*; 4 ops OpDesc*; "
    "5 forward_block_idx int32",
    "VarDesc": "1 name text!; 2 type VarType!; 3 persistable bool; 4 need_check_feed bool; "
    "5 is_parameter bool; 6 stop_gradient bool; 7 attrs VarAttr*",
    "VarAttr": "1 name text!; 2 type int32!; 3 i int32; 4 s text; 5 ints int32*",
    "VarType": "1 type int32!; 2 selected_rows TensorDesc; 3 lod_tensor LoDTensorDesc; "
    "4 tensor_array LoDTensorDesc; 5 reader ReaderDesc; 7 tuple Tuple; 8 string TensorDesc; "
    "9 strings TensorDesc; 10 vocab TensorDesc; 11 sparse_coo TensorDesc; 12 sparse_csr TensorDesc",
    "TensorDesc": "1 data_type int32; 2 dims int64*",
    "LoDTensorDesc": "1 tensor TensorDesc!; 2 lod_level int32",
    "ReaderDesc": "1 lod_tensor LoDTensorDesc*",
    "Tuple": "1 element_type int32*",
    "OpDesc": "1 inputs Slot*; 2 outputs Slot*; 3 type text!; 4 attrs Attr*; 5 is_target bool",
    "Slot": "1 parameter text!; 2 arguments text*",
    "Attr": "1 name text!; 2 type int32!; 3 i int32; 4 f float; 5 s text; 6 ints int32*; 7 floats float*; "
    "8 strings text*; 10 b bool; 11 bools bool*; 12 block_idx int32; 13 l int64; 14 blocks_idx int32*; "
    "15 longs int64*; 16 float64s double*; 17 var_name text; 18 vars_name text*; 19 float64 double; "
    "20 scalar Scalar; 21 scalars Scalar*",
    "Scalar": "1 type int32!; 2 b bool; 3 i int64; 4 r double; 5 c Complex",
    "Complex": "1 r double!; 2 i double!",
    "OpCompatibleMap": "1 pair CompatiblePair*; 2 default_required_version text",
    "CompatiblePair": "1 op_name text!; 2 compatible_info CompatibleInfo!",
    "CompatibleInfo": "1 version text!; 2 type int32!",
    "OpVersionMap": "1 pair OpVersionPair*",
    "OpVersionPair": "1 op_name text!; 2 op_version OpVersion!",
    "OpVersion": "1 version int32!",
}
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # how a value lies in the file
_WIRE = {"int32": 0, "int64": 0, "bool": 0, "float": _FOUR, "double": _EIGHT, "text": _BYTES}
_NUMBERS = {_FOUR: struct.Struct("<f"), _EIGHT: struct.Struct("<d")}


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a message; its tag stands before each of its values."""

    number: int
    name: str
    kind: str
    repeated: bool
    required: bool

    @property
    def wire(self) -> int:
        return _WIRE.get(self.kind, _BYTES)

    @property
    def tag(self) -> bytes:
        return _varint(self.number << 3 | self.wire)


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _parse(text: str) -> Iterator[_Field]:
    for entry in text.split(";"):
        number, name, kind = entry.split()
        yield _Field(int(number), name, kind.rstrip("*!"), kind[-1] == "*", kind[-1] == "!")


_TABLES = {message: tuple(_parse(text)) for message, text in _FIELDS.items()}
_TAGS = {m: [(f, f.tag, f.wire) for f in fields] for m, fields in _TABLES.items()}
_BY_NUMBER = {
    m: {f.number: (f.name, f.kind, f.repeated, f.wire) for f in fields}
    for m, fields in _TABLES.items()
}
_REQUIRED = {m: [f.name for f in fields if f.required] for m, fields in _TABLES.items()}


def fields(kind: str) -> tuple[_Field, ...]:
    """Return the fields of a kind of message, by number."""
    return _TABLES[kind]


def encode(kind: str, message: Message) -> bytes:
    """Return the bytes of a message of this kind: fields by number, lists unpacked, unknown fields last."""
    parts: list[bytes] = []
    for field, tag, wire in _TAGS[kind]:
        if field.name in message:
            value = message[field.name]
            for item in value if field.repeated else (value,):
                parts.append(tag)
                if wire == _VARINT:
                    parts.append(_varint(int(item)))
                elif wire == _BYTES:
                    body = (
                        item.encode("utf-8", "surrogateescape")
                        if field.kind == "text"
                        else encode(field.kind, item)
                    )
                    parts += (_varint(len(body)), body)
                else:
                    parts.append(_number(wire, item))
    parts.append(message.get(UNKNOWN, b""))
    return b"".join(parts)


def _number(wire: int, value: float) -> bytes:
    try:
        return _NUMBERS[wire].pack(value)
    except OverflowError:  # a float64 beyond float32: what C++ makes of it
        return _NUMBERS[wire].pack(float("inf") if value > 0 else float("-inf"))


def decode(kind: str, data: bytes, label: str = "the program") -> Message:
    """Return the message of this kind that the bytes hold.

    Raises:
        DamagedFile: they hold none; the text begins with ``label`` and names the byte.
    """
    try:
        return _Decoder(data).message(kind, 0, len(data))
    except _Damage as damage:
        offset, problem = damage.args
        raise damaged(label, offset, problem, _FILE_KINDS.get(kind, ""), data[:HEAD]) from None


PROGRAM, TENSORS, STATE = "a saved program", "a file of tensors", "pickled state"
HEAD = 32  # bytes at the begin of a file that tell its kind
_FILE_KINDS = {"ProgramDesc": PROGRAM}
_BEGINNINGS = (
    (b"\x80", f"{STATE} (.pdparams, .pdopt): fluid.load and paddle.load read it"),
    (b"\n", f"{PROGRAM} (__model__, .pdmodel): load_inference_model reads it"),
    (b"PK\x03\x04", "a ZIP archive, such as numpy.savez and torch.save write"),
    (b"\x93NUMPY", "an array that numpy.save wrote: numpy.load reads it"),
    (b"\x1f\x8b", "compressed by gzip: unpack it first"),
    (b"version https://git-lfs", "what Git LFS has in its place: git lfs pull brings the file"),
)


def damaged(
    label: str, at: int | None, problem: str, expected: str = "", head: bytes = b""
) -> DamagedFile:
    """Return the error that names a file and the byte where it is damaged, and says what to do.

    Where ``head``, the file's first bytes, tells that it is of another kind than ``expected``, so does the
    error.
    """
    kind = _kind_of(head) if expected else ""
    where = "" if at is None else f" at byte {at}"
    if kind and not kind.startswith(expected):
        return DamagedFile(f"{label} is not {expected} but {kind}.")
    return DamagedFile(
        f"{label} is damaged{where}: {problem}. Copy it again from where it was "
        f"saved, or load an older one."
    )


def _kind_of(head: bytes) -> str:
    """Return what a file is that begins so, and what reads it; "" if that cannot be told."""
    if not head:
        return "empty: whoever saved or copied it did not come to its end"
    if head[:16] == bytes(16) and head[20:21] == b"\x08":
        return f"{TENSORS} (save_params, save_persistables, .pdiparams): load_vars reads it"
    if len(head) == HEAD and not any(head):
        return "zeros: whoever saved or copied it did not come to its end"
    for begin, kind in _BEGINNINGS:
        if head.startswith(begin):
            return kind
    is_text = head.isascii() and all(chr(c).isprintable() or c in b"\t\r\n" for c in head)
    return "text: name the file that was saved" if is_text else ""


class _Damage(Exception):
    """Bytes that are no message: offset and problem."""


class _Decoder:
    """Reads messages from one string of bytes; every length is checked before it is used."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def message(self, kind: str, at: int, end: int) -> Message:
        """Return the message between two offsets."""
        data, fields, begin = self.data, _BY_NUMBER[kind], at
        fields_read: Message = {}
        unknown = b""
        while at < end:
            start = at
            key = data[at]
            at += 1
            if key > 127:
                key, at = self.varint(start, end)
            field = fields.get(key >> 3)
            wire = key & 7
            if field is None:
                at = self.skip(wire, key >> 3, at, end)
                unknown += data[start:at]
                continue
            name, of, repeated, expected = field
            if wire == expected:
                value, at = self.value(of, wire, at, end)
                if repeated:
                    fields_read.setdefault(name, []).append(value)
                else:
                    fields_read[name] = value
            elif repeated and wire == _BYTES and expected != _BYTES:
                stop, at = self.length(at, end)
                values = fields_read.setdefault(name, [])
                while at < stop:
                    value, at = self.value(of, expected, at, stop)
                    values.append(value)
            else:
                raise _Damage(
                    start, f"field {name!r} of {kind} has wire type {wire}, not {expected}"
                )
        for name in _REQUIRED[kind]:
            if name not in fields_read:
                raise _Damage(begin, f"{kind} lacks its field {name!r}")
        if unknown:
            fields_read[UNKNOWN] = unknown
        return fields_read

    def value(self, kind: str, wire: int, at: int, end: int) -> tuple[Any, int]:
        """Return one value, and where it ends."""
        if wire == _BYTES:
            stop, at = self.length(at, end)
            if kind == "text":
                return self.data[at:stop].decode("utf-8", "surrogateescape"), stop
            return self.message(kind, at, stop), stop
        if wire == _VARINT:
            number, at = self.varint(at, end)
            if kind == "bool":
                return bool(number), at
            if kind == "int32":
                number &= 0xFFFFFFFF
                return number - (number >> 31 << 32), at
            return number - (number >> 63 << 64), at
        layout = _NUMBERS[wire]
        if at + layout.size > end:
            raise _Damage(at, f"a {kind} is cut off")
        return layout.unpack_from(self.data, at)[0], at + layout.size

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Return a number of variable length, and where it ends."""
        number = shift = 0
        for position in range(at, min(at + 10, end)):
            byte = self.data[position]
            number |= (byte & 127) << shift
            if byte < 128:
                return number & 0xFFFFFFFFFFFFFFFF, position + 1
            shift += 7
        raise _Damage(at, "a number does not end")

    def length(self, at: int, end: int) -> tuple[int, int]:
        """Return where a field with a length ends, and where its content begins."""
        size, begin = self.varint(at, end)
        if size > end - begin:
            raise _Damage(at, f"{size} bytes are announced, {end - begin} are left")
        return begin + size, begin

    def skip(self, wire: int, number: int, at: int, end: int) -> int:
        """Return where an unknown field ends."""
        if number == 0:
            raise _Damage(at, "there is no field 0")
        if wire == _VARINT:
            return self.varint(at, end)[1]
        if wire == _BYTES:
            return self.length(at, end)[0]
        size = {_EIGHT: 8, _FOUR: 4}.get(wire)
        if size is None:
            raise _Damage(at, f"there is no wire type {wire}")
        if at + size > end:
            raise _Damage(at, "an unknown field is cut off")
        return at + size
