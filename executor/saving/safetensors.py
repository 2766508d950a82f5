"""Arrays by name in one file of the safetensors format: a header of JSON, then the raw data of each."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from ...strategies.errors import DamagedFile, InvalidType
from ...strategies.types import BFLOAT16
from .files import reading

_NAMES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    BFLOAT16.name: "BF16",
}
_DTYPES = {code: np.dtype(name) for name, code in _NAMES.items() if name != BFLOAT16.name}
_DTYPES["BF16"] = BFLOAT16
_METADATA = "__metadata__"
_LARGEST_HEADER = 100 << 20
_ALIGN = 8


def write_safetensors(
    file: BinaryIO, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Write arrays, and texts by name, to a file.

    Raises:
        InvalidType: the format has no such element type.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)}
    end = 0
    for name, array in arrays.items():
        if array.dtype.name not in _NAMES:
            raise InvalidType(f"{name!r} is {array.dtype}, which safetensors files cannot hold.")
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for array in arrays.values():
        if array.nbytes:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read_safetensors(path: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays and the texts of a file.

    Raises:
        MissingFile: there is no such file.
        DamagedFile: it is truncated, or no file of this format.
    """
    with reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LARGEST_HEADER):
            raise DamagedFile(
                f"{path!r} is no safetensors file: it says that its header has {length} bytes."
            )
        try:
            header = json.loads(file.read(length))
            metadata = {str(k): str(v) for k, v in header.pop(_METADATA, {}).items()}
            arrays = {
                name: _read(file, path, name, entry, 8 + length, size)
                for name, entry in header.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, DamagedFile):
                raise
            raise DamagedFile(f"the header of {path!r} cannot be read: {error}.") from error
    return arrays, metadata


def _read(
    file: BinaryIO, path: str, name: str, entry: Mapping[str, Any], base: int, size: int
) -> np.ndarray:
    dtype, shape = _DTYPES[entry["dtype"]], [int(n) for n in entry["shape"]]
    begin, end = entry["data_offsets"]
    nbytes = dtype.itemsize * math.prod(shape)
    if begin < 0 or end - begin != nbytes or base + end > size:
        raise DamagedFile(
            f"{path!r} is truncated or damaged: {name!r} should lie in bytes {base + begin} to {base + end} of "
            f"{size}."
        )
    array = np.empty(shape, dtype)
    file.seek(base + begin)
    if nbytes and file.readinto(array.reshape(-1).view(np.uint8).data) != nbytes:  # type: ignore[attr-defined]
        raise DamagedFile(f"{path!r} ended within {name!r}.")
    return array
