"""Convert a user's feeds, and check them against the program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from ...graph.ir.sequences import level_name
from ...graph.program.program import Program
from ...graph.program.variable import Variable
from ...strategies.errors import FeedError, FeedTypeError, InvalidType, SequenceError, nearest
from ...strategies.types import BFLOAT16, ELEMENT_TYPES, VarType, is_float, to_numpy
from ..cuda.page_locked import page_locked
from ..device.tensor import LoD, Tensor

Feed = Mapping[str, Any]


def to_array(name: str, value: Any, variable: Variable) -> np.ndarray:
    """Convert a fed value to an array. A number becomes shape [1] in the variable's dtype.

    Arrays of uint16 are the bits of bfloat16 where that is declared.

    Raises:
        FeedTypeError: the value is a Python list or holds no numbers.
        FeedError: a number does not fit the variable's dtype.
    """
    if type(value) is np.ndarray:
        array = value
    elif isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        return _number(name, value.item() if isinstance(value, np.generic) else value, variable)
    elif isinstance(value, (list, tuple)) or value is None or isinstance(value, (str, bytes)):
        cure = (
            f"Feed a numpy array, for example numpy.array(value, {str(_dtype_name(variable))!r})."
        )
        if variable.lod_level:
            cure = (
                f"{name!r} holds sequences (lod_level={variable.lod_level}): "
                f"feed fluid.create_lod_tensor(rows, lengths, place), or what a DataFeeder makes of samples."
            )
        raise FeedTypeError(f"feed {name!r}: got a Python {type(value).__name__}. {cure}")
    elif isinstance(value, Variable):
        raise FeedTypeError(
            f"feed {name!r}: got the {value}, which has numbers only while a step runs. Feed an array, such as "
            f"exe.run(..., fetch_list=[{value.name!r}]) returns."
        )
    else:
        array = _of_tensor(value) if isinstance(value, Tensor) else _as_array(name, value, variable)
    if array.dtype == np.uint16 and variable.dtype == VarType.BF16:
        return array.view(BFLOAT16)  # Paddle's way to feed it
    if array.dtype == object:
        raise FeedTypeError(
            f"feed {name!r}: an array of Python objects cannot be fed, which NumPy makes of rows of different "
            f"lengths. Pad them alike, or feed sequences: fluid.create_lod_tensor(rows, lengths, place)."
        )
    if array.dtype not in ELEMENT_TYPES:
        raise FeedTypeError(
            f"feed {name!r}: an array of {array.dtype} cannot be fed; use numbers of a type that variables "
            f"have, for example {_dtype_name(variable)}."
        )
    return array


def _of_tensor(tensor: Tensor) -> np.ndarray:
    """Return a tensor's array; a copy if the tensor is a variable's, which the step may overwrite."""
    return np.asarray(tensor.numpy() if tensor.name else tensor.memory())


def _number(name: str, value: float, variable: Variable) -> np.ndarray:
    """Return a Python number in the variable's dtype, as shape [1]; a fraction is cut off for integers."""
    dtype = np.dtype(_dtype_name(variable)) if variable.dtype != VarType.BF16 else BFLOAT16
    if dtype == np.bool_:
        return np.full((1,), bool(value))
    try:
        if is_float(dtype):
            with np.errstate(over="ignore"):
                array = np.full((1,), float(value), dtype)
            fits = bool(np.isfinite(array[0])) or not math.isfinite(value)
        else:
            array = np.full((1,), int(value), dtype)
            fits = True
    except (OverflowError, ValueError):  # ValueError: NaN is no integer
        fits = False
    if fits:
        return array
    # Python refuses to write very long integers.
    long = isinstance(value, int) and value.bit_length() > 128
    text = f"an integer of {int(value).bit_length()} bits" if long else repr(value)
    low, high = _range(dtype)
    raise FeedError(
        f"feed {name!r}: {text} does not fit its dtype {dtype}, which holds {low} to {high}. Feed a number in "
        f"this range, or declare another dtype.{_declared_at(variable)}"
    )


def _range(dtype: np.dtype) -> tuple[object, object]:
    limits = ml_dtypes.finfo(dtype) if is_float(dtype) else np.iinfo(dtype)
    return (float(limits.min), float(limits.max)) if is_float(dtype) else (limits.min, limits.max)


