"""Kernel of the op that calls a Python function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.ops.python_function import PY_FUNC, PyFunc, PythonFunction, function_of
from ....graph.program.where import raising_line
from ...device.device import Device
from ...device.tensor import Tensor
from ..registry import Step, kernel


@kernel(PY_FUNC, on=("numpy",), low=True)
def py_func(dev: Device, a: PyFunc) -> Step:
    """Call the function on copies of its operands: it may keep what it is given."""
    function, arrays, out = function_of(a.forward_callable_id), a.x or [], a.out or []

    def call() -> None:
        operands = [None if array is None else Tensor.of(array) for array in arrays]
        values = returned_by(function, operands, len(out))
        for i, (value, array) in enumerate(zip(values, out, strict=True)):
            if array is not None:
                array[...] = checked(function, i, value, array.shape, array.dtype)

    return call


def returned_by(
    function: PythonFunction, operands: Sequence[Tensor | None], count: int
) -> list[Any]:
    """Call a function; return what it returns for ``count`` variables.

    Raises:
        RuntimeError: it raised an error; the message names it and its line.
        ValueError: it returned something for more or fewer variables.
    """
    try:
        returned = function.function(*operands[: function.takes])
    except Exception as error:
        at = raising_line(error) or function
        raise RuntimeError(f"{type(error).__name__}: {error} (raised at {at})") from error
    values = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    if not count and values == [None]:
        values = []
    if len(values) != count:
        raise ValueError(f"{function} returned {len(values)} value(s) for {count} variable(s)")
    return values


def checked(
    function: PythonFunction, i: int, value: Any, shape: tuple[int, ...] | None, dtype: Any
) -> np.ndarray:
    """Return what was returned for a variable, if it is an array of a shape (None: of any) and a dtype.

    Raises:
        ValueError: it is None, or has another shape.
        TypeError: it has another dtype.
    """
    if value is None:
        raise ValueError(
            f"{function} returned None for variable {i}, which is wanted: return an array"
        )
    array = np.asarray(value)
    result = f"{function} returned {array.dtype}{list(array.shape)} for variable {i}"
    if shape is not None and array.shape != shape:
        raise ValueError(
            f"{result}, which has shape {list(shape)}: create out with the shape that is returned"
        )
    if array.dtype != dtype:
        raise TypeError(
            f"{result}, which is {dtype}: create out with that dtype, or return "
            f"array.astype({str(dtype)!r})"
        )
    return array
