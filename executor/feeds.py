"""What a user feeds: converted, checked against the program, and split over places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..graph.program import Program
from ..graph.variable import Variable
from ..strategies.errors import FeedError, FeedTypeError, InvalidType, nearest
from ..strategies.types import to_numpy
from .tensor import Tensor

Feed = Mapping[str, Any]


def to_array(name: str, value: Any, variable: Variable) -> np.ndarray:
    """Return a fed value as an array. A Python number becomes shape [1] in the variable's dtype.

    Raises:
        FeedTypeError: the value is a Python list or holds no numbers.
    """
    if type(value) is np.ndarray:
        array = value
    elif isinstance(value, (bool, int, float)):
        assert variable.dtype is not None
        return np.full((1,), value, to_numpy(variable.dtype))
    elif isinstance(value, (list, tuple)) or value is None or isinstance(value, (str, bytes)):
        raise FeedTypeError(
            f"feed {name!r}: got a Python {type(value).__name__}. "
            f"Feed a numpy array, for example numpy.array(value, {str(_dtype_name(variable))!r})."
        )
    else:
        array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise FeedTypeError(f"feed {name!r}: an array of {array.dtype} cannot be fed; use numbers.")
    return array


def _dtype_name(variable: Variable) -> str:
    return str(to_numpy(variable.dtype)) if variable.dtype is not None else "float32"


def check_declared(name: str, array: np.ndarray, variable: Variable) -> None:
    """Compare an array with a declaration that asks for it (``fluid.data``).

    Raises:
        FeedError: rank, a known dimension or the dtype differs.
    """
    declared = variable.shape or ()
    fits = len(declared) == array.ndim and all(
        d < 0 or d == a for d, a in zip(declared, array.shape, strict=True)
    )
    if not fits:
        raise FeedError(
            f"feed {name!r}: its declaration says shape {list(declared)}, got {list(array.shape)}."
        )
    if variable.dtype is not None and to_numpy(variable.dtype) != array.dtype:
        raise FeedError(
            f"feed {name!r}: its declaration says dtype {to_numpy(variable.dtype)}, got {array.dtype}. "
            f"Convert it with .astype({str(to_numpy(variable.dtype))!r})."
        )


def convert(program: Program, feed: Feed) -> dict[str, np.ndarray]:
    """Return the feed as arrays, every name checked to be a variable of the program.

    Raises:
        FeedError: a name the program does not have.
        InvalidType: a key is no string.
    """
    block = program.global_block()
    arrays = {}
    for name, value in feed.items():
        if not isinstance(name, str):
            raise InvalidType(f"a feed's keys are variable names (str), got {type(name).__name__}.")
        variable = block.vars.get(name)
        if variable is None:
            data = [v.name for v in block.vars.values() if v.is_data]
            raise FeedError(
                f"feed {name!r}: the program has no such variable.{nearest(name, data)} "
                f"Its data variables: {', '.join(data) or 'none'}."
            )
        arrays[name] = to_array(name, value, variable)
    return arrays


def check(program: Program, arrays: Mapping[str, np.ndarray]) -> None:
    """Compare arrays with those declarations that ask for it."""
    variables = program.global_block().vars
    for name, array in arrays.items():
        if variables[name].need_check_feed:
            check_declared(name, array, variables[name])


def split(
    program: Program, arrays: Mapping[str, np.ndarray], places: int
) -> list[dict[str, np.ndarray]]:
    """Return each place's share of a dict feed.

    A variable whose first dimension is unknown is cut along it; each place gets the same number of rows
    and the last one the remainder too. A persistable is fed whole, or one row to each place. Anything else
    goes whole to every place.

    Raises:
        FeedError: fewer rows than places.
    """
    variables = program.global_block().vars
    shares: list[dict[str, np.ndarray]] = [{} for _ in range(places)]
    for name, array in arrays.items():
        for share, part in zip(shares, _parts(variables[name], array, places), strict=True):
            share[name] = part
    return shares


def _parts(variable: Variable, array: np.ndarray, places: int) -> Sequence[np.ndarray]:
    cut = variable.shape is not None and len(variable.shape) > 0 and variable.shape[0] == -1
    seed_of_loss = variable.name.endswith("@GRAD")
    if places == 1 or not (cut or variable.persistable or seed_of_loss):
        return [array] * places
    rows = array.shape[0] if array.ndim else 0
    if variable.persistable and rows == 1:
        return [array] * places
    if rows < places or ((variable.persistable or seed_of_loss) and rows != places):
        raise FeedError(
            f"feed {variable.name!r}: {rows} row(s) cannot be split over {places} places. "
            f"Feed at least one row per place, or use fewer places (CPU_NUM sets their number)."
        )
    step = rows // places
    return [array[i * step : (i + 1) * step if i < places - 1 else rows] for i in range(places)]


def first_rows(program: Program, shares: Sequence[Mapping[str, np.ndarray]]) -> list[int]:
    """Return the global index of each place's first sample, counted on the batch variables fed."""
    variables = program.global_block().vars
    counts = []
    for share in shares:
        batches = [
            a.shape[0]
            for name, a in share.items()
            if a.ndim and (variables[name].shape or (0,))[0] == -1
        ]
        counts.append(max(batches, default=0))
    return [sum(counts[:i]) for i in range(len(counts))]