def _as_array(name: str, value: Any, variable: Variable) -> np.ndarray:
    """Convert an object that is no array, number or list to an array."""
    try:
        return np.asarray(value)
    except Exception as error:
        raise FeedTypeError(
            f"feed {name!r}: a {type(value).__name__} cannot be read as an array: {error}. Feed a numpy array, "
            f"for example numpy.array(value, {_dtype_name(variable)!r})."
        ) from error


Copy = Callable[[np.ndarray], np.ndarray]


def snapshot(value: Any, array: np.ndarray, copy: Copy = np.copy) -> np.ndarray:
    """Return the fed array, copied if later writes to ``value``, from which it was converted, could change it.

    Memory that cannot be written is not copied, nor is page-locked memory: a tensor writes its next value
    elsewhere.
    """
    if (isinstance(value, Tensor) and value.name) or np.isscalar(value) or page_locked(array):
        return array  # converting a tensor of a scope, or a number, made a copy
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return copy(array)
        base = base.base
    return array if base is None or isinstance(base, bytes) else copy(array)


def _fits(shape: tuple[int, ...], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(
        d < 0 or d == size for d, size in zip(declared, shape, strict=True)
    )


def _declared_at(variable: Variable) -> str:
    return f" Declared at {variable.where}." if variable.where else ""


def _dtype_name(variable: Variable) -> str:
    return str(to_numpy(variable.dtype)) if variable.dtype is not None else "float32"


def check_declared(name: str, array: np.ndarray, variable: Variable) -> None:
    """Check an array against a declaration that asks for the check (``fluid.data``).

    Dimensions of 1 at the end of integers may be missing: labels [N] of a variable [-1, 1]. Paddle lets floats
    lack them too, of which [N] less a prediction [N, 1] is [N, N].

    Raises:
        FeedError: rank, a known dimension or the dtype differs.
    """
    shape = variable.shape or ()
    labels = array.ndim and np.issubdtype(array.dtype, np.integer)
    missing = (1,) * (len(shape) - array.ndim) if labels else ()
    if not _fits((*array.shape, *missing), shape):
        known = math.prod(size for size in shape if size >= 0)
        unknown = sum(size < 0 for size in shape)
        others = array.ndim != len(shape) and unknown <= 1
        whole = array.size % known == 0 if unknown and known else array.size == known
        cure = f" Its elements fit: array.reshape({list(shape)})." if others and whole else ""
        raise FeedError(
            f"feed {name!r}: its declaration says shape {list(shape)}, got {list(array.shape)}.{cure}"
            f"{_declared_at(variable)}"
        )
    if variable.dtype is not None and to_numpy(variable.dtype) != array.dtype:
        raise FeedError(
            f"feed {name!r}: its declaration says dtype {to_numpy(variable.dtype)}, got {array.dtype}. "
            f"Convert it with .astype({str(to_numpy(variable.dtype))!r}).{_declared_at(variable)}"
        )


def convert(program: Program, feed: Feed, keep: Copy | None = None) -> dict[str, np.ndarray]:
    """Return the feed as arrays, every name checked to be a variable of the program.

    ``keep`` copies arrays that the user could change later (None: they are not copied).

    Raises:
        FeedError: a name the program does not have.
        InvalidType: a key is no string.
    """
    block = program.global_block()
    arrays = {}
    for name, value in feed.items():
        if not isinstance(name, str):
            key = f"{name!r}. Use its name" if isinstance(name, Variable) else type(name).__name__
            raise InvalidType(f"a feed's keys are variable names (str), got {key}.")
        variable = block.vars.get(name)
        if variable is None:
            raise FeedError(_unknown(program, name))
        array = to_array(name, value, variable)
        arrays[name] = array if keep is None else snapshot(value, array, keep)
    return arrays


def shapes_of(feed: Feed) -> tuple[tuple[str, tuple[int, ...], np.dtype], ...] | None:
    """Return name, shape and dtype of each array that is fed; None if something else than arrays is."""
    shapes = []
    for name, value in feed.items():
        if type(value) is not np.ndarray:
            return None
        shapes.append((name, value.shape, value.dtype))
    return tuple(shapes)


def _unknown(program: Program, name: str) -> str:
    block = program.global_block()
    if not block.ops:
        return f"feed {name!r}: the program is empty. Run the one that the layers were built in."
    data = [v.name for v in block.vars.values() if v.is_data]
    data += [fed for op in block.ops if op.type == "feed" for fed in op.output_arg_names]
    return (
        f"feed {name!r}: the program has no such variable.{nearest(name, data)} "
        f"Its data variables: {', '.join(dict.fromkeys(data)) or 'none'}."
    )


def check(program: Program, arrays: Mapping[str, np.ndarray]) -> None:
    """Check arrays against declarations that ask for it, and against those of persistables."""
    variables = program.global_block().vars
    for name, array in arrays.items():
        if variables[name].need_check_feed or variables[name].persistable:
            check_declared(name, array, variables[name])


@dataclass(frozen=True)
class FeedShard:
    """The feed of one place: arrays by name, and the LoD of those that hold sequences."""

    arrays: dict[str, np.ndarray]
    lods: dict[str, LoD]

    @property
    def has_sequences(self) -> bool:
        """Whether the place is fed sequences, which may have no rows."""
        return any(len(lod[0]) > 1 for lod in self.lods.values())

    @property
    def has_samples(self) -> bool:
        """Whether the place is fed any: rows, or sequences, which may all be empty."""
        return self.has_sequences or all(a.size or not a.ndim for a in self.arrays.values())

    def complete(self) -> dict[str, np.ndarray]:
        """Return the arrays, and behind them the offsets of sequences, by names of their own."""
        return {**self.arrays, **self._levels} if self.lods else self.arrays

    @cached_property
    def _levels(self) -> dict[str, np.ndarray]:
        return {
            level_name(name, k): np.array(offsets, np.int64)
            for name, lod in self.lods.items()
            for k, offsets in enumerate(lod)
        }


def refuse_empty(program: Program, shard: FeedShard) -> None:
    """Refuse a batch without rows, unless it has sequences.

    Raises:
        FeedError: names the variable.
    """
    variables = program.global_block().vars
    for name, array in shard.arrays.items():
        if varies(variables[name]) and array.ndim and len(array) == 0 and name not in shard.lods:
            raise FeedError(f"feed {name!r} has 0 rows: the batch is empty.")


def with_rows(shards: Sequence[FeedShard]) -> Mapping[str, np.ndarray]:
    """Return the feed of the first place that gets rows; that of the first place if none does."""
    full = (shard for shard in shards if all(a.size for a in shard.arrays.values()))
    return next(full, shards[0]).complete()


def fed_names(shards: Sequence[FeedShard]) -> tuple[str, ...]:
    """Return the names of what places are fed, offsets of sequences among them."""
    for shard in shards:
        if shard.lods:
            return tuple(with_rows(shards))
    return tuple(shards[0].arrays)


def sequences_in(feed: Feed) -> dict[str, LoD]:
    """Return the LoD of each fed tensor that holds sequences.

    Raises:
        SequenceError: the sequences of a tensor do not end where its rows end.
    """
    lods = {}
    for name, value in feed.items():
        if isinstance(value, Tensor) and value.lod():
            if not value.has_valid_recursive_sequence_lengths():
                raise SequenceError(
                    f"feed {name!r}: its sequences end at row {value.lod()[-1][-1]}, and it has "
                    f"{value.shape()[0]} rows. Set its LoD again after its rows: tensor.set_lod(offsets)."
                )
            lods[name] = tuple(map(tuple, value.lod()))
    return lods


def varies(variable: Variable) -> bool:
    """Tell whether a variable's first dimension is unknown: its rows are the batch."""
    return bool(variable.shape) and variable.shape is not None and variable.shape[0] == -1


def rows_of(program: Program, portions: Sequence[FeedShard]) -> dict[str, list[int]]:
    """Return how many rows, or sequences, of each batch variable each place is fed."""
    variables = program.global_block().vars
    names = [name for name in portions[0].arrays if varies(variables[name])]
    return {name: [_count(portion, name) for portion in portions] for name in names}


def _count(portion: FeedShard, name: str) -> int:
    array, lod = portion.arrays[name], portion.lods.get(name)
    if lod:
        return len(lod[0]) - 1
    return len(array) if array.ndim else 0
