"""States: arrays by name, in pickles (``.pdparams`` and ``.pdopt``) beside the program (``.pdmodel``)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...graph.program.clone import copy_program
from ...graph.program.formats.inference import stamp_versions
from ...graph.program.formats.program import serialize
from ...graph.program.formats.state_reader import read_arrays
from ...graph.program.formats.state_writer import write_state
from ...graph.program.program import Program
from ...graph.program.variable import Parameter, Variable
from ...graph.program.where import warn_user
from ...strategies.errors import (
    InvalidArgument,
    InvalidType,
    InvalidValue,
    MissingFile,
    NotFound,
    StateMismatch,
    first_of,
    nearest,
)
from ...strategies.types import BFLOAT16
from ..device.tensor import Tensor
from ..feed.scope import Scope, global_scope, scope_guard
from .files import kind_of, path_of, reading, replacing
from .variables import (
    is_belong_to_optimizer,
    is_parameter,
    is_persistable,
    load_variables,
    program_of,
    read_values,
    select_variables,
    value_of,
)

_logger = logging.getLogger("rowlock")
_PARAMETERS, _OPTIMIZER, _MODEL = ".pdparams", ".pdopt", ".pdmodel"
_FILES = ((_PARAMETERS, is_parameter), (_OPTIMIZER, is_belong_to_optimizer))
_SAVED_APART = "[save_params, save_persistables, save_vars]"
_AS_SAVED = "Build the program as it was when it was saved."
_LEAVE_OUT = (
    "Build the program as it was when it was saved, or load what there is: "
    "set_program_state(program, load_program_state(path))."
)


def save(program: Any, model_path: str, protocol: int = 2) -> None:
    """Save parameters, optimizer state and program as ``model_path`` + ``.pdparams``, ``.pdopt``, ``.pdmodel``.

    Raises:
        InvalidArgument: ``model_path`` names no file.
        InvalidType: it is no path.
        NotInitialized: a variable holds no value.
    """
    path = path_of(model_path, "model_path")
    if not os.path.basename(path):
        raise InvalidArgument(f"model_path must be folder/name, got {path!r}.")
    program = program_of(program)
    clone = copy_program(program)
    stamp_versions(clone)
    model = serialize(clone)
    scope = global_scope()
    with replacing() as files:
        for ending, predicate in _FILES:
            names = [v.name for v in select_variables(program, None, predicate)]
            arrays = {name: value_of(name, scope).memory() for name in names}
            with files.open(path + ending) as file:
                write_state(file, arrays, protocol)
        with files.open(path + _MODEL) as file:
            file.write(model)


def load(
    program: Any, model_path: str, executor: Any = None, var_list: Iterable[Variable] | None = None
) -> None:
    """Load what :func:`save` (or ``save_persistables`` and its kin) saved into the global scope.

    Args:
        program: the program whose parameters and optimizer state are loaded.
        model_path: the path passed to :func:`save`; for ``save_persistables`` its folder, or its one file.
            Variables that have no file in a folder keep their values, and the log names them.
        executor: accepted as Paddle does.
        var_list: the variables that a single file holds.

    Raises:
        MissingFile: nothing was saved there.
        StateMismatch: a variable is missing, or has another shape or element type.
    """
    program = program_of(program)
    prefix = _prefix(model_path)
    if not kind_of(prefix + _PARAMETERS):
        _load_apart(program, os.fspath(model_path), var_list)
        return
    arrays: dict[str, np.ndarray] = {}
    for ending, predicate in _FILES:
        variables = select_variables(program, None, predicate)
        if variables:
            arrays.update(_fitting(variables, prefix + ending))
    for name, array in arrays.items():
        global_scope().home(name).get_tensor().set(array)


def _prefix(model_path: str) -> str:
    path = path_of(model_path, "model_path")
    for ending in (_PARAMETERS, _OPTIMIZER, _MODEL):
        if path.endswith(ending):
            return path.removesuffix(ending)
    return path


def _fitting(variables: list[Variable], path: str) -> dict[str, np.ndarray]:
    """Return the arrays of these variables in a file, each of which fits."""
    if not kind_of(path):
        raise StateMismatch(
            f"there is no file {path!r}, and the program has {len(variables)} variable(s) for it, such as "
            f"{variables[0].name!r}. {_LEAVE_OUT}"
        )
    with reading(path) as file:
        arrays = {
            name: _one_dimension(array) for name, array in read_arrays(file, repr(path)).items()
        }
    for variable in variables:
        if variable.name not in arrays:
            raise StateMismatch(
                f"{path!r} has no value for {variable.name!r}.{nearest(variable.name, arrays)} {_LEAVE_OUT}"
            )
        holder = global_scope().find_var(variable.name)
        current = _memory(holder.get_tensor()) if holder is not None else None
        _check(variable, arrays[variable.name], current, repr(path))
    return {v.name: arrays[v.name] for v in variables}


def _one_dimension(array: np.ndarray) -> np.ndarray:
    """Return a number without dimensions, as Paddle 2.x saves learning rates, with one; else the array."""
    return array.reshape(1) if array.ndim == 0 else array


def _memory(tensor: Tensor) -> np.ndarray | None:
    """Return the driver's own value of a tensor, None if it holds none."""
    return tensor.memory(newest=False) if tensor.initialized else None


