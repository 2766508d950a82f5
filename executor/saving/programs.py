"""A program's variables by kind, saved and loaded: what ``fluid.io`` has beside readers and models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...graph.program.program import Program, default_main_program
from ...graph.program.variable import Parameter, Variable
from ...graph.transpiler.server_program import serves
from . import states
from .distributed import is_trainers, load_distributed, save_distributed
from .variables import (
    Predicate,
    is_parameter,
    is_persistable,
    load_variables,
    program_of,
    save_variables,
    select_variables,
)


def save_vars(
    executor: Any,
    dirname: str | None,
    main_program: Any = None,
    vars: Iterable[Variable] | None = None,
    predicate: Predicate | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Save variables: ``vars``, or those of the program for which ``predicate`` is true.

    They go to a file each in ``dirname``, or to one file of it (``filename``), or are returned as bytes if
    both are None.
    """
    return save_variables(select_variables(main_program, vars, predicate), dirname, filename)


def save_params(
    executor: Any, dirname: str | None, main_program: Any = None, filename: str | None = None
) -> bytes | None:
    """Save the parameters of a program; see :func:`save_vars`."""
    return save_variables(select_variables(main_program, None, is_parameter), dirname, filename)


def save_persistables(
    executor: Any, dirname: str | None, main_program: Any = None, filename: str | None = None
) -> bytes | None:
    """Save every persistable variable of a program, optimizer state included; see :func:`save_vars`.

    Of a trainer with parameter servers, trainer 0 also saves what they hold; ``filename`` must be None.
    """
    program = program_of(main_program)
    if is_trainers(program):
        save_distributed(dirname, program, filename)
        return None
    return save_variables(select_variables(program, None, is_persistable), dirname, filename)


def load_vars(
    executor: Any,
    dirname: str | None,
    main_program: Any = None,
    vars: Iterable[Variable] | None = None,
    predicate: Predicate | None = None,
    filename: Any = None,
) -> None:
    """Load variables that :func:`save_vars` or Paddle saved into the global scope.

    Without ``dirname``, ``filename`` holds their bytes.
    """
    load_variables(select_variables(main_program, vars, predicate), dirname, filename)


def load_params(
    executor: Any, dirname: str | None, main_program: Any = None, filename: Any = None
) -> None:
    """Load the parameters of a program; see :func:`load_vars`."""
    load_variables(select_variables(main_program, None, is_parameter), dirname, filename)


def load_persistables(
    executor: Any, dirname: str | None, main_program: Any = None, filename: Any = None
) -> None:
    """Load every persistable variable of a program; see :func:`load_vars`.

    A parameter server's program is given its rows of what trainers saved.
    """
    program = program_of(main_program)
    if serves(program):
        load_distributed(dirname, program, filename)
        return
    load_variables(select_variables(program, None, is_persistable), dirname, filename)


def get_program_parameter(program: Any) -> list[Variable]:
    """Return the parameters of a program."""
    return [v for v in program_of(program).list_vars() if is_parameter(v)]


def get_program_persistable_vars(program: Any) -> list[Variable]:
    """Return the persistable variables of a program."""
    return [v for v in program_of(program).list_vars() if is_persistable(v)]


def get_parameter_value(para: Parameter, executor: Any) -> np.ndarray:
    """Return a parameter's value."""
    return states.parameter_value(para)


def get_parameter_value_by_name(
    name: str, executor: Any, program: Program | None = None
) -> np.ndarray:
    """Return the value of the parameter of that name; default: of the main program."""
    program = default_main_program() if program is None else program
    return states.parameter_value(program.global_block().var(name))
