"""An op that calls a Python function, and the functions that such ops name by number.

A number belongs to one call of ``py_func`` in this process, as in Paddle. Replicas in other processes are
brought the functions of a program before the program (see ``cluster/gang.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...strategies.errors import Unsupported
from .operands import Inputs, Operands, Outputs
from .registry import Grad, Inference, Spec, Specs, define
from .rules import merge_dims

PY_FUNC = "py_func"


@dataclass(frozen=True)
class PythonFunction:
    """A function of tensors, with its operands and results as the program declares them.

    It ``takes`` as many arguments as there are operands, or none. An unknown size (-1) of a result is that of
    the operand dimension that :func:`source` names; if the function ``decides``, the size is that of its array.
    """

    function: Callable[..., Any]
    operands: tuple[Spec, ...]
    results: tuple[Spec, ...]
    takes: int
    decides: bool = False

    def __str__(self) -> str:
        name = getattr(self.function, "__qualname__", repr(self.function))
        code = getattr(self.function, "__code__", None)
        return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name

    def result_shape(self, index: int, operands: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the shape of a result, given those of the operands."""

        def size(dim: int, declared: int) -> int:
            if declared >= 0 or self.decides:
                return declared
            k, d = source([spec.shape for spec in self.operands], dim) or (-1, 0)
            return operands[k][d] if k >= 0 else -1

        return tuple(size(i, n) for i, n in enumerate(self.results[index].shape))


FUNCTIONS: dict[int, PythonFunction] = {}
_numbers = itertools.count()  # threads may build programs side by side


def source(operands: Sequence[Sequence[int]], dim: int) -> tuple[int, int] | None:
    """Return operand and dimension whose size an unknown size ``dim`` of a result has.

    It is the first operand of which the same dimension is unknown; else the only unknown one there is.
    """
    unknown = [(k, d) for k, shape in enumerate(operands) for d, n in enumerate(shape) if n < 0]
    same = [(k, d) for k, d in unknown if d == dim]
    return same[0] if same else unknown[0] if len(unknown) == 1 else None


def is_open(result: Sequence[int], operands: Sequence[Sequence[int]]) -> bool:
    """Tell whether no operand that is shaped like a result tells its unknown sizes."""
    sources = [source(operands, dim) for dim, size in enumerate(result) if size < 0]
    return any(place is None or tuple(operands[place[0]]) != tuple(result) for place in sources)


def register(function: PythonFunction) -> int:
    """Keep a function for as long as the process lives, and return its number."""
    number = next(_numbers)
    FUNCTIONS[number] = function
    return number


def function_of(number: int, where: str = "") -> PythonFunction:
    """Return the function with a number.

    Raises:
        Unsupported: this process has none; a saved program holds the number alone.
    """
    if number not in FUNCTIONS:
        place = f" Built at {where}." if where else ""
        raise Unsupported(
            f"py_func: no Python function has number {number} in this process. A saved program does not hold "
            f"its functions: build it again with the code that calls py_func.{place}"
        )
    return FUNCTIONS[number]


def py_func_shape(op: Inference) -> Mapping[str, Specs]:
    """Results are as the program declares them; their unknown sizes are those of operands."""
    function = function_of(op.attr("forward_callable_id"), op.where)
    operands = op.specs("X")
    # A number is all that a saved program holds, and in another process it may be another function's.
    op.require(
        len(operands) == len(function.operands) and all(map(_fits, operands, function.operands)),
        f"{function} was registered for X = {', '.join(map(str, function.operands)) or 'nothing'}",
    )
    sizes = [spec.shape for spec in operands]
    shapes = (function.result_shape(k, sizes) for k in range(len(function.results)))
    return {"Out": [r._replace(shape=s) for r, s in zip(function.results, shapes, strict=True)]}


def _fits(operand: Spec, declared: Spec) -> bool:
    alike = operand.dtype == declared.dtype and len(operand.shape) == len(declared.shape)
    return alike and None not in map(merge_dims, operand.shape, declared.shape)


def _backward(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    number = attrs["backward_callable_id"]
    return {"forward_callable_id": number, "backward_callable_id": -1, "backward_skip_vars": []}


class PyFunc(Operands):
    x: Inputs | None
    out: Outputs | None
    forward_callable_id: int = 0
    backward_callable_id: int = -1
    backward_skip_vars: Sequence[str] = []


define(
    PY_FUNC,
    PyFunc,
    py_func_shape,
    grad=Grad(
        PY_FUNC,
        {"X": "X+Out+Out@GRAD"},
        {"Out": "X@GRAD"},
        attrs=_backward,
        exists=lambda attrs: attrs["backward_callable_id"] >= 0,
        without="backward_skip_vars",
    ),
    # What a function returns may depend on more than its operands.
    by_place=lambda attrs: True,
)
