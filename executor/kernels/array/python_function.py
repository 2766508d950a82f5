"""Kernel of the op that calls a Python function."""

from __future__ import annotations

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
        try:
            returned = function.function(*operands[: function.takes])
        except Exception as error:
            at = raising_line(error) or function
            raise RuntimeError(f"{type(error).__name__}: {error} (raised at {at})") from error
        values = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        if not out and values == [None]:
            values = []
        if len(values) != len(out):
            raise ValueError(
                f"{function} returned {len(values)} value(s) for {len(out)} variable(s)"
            )
        for i, (value, array) in enumerate(zip(values, out, strict=True)):
            if array is not None:
                array[...] = _checked(function, i, value, array)

    return call


def _checked(function: PythonFunction, i: int, value: Any, wanted: Any) -> Any:
    """Return what was returned for a variable, if it is an array as the variable's."""
    if value is None:
        raise ValueError(
            f"{function} returned None for variable {i}, which is wanted: return an array"
        )
    value = np.asarray(value)
    result = f"{function} returned {value.dtype}{list(value.shape)} for variable {i}"
    if value.shape != wanted.shape:
        raise ValueError(
            f"{result}, which has shape {list(wanted.shape)}: create out with the shape that is returned"
        )
    if value.dtype != wanted.dtype:
        raise TypeError(
            f"{result}, which is {wanted.dtype}: create out with that dtype, or return "
            f"array.astype({str(wanted.dtype)!r})"
        )
    return value
