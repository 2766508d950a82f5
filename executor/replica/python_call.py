"""Calls of Python functions that decide how many rows and which sequences they return: see ``py_func``."""

from __future__ import annotations

import numpy as np

from ...graph.ops.python_function import PythonFunction, function_of
from ...strategies.types import to_numpy
from ..device.tensor import LoDTensor, Tensor
from ..kernels.array.python_function import checked, returned_by
from .tensor_array import Entry


def py_func(*operands: Entry, number: int) -> list[Entry]:
    """Return what the function with a number returns for copies of its operands."""
    function = function_of(number)
    returned = returned_by(function, [_tensor(each) for each in operands], len(function.results))
    return [_entry(function, i, value) for i, value in enumerate(returned)]


def _tensor(operand: Entry) -> LoDTensor:
    tensor = LoDTensor.of(operand.elements)
    tensor.set_lod([level.tolist() for level in operand.levels])
    return tensor


def _entry(function: PythonFunction, i: int, value: object) -> Entry:
    spec = function.results[i]
    array = checked(function, i, value, None, to_numpy(spec.dtype))
    if array.ndim != len(spec.shape):
        raise ValueError(
            f"{function} returned an array with {array.ndim} dimension(s) for variable {i}, which has "
            f"{len(spec.shape)}: create out with as many"
        )
    lod = value.lod() if isinstance(value, Tensor) else []
    return Entry(array, tuple(np.array(level, np.int64) for level in lod))