def _check(variable: Variable, array: np.ndarray, current: np.ndarray | None, label: str) -> None:
    sized = variable.shape is not None and min(variable.shape, default=0) > 0
    shape = variable.shape if sized or current is None else current.shape
    if shape is not None and array.shape != shape and (sized or current is not None):
        raise StateMismatch(
            f"variable {variable.name!r} has the shape {list(shape)} in the program, and {list(array.shape)} "
            f"in {label}. {_AS_SAVED}"
        )
    bits = current is not None and current.dtype == BFLOAT16 and array.dtype == np.uint16
    if current is not None and array.dtype != current.dtype and not bits:
        raise StateMismatch(
            f"variable {variable.name!r} is {current.dtype} in the program, and {array.dtype} in {label}. "
            f"{_AS_SAVED}"
        )


def _load_apart(program: Program, path: str, var_list: Iterable[Variable] | None) -> None:
    """Load values saved without names: a folder with a file for each variable, or one file."""
    kind = kind_of(path)
    if kind == "folder":
        files, lasting = set(_files_in(path)), select_variables(program, None, is_persistable)
        variables = [v for v in program.list_vars() if v.name in files]
        if lasting and not variables:
            raise StateMismatch(
                f"no file in {path!r} is named after one of the program's {len(lasting)} variable(s), such as "
                f"{lasting[0].name!r}. {_AS_SAVED}"
            )
        unused = sorted(files - {v.name for v in variables})
        if unused:
            _logger.warning("files that no variable of the program has: %s", first_of(unused))
        absent = [v.name for v in lasting if v.name not in files]
        if absent:
            _logger.warning(
                "%d variable(s) of the program have no file in %r, and keep the values that they have: %s",
                len(absent),
                path,
                first_of(absent),
            )
        load_variables(select_variables(program, variables, None), path, None)
    elif kind == "file":
        if var_list is None:
            raise InvalidValue(
                f"{path!r} holds values without names: pass its variables as var_list."
            )
        names = {v.name for v in program.list_vars()}
        variables = select_variables(program, var_list, None)
        for variable in variables:
            if variable.name not in names:
                raise NotFound(f"variable {variable.name!r} of var_list is not in the program.")
        load_variables(variables, *os.path.split(path))
    else:
        raise _nothing(path)


def _nothing(path: str) -> MissingFile:
    return MissingFile(
        f"nothing was saved as {path!r}: there is neither {path + _PARAMETERS!r} nor what {_SAVED_APART} write."
    )


def _files_in(folder: str) -> list[str]:
    names = []
    for root, _, files in os.walk(folder):
        for file in files:
            name = os.path.relpath(os.path.join(root, file), folder)
            if not name.endswith(".saving"):
                names.append(name.replace(os.sep, "/"))
    return names


