"""Pickled state (``.pdparams``, ``.pdopt``, state dicts of 2.x), read without running anything.

This reader follows the instructions of a pickle one by one. They can make arrays, dicts, lists, tuples,
strings, bytes, numbers, booleans and None; it refuses all else. It compares sizes and the number of objects
with the file before it takes memory, which bounds the memory that a hostile file can take.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, ClassVar, NoReturn

import numpy as np

from ....strategies.errors import DamagedFile
from .messages import HEAD, STATE, damaged

_LARGE = 4096  # bytes; a longer string may only become an array
_OBJECTS = 65536  # that any file may make, beside one for every few bytes of it
_KEYS = (str, int, float, bytes, bool, type(None))
_ELEMENTS = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"}
_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray")


class _Mark:
    """Marks where a tuple, list or dict begins on the stack."""


class _Name:
    """A function or class that a pickle names; it is never looked up."""

    def __init__(self, text: str) -> None:
        self.text = text


class _DType:
    """An element type whose byte order a later instruction sets."""

    def __init__(self, code: str) -> None:
        self.dtype = np.dtype(code)


class _Array:
    """An array whose shape and elements a later instruction sets."""

    array: np.ndarray | None = None


_CONSUMED = object()  # stands in the memo for a string that has become part of an array
_KNOWN = {
    **{f"{module} {name}": name for module in _NUMPY for name in ("_reconstruct", "scalar")},
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
    "collections OrderedDict": "OrderedDict",
    "__builtin__ bytes": "bytes",
    "builtins bytes": "bytes",
    "__builtin__ tuple": "tuple",
    "builtins tuple": "tuple",
    "__builtin__ eval": "data",  # how 2.x marks a tensor: it evaluates the name "data" of a dict
    "builtins eval": "data",
}


def read_state(file: BinaryIO, label: str) -> Any:
    """Return the object in a pickle; ``label`` names the file in errors.

    Raises:
        DamagedFile: the file is damaged, or names something that state does not need.
    """
    return _Reader(file, label).read()


class _Reader:
    """Follows the instructions of one pickle."""

    def __init__(self, file: BinaryIO, label: str) -> None:
        self._file = file
        self._label = label
        self._size = file.seek(0, 2)
        self._at = file.seek(0)
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._large: list[int] = []  # numbers of large strings, for one array each
        self._objects = 0

    def read(self) -> Any:
        """Return the object in the pickle."""
        while True:
            code = self._take(1)
            if code == b".":
                return self._finished(self._pop())
            step = self._STEPS.get(code)
            if step is None:
                self._fail(f"instruction {code!r} has no place in state")
            step(self)
            if len(self._stack) + self._objects > _OBJECTS + self._size // 4:
                self._fail("it makes more objects than its size explains")

    # -- bytes and stack -----------------------------------------------------------------------

    def _take(self, size: int) -> bytes:
        if size > self._size - self._at:
            self._fail(f"{size} bytes are announced, {self._size - self._at} are left")
        data = self._file.read(size)
        self._at += size
        return data

    def _number(self, layout: str) -> int:
        number: int = struct.unpack(layout, self._take(struct.calcsize(layout)))[0]
        return number

    def _sized(self, layout: str) -> bytes:
        size = self._number(layout)
        if size < 0:
            self._fail(f"a string has {size} bytes")
        return self._take(size)

    def _fail(self, problem: str) -> NoReturn:
        self._file.seek(0)
        at = max(self._at - 1, 0)
        raise damaged(self._label, at, problem, STATE, self._file.read(HEAD))

    def _push(self, value: Any) -> None:
        self._objects += 1
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack:
            self._fail("the stack is empty")
        return self._stack.pop()

    def _above_mark(self) -> list[Any]:
        for position in range(len(self._stack) - 1, -1, -1):
            if isinstance(self._stack[position], _Mark):
                values = self._stack[position + 1 :]
                del self._stack[position:]
                return values
        self._fail("there is no mark on the stack")

    def _finished(self, value: Any) -> Any:
        """Return a value that may become part of another: arrays only once they have their elements."""
        if isinstance(value, _Array):
            if value.array is None:
                self._fail("an array is used before it has its elements")
            return value.array
        if isinstance(value, _Mark):
            self._fail("a mark is no value")
        return value

    # -- instructions --------------------------------------------------------------------------

    def _text(self, data: bytes) -> None:
        try:
            self._push(data.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            self._fail("a string is not UTF-8")

    def _tuple(self, count: int) -> None:
        if len(self._stack) < count:
            self._fail("the stack is empty")
        values = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        self._push_tuple(values)

    def _push_tuple(self, values: Iterable[Any]) -> None:
        """Push a tuple; one that describes an array may hold parts that are no values by themselves."""
        if any(isinstance(value, _Mark) for value in values):
            self._fail("a mark is no value")
        self._push(
            tuple(v.array if isinstance(v, _Array) and v.array is not None else v for v in values)
        )

    def _append(self, values: list[Any]) -> None:
        target = self._stack[-1] if self._stack else None
        if type(target) is not list:
            self._fail("only a list is appended to")
        target.extend(map(self._finished, values))

    def _store(self, values: list[Any]) -> None:
        target = self._stack[-1] if self._stack else None
        if not isinstance(target, dict) or len(values) % 2:
            self._fail("only a dict takes keys with their values")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, _KEYS):
                self._fail(f"a {type(key).__name__} cannot be a key")
            target[key] = self._finished(value)

    def _put(self, number: int) -> None:
        value = self._stack[-1] if self._stack else None
        if isinstance(value, _Mark):
            self._fail("a mark is no value")
        self._objects += number not in self._memo
        self._memo[number] = value
        parts = value if isinstance(value, tuple) else (value,)
        if any(isinstance(part, (str, bytes)) and len(part) > _LARGE for part in parts):
            self._large.append(number)

    def _get(self, number: int) -> None:
        value = self._memo.get(number, _CONSUMED)
        if value is _CONSUMED:
            self._fail(f"object {number} is not in the memo")
        self._push(value)

    def _name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            self._fail("a name is a string")
        substitute = _KNOWN.get(f"{module} {name}")
        if substitute is None:
            self._fail(
                f"it names {module[:80]}.{name[:80]}. State holds arrays, dicts, lists, strings and "
                f"numbers; Rowlock never calls functions that a file names"
            )
        self._push(_Name(substitute))

    def _global(self) -> None:
        line = b""
        while line.count(b"\n") < 2:
            if len(line) > 256:
                self._fail("a name does not end")
            line += self._take(1)
        module, name, _ = line.decode("utf-8", "replace").split("\n")
        self._name(module, name)

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        self._name(module, name)

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, _Name) or type(arguments) is not tuple:
            self._fail("only functions that it names are called, with a tuple")
        try:
            self._push(getattr(self, f"_call_{function.text}")(*arguments))
        except (TypeError, ValueError, AttributeError) as error:
            self._fail(f"{function.text} has wrong arguments ({str(error)[:80]})")

    def _call__reconstruct(self, kind: Any, shape: Any, code: Any) -> _Array:
        if not isinstance(kind, _Name) or kind.text != "ndarray":
            self._fail("only arrays are built")
        return _Array()

    def _call_scalar(self, kind: Any, data: Any) -> Any:
        return self._elements((), kind, data, False)[()].item()

    def _call_dtype(self, code: Any, *_: Any) -> _DType:
        code = code.decode("latin1") if isinstance(code, bytes) else code
        if not isinstance(code, str) or code.lstrip("<>|=") not in _ELEMENTS:
            self._fail("it names an element type that no tensor has")
        return _DType(code)

    def _call_encode(self, text: str, coding: str = "latin1") -> bytes:
        if coding not in ("latin1", "latin-1") or not isinstance(text, str):
            self._fail("only latin1 text is encoded")
        return text.encode("latin1")

    def _call_OrderedDict(self, items: Any = ()) -> OrderedDict[Any, Any]:
        items_by_key: OrderedDict[Any, Any] = OrderedDict()
        for key, value in items:
            if not isinstance(key, _KEYS):
                self._fail(f"a {type(key).__name__} cannot be a key")
            items_by_key[key] = self._finished(value)
        return items_by_key

    def _call_bytes(self, *arguments: Any) -> bytes:
        if arguments:
            self._fail("bytes come from nothing else")
        return b""

    def _call_tuple(self, items: Any = ()) -> tuple[Any, ...]:
        if not isinstance(items, (list, tuple)):
            self._fail("a tuple comes from a list")
        return tuple(self._finished(item) for item in items)

    def _call_data(self, name: Any, values: Any) -> Any:
        if name != "data" or not isinstance(values, dict) or list(values) != ["data"]:
            self._fail("it calls code")
        return values["data"]

    def _build(self) -> None:
        state, target = self._pop(), self._stack[-1] if self._stack else None
        if isinstance(target, _DType):
            is_told = type(state) is tuple and len(state) > 1 and type(state[1]) is str
            if not is_told or state[1] not in ("<", ">", "|", "="):
                self._fail("an element type has no byte order")
            target.dtype = target.dtype.newbyteorder(state[1])
        elif isinstance(target, _Array):
            if type(state) is not tuple or len(state) not in (4, 5):
                self._fail("an array is described by shape, type and elements")
            target.array = self._elements(state[-4], state[-3], state[-1], state[-2])
            for number in self._large:
                self._memo[number] = _CONSUMED
            self._large.clear()
        else:
            self._fail("only arrays and element types have state")

    def _elements(self, shape: Any, kind: Any, data: Any, fortran: Any) -> np.ndarray:
        data = data.encode("latin1") if isinstance(data, str) else data
        if not isinstance(kind, _DType) or not isinstance(data, bytes) or type(shape) is not tuple:
            self._fail("an array is described by shape, type and elements")
        if len(shape) > 32 or any(type(dim) is not int or dim < 0 for dim in shape):
            self._fail("a shape holds numbers that are not negative")
        size = kind.dtype.itemsize
        for dim in shape:
            size *= dim
        if size != len(data):
            self._fail(f"an array {list(shape)} of {kind.dtype} has {size} bytes, not {len(data)}")
        array = np.frombuffer(data, kind.dtype).reshape(shape, order="F" if fortran else "C")
        return array.astype(array.dtype.newbyteorder("="))

    def _protocol(self) -> None:
        if self._number("<B") > 4:
            self._fail("its protocol is newer than 4")

    def _long(self, layout: str) -> None:
        data = self._sized(layout)
        if len(data) > 16:
            self._fail("a number has more than 16 bytes")
        self._push(int.from_bytes(data, "little", signed=True))

    _STEPS: ClassVar[dict[bytes, Callable[[_Reader], Any]]] = {
        b"\x80": _protocol,
        b"\x95": lambda r: r._number("<Q"),  # a frame: how many bytes belong together
        b"(": lambda r: r._push(_Mark()),
        b"N": lambda r: r._push(None),
        b"\x88": lambda r: r._push(True),
        b"\x89": lambda r: r._push(False),
        b"J": lambda r: r._push(r._number("<i")),
        b"K": lambda r: r._push(r._number("<B")),
        b"M": lambda r: r._push(r._number("<H")),
        b"\x8a": lambda r: r._long("<B"),
        b"\x8b": lambda r: r._long("<i"),
        b"G": lambda r: r._push(struct.unpack(">d", r._take(8))[0]),
        b"T": lambda r: r._push(r._sized("<i").decode("latin1")),
        b"U": lambda r: r._push(r._sized("<B").decode("latin1")),
        b"X": lambda r: r._text(r._sized("<I")),
        b"\x8c": lambda r: r._text(r._sized("<B")),
        b"\x8d": lambda r: r._text(r._sized("<Q")),
        b"B": lambda r: r._push(r._sized("<I")),
        b"C": lambda r: r._push(r._sized("<B")),
        b"\x8e": lambda r: r._push(r._sized("<Q")),
        b"]": lambda r: r._push([]),
        b"l": lambda r: r._push([r._finished(v) for v in r._above_mark()]),
        b"a": lambda r: r._append([r._pop()]),
        b"e": lambda r: r._append(r._above_mark()),
        b")": lambda r: r._push(()),
        b"t": lambda r: r._push_tuple(r._above_mark()),
        b"\x85": lambda r: r._tuple(1),
        b"\x86": lambda r: r._tuple(2),
        b"\x87": lambda r: r._tuple(3),
        b"}": lambda r: r._push({}),
        b"s": lambda r: r._store([r._pop(), r._pop()][::-1]),
        b"u": lambda r: r._store(r._above_mark()),
        b"q": lambda r: r._put(r._number("<B")),
        b"r": lambda r: r._put(r._number("<I")),
        b"\x94": lambda r: r._put(len(r._memo)),
        b"h": lambda r: r._get(r._number("<B")),
        b"j": lambda r: r._get(r._number("<I")),
        b"c": _global,
        b"\x93": _stack_global,
        b"R": _reduce,
        b"b": _build,
        b"0": lambda r: r._pop(),
    }


_SLICED, _STRUCTURED = "UnpackBigParamInfor@@", "StructuredToParameterName@@"


def read_arrays(file: BinaryIO, label: str) -> dict[str, np.ndarray]:
    """Return the arrays of a pickled state by name; arrays that 2.x saved in slices are joined.

    Raises:
        DamagedFile: the file is damaged, or holds something else.
    """
    state = read_state(file, label)
    if not isinstance(state, dict):
        raise DamagedFile(f"{label} holds a {type(state).__name__}, not arrays by name.")
    slices = state.pop(_SLICED, {})
    state.pop(_STRUCTURED, None)
    arrays: dict[str, np.ndarray] = {}
    for name, value in state.items():
        value = value[1] if isinstance(value, tuple) and len(value) == 2 else value  # with its name
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise DamagedFile(
                f"{label} holds a {type(value).__name__} under {str(name)[:80]!r}, not an array."
            )
        arrays[name] = value
    for name, info in slices.items() if isinstance(slices, dict) else ():
        try:
            parts = [arrays.pop(part) for part in info["slices"]]
            arrays[name] = np.concatenate(parts).reshape(info["OriginShape"])
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFile(
                f"{label}: the slices of {str(name)[:80]!r} do not fit ({error})."
            ) from None
    return arrays
