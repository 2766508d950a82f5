"""A layer that calls a Python function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, require_type
from ..ops.python_function import FUNCTIONS, PY_FUNC, PythonFunction, is_open, register, source
from ..ops.registry import Spec
from ..program.variable import Variable
from .helper import layers


def py_func(
    func: Callable[..., Any],
    x: Variable | Sequence[Variable] | None,
    out: Variable | Sequence[Variable] | None,
    backward_func: Callable[..., Any] | None = None,
    skip_vars_in_backward_input: Variable | Sequence[Variable] | None = None,
) -> Variable | Sequence[Variable] | None:
    """Call a Python function in every step, and return ``out``, which holds its results.

    ``func`` gets one Tensor for each variable of ``x`` (a copy in host memory; ``numpy.array`` reads it) and
    returns one array for each of ``out``, of the shape and dtype that ``out`` was created with. An unknown size
    of ``out`` (-1) is that of the same dimension of ``x``. Without ``backward_func``, where ``out`` has another
    shape than ``x`` there, ``func`` decides how large its results are, and may return LoDTensors with
    sequences; a step is cut there. ``backward_func`` gets ``x``, ``out`` and the
    gradients of ``out``, less ``skip_vars_in_backward_input``, and returns a gradient for each of ``x`` (or
    None). Without it no gradient flows from ``out`` to ``x``.

    Every replica calls the function on its own rows. On threads they share this process; on Ray each process
    has a copy of the function, and of the objects it refers to, as they were at the first step.

    Raises:
        InvalidType: a function that cannot be called, or no Variable where one belongs.
        InvalidValue: ``out`` has no shape or dtype, or a size that neither it nor ``x`` has; a function takes
            another number of arguments; a variable to skip is neither in ``x`` nor in ``out``.
    """
    variables = _variables(x, "x")
    results = _variables(out, "out")
    if not callable(func):
        raise InvalidType(f"py_func: func must be a Python function, got {func!r}.")
    if backward_func is not None and not callable(backward_func):
        raise InvalidType(
            f"py_func: backward_func must be a Python function, got {backward_func!r}."
        )
    skipped = {
        v.name for v in _variables(skip_vars_in_backward_input, "skip_vars_in_backward_input")
    }
    skipped = skipped if backward_func is not None else set()
    unknown = sorted(skipped - {v.name for v in (*variables, *results)})
    if unknown:
        raise InvalidValue(
            f"py_func: skip_vars_in_backward_input holds {unknown[0]!r}, which is neither in x nor in out."
        )
    operands, result_specs = _specs(variables), _specs(results)
    shapes = [spec.shape for spec in operands]
    decides = (
        backward_func is None
        and any(is_open(spec.shape, shapes) for spec in result_specs)
        and not any(variable.persistable for variable in results)
    )
    if not decides:
        for variable in results:
            _check_sizes(variable, shapes)
    numbers = [_register(func, "func", operands, result_specs, decides), -1]
    if backward_func is not None:
        pairs = [*zip(variables, operands, strict=True), *zip(results, result_specs, strict=True)]
        read_specs = [spec for variable, spec in pairs if variable.name not in skipped]
        numbers[1] = _register(
            backward_func, "backward_func", (*read_specs, *result_specs), operands
        )
    attrs = {"forward_callable_id": numbers[0], "backward_callable_id": numbers[1]}
    layers(PY_FUNC, None, "", x=variables, out=results, **attrs, backward_skip_vars=sorted(skipped))
    return out


def registered_func(idx: int) -> Callable[..., Any]:
    """Return the function that was registered under a number."""
    return FUNCTIONS[idx].function


def registered_func_num() -> int:
    """Return how many functions were registered."""
    return len(FUNCTIONS)


py_func.registered_func = registered_func  # type: ignore[attr-defined]  # Paddle's way to look them up
py_func.registered_func_num = registered_func_num  # type: ignore[attr-defined]


def _variables(value: Any, argument: str) -> list[Variable]:
    items = [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
    for item in items:
        require_type(item, Variable, f"py_func: {argument} must be a Variable or a list of them")
    return items


def _specs(variables: Sequence[Variable]) -> tuple[Spec, ...]:
    for variable in variables:
        if not variable.shape or variable.dtype is None:
            raise InvalidValue(
                f"py_func: {variable.name!r} has no shape or no dtype. Create it with both: "
                f"block.create_var(name=..., shape=[-1, 8], dtype='float32')."
            )
    return tuple(Spec(v.shape, v.dtype) for v in variables)  # type: ignore[arg-type]  # refused above


def _check_sizes(variable: Variable, operands: Sequence[Sequence[int]]) -> None:
    for dim, size in enumerate(variable.shape or ()):
        if size < 0 and source(operands, dim) is None:
            raise InvalidValue(
                f"py_func: dimension {dim} of {variable.name!r} is unknown, and no variable of x has it: "
                f"none has an unknown dimension {dim}. Create out with its size there."
            )


def _register(
    function: Callable[..., Any],
    argument: str,
    operands: Sequence[Spec],
    results: Sequence[Spec],
    decides: bool = False,
) -> int:
    """Register a function that can be called with as many arguments; one without parameters gets none."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C: its call will tell
        signature = None
    if signature is not None and signature.parameters:
        try:
            signature.bind(*operands)
        except TypeError as error:
            raise InvalidValue(
                f"py_func: {argument} must take {len(operands)} arguments, one for each variable it gets: "
                f"{error}."
            ) from None
    takes = len(operands) if signature is None or signature.parameters else 0
    return register(PythonFunction(function, tuple(operands), tuple(results), takes, decides))