def load_program_state(
    model_path: str, var_list: Iterable[Variable] | None = None
) -> dict[str, np.ndarray]:
    """Return arrays by name: parameters and optimizer state that ``save`` (or ``save_vars`` and its kin) saved.

    Raises:
        MissingFile: nothing was saved there.
        DamagedFile: a file is damaged.
    """
    prefix = _prefix(model_path)
    path = os.fspath(model_path)
    if kind_of(prefix + _PARAMETERS):
        state: dict[str, np.ndarray] = {}
        for ending in (_PARAMETERS, _OPTIMIZER):
            if kind_of(prefix + ending):
                with reading(prefix + ending) as file:
                    state.update(read_arrays(file, repr(prefix + ending)))
        return state
    names = None
    if var_list is not None:
        variables = list(var_list)
        for variable in variables:
            if not isinstance(variable, Variable):
                raise InvalidType(f"var_list holds Variables, got {type(variable).__name__}.")
        names = sorted(v.name for v in variables)
    kind = kind_of(path)
    if kind == "file":
        if names is None:
            raise InvalidValue(
                f"{path!r} holds values without names: pass its variables as var_list."
            )
        return read_values(path, names)
    if kind != "folder":
        raise _nothing(path)
    state = {}
    for name in names if names is not None else sorted(_files_in(path)):
        state.update({name: read_values(os.path.join(path, name), [name])[name]})
    return state


def set_program_state(program: Any, state_dict: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name into the variables of a program whose startup program was run.

    Raises:
        InvalidArgument: a variable of the program is not in the global scope.
        StateMismatch: an array has another shape or element type.
    """
    program = program_of(program)
    variables = select_variables(program, None, is_persistable)
    scope = global_scope()
    tensors = {}
    for variable in variables:
        scope_variable = scope.find_var(variable.name)
        if scope_variable is None:
            raise InvalidArgument(
                f"variable {variable.name!r} is not in the scope. Run the startup program first."
            )
        if variable.name in state_dict:
            tensor = scope_variable.get_tensor()
            current = _memory(tensor)
            array = _one_dimension(np.asarray(state_dict[variable.name]))
            _check(variable, array, current, "the state")
            tensors[variable.name] = tensor, array
    for tensor, array in tensors.values():
        tensor.set(array)
    unused = sorted(set(state_dict) - set(tensors))
    if unused:
        warn_user(f"not in the program, and not used: {', '.join(unused)}.")


def program_state(
    program: Program, mode: str = "all", scope: Scope | None = None
) -> dict[str, Tensor]:
    """Return the tensors of a program's persistables by name.

    Args:
        program: whose startup program was run.
        mode: "all", "param" for the parameters, or "opt" for the state of optimizers.
        scope: where they are; the global one unless given.

    Raises:
        InvalidValue: another mode.
        NotInitialized: a variable holds no value.
    """
    kinds = {"all": is_persistable, "param": is_parameter, "opt": is_belong_to_optimizer}
    if mode not in kinds:
        raise InvalidValue(f"Program.state_dict: mode is 'all', 'param' or 'opt', got {mode!r}.")
    variables = select_variables(program, None, kinds[mode])
    return {
        variable.name: value_of(variable.name, scope or global_scope()) for variable in variables
    }


def write_program_state(
    program: Program, state_dict: Mapping[str, Any], scope: Scope | None = None
) -> None:
    """Write tensors or arrays by name into a program's variables, as :func:`set_program_state` does."""
    with scope_guard(scope or global_scope()):
        set_program_state(program, state_dict)


setattr(Program, "state_dict", program_state)  # noqa: B010 - values are the executor's
setattr(Program, "set_state_dict", write_program_state)  # noqa: B010


def parameter_value(parameter: Any) -> np.ndarray:
    """Return a parameter's value in the global scope.

    Raises:
        InvalidArgument: it is no parameter.
    """
    if not isinstance(parameter, Parameter):
        raise InvalidArgument(f"a parameter is needed, got {type(parameter).__name__}.")
    return value_of(parameter.name, global_scope()).numpy()
