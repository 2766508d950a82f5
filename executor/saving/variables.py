"""Values of variables as files, one each or all in one, or as bytes: ``save_vars`` and its kin."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, BinaryIO

import numpy as np

from ...graph.program.formats.tensors import Entry, TensorFile, write_tensor
from ...graph.program.program import Program, default_main_program
from ...graph.program.variable import Parameter, Variable
from ...graph.program.where import warn_user
from ...strategies.errors import (
    InvalidType,
    InvalidValue,
    NotInitialized,
    StateMismatch,
    Unsupported,
)
from ...strategies.types import BFLOAT16, VarType, to_numpy
from ..compiled_program import CompiledProgram
from ..device.tensor import Tensor
from ..feed.scope import Scope, global_scope
from .files import Replacement, inside, path_of, reading, replacing

_NOT_KEPT = (VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER)
_NO_VALUE = (*_NOT_KEPT, VarType.RAW)
Predicate = Callable[[Variable], bool]


def is_parameter(var: Variable) -> bool:
    """Tell whether a variable is a parameter."""
    return isinstance(var, Parameter)


def is_persistable(var: Variable) -> bool:
    """Tell whether a variable keeps its value between steps."""
    return var.type not in _NOT_KEPT and bool(var.persistable)


def is_belong_to_optimizer(var: Variable) -> bool:
    """Tell whether a variable is state of an optimizer: it persists, is no parameter and is not fed."""
    return not (isinstance(var, Parameter) or var.need_check_feed) and is_persistable(var)


def program_of(program: Any) -> Program:
    """Return the program to save: ``program`` or its program if compiled; the main program for None.

    Raises:
        InvalidType: it is none of these.
    """
    if program is None:
        return default_main_program()
    if isinstance(program, CompiledProgram):
        return program.program
    if not isinstance(program, Program):
        raise InvalidType(
            f"main_program must be a Program or CompiledProgram, got {type(program).__name__}."
        )
    return program


def select_variables(
    program: Any, variables: Iterable[Any] | None, predicate: Predicate | None
) -> list[Variable]:
    """Return the variables with values among ``variables``, or among those that fulfil the predicate.

    Raises:
        InvalidType: an item of ``variables`` is no Variable, or the predicate no function.
    """
    program = program_of(program)
    if predicate is not None and not callable(predicate):
        raise InvalidType(f"predicate must be a function of a Variable, got {predicate!r}.")
    if variables is None:
        all_variables = program.list_vars()
        candidates = [v for v in all_variables if predicate is None or predicate(v)]
    else:
        candidates = list(variables)
        for variable in candidates:
            if not isinstance(variable, Variable):
                raise InvalidType(f"vars holds Variables, got {type(variable).__name__}.")
    by_name = {v.name: v for v in candidates if v.type not in _NO_VALUE}
    for variable in by_name.values():
        if variable.type is not VarType.LOD_TENSOR:
            raise Unsupported(
                f"variable {variable.name!r} is a {variable.type.name}: only tensors have files here."
            )
    return list(by_name.values())


def value_of(name: str, scope: Scope) -> Tensor:
    """Return the tensor of a variable, with the newest value from wherever it was computed.

    Raises:
        NotInitialized: it holds none.
    """
    variable = scope.find_var(name)
    if variable is None:
        raise NotInitialized(
            f"variable {name!r} holds no value yet. Run its startup program first."
        )
    variable.get_tensor().memory()
    return variable.get_tensor()


def get_value(variable: Variable, scope: Scope | None = None) -> Tensor:
    """Return a variable's tensor in a scope (default: the global one); ``numpy.asarray`` copies its value.

    Raises:
        NotInitialized: it holds no value.
    """
    return value_of(variable.name, scope or global_scope())


def set_value(variable: Variable, value: Any, scope: Scope | None = None) -> None:
    """Write an array, a tensor, or another variable's value, in the variable's element type.

    Raises:
        InvalidValue: the shape is another.
    """
    array = np.asarray(get_value(value, scope) if isinstance(value, Variable) else value)
    if variable.shape is not None and -1 not in variable.shape and array.shape != variable.shape:
        raise InvalidValue(
            f"variable {variable.name!r} has the shape {list(variable.shape)}, the value {list(array.shape)}."
        )
    dtype = array.dtype if variable.dtype is None else to_numpy(variable.dtype)
    bits = dtype == BFLOAT16 and array.dtype == np.uint16
    array = array.view(BFLOAT16) if bits else array.astype(dtype, copy=False)
    (scope or global_scope()).home(variable.name).get_tensor().set(array)


Variable.get_value = get_value  # type: ignore[assignment, method-assign]
Variable.set_value = set_value  # type: ignore[assignment, method-assign]


def save_variables(
    variables: list[Variable], dirname: str | None, filename: str | None
) -> bytes | None:
    """Save the values that the global scope has; return them as bytes if neither folder nor file is named."""
    if not variables:
        warn_user("there are no variables to save.")
        return None
    scope = global_scope()
    names = sorted(v.name for v in variables)
    if dirname is None and filename is None:
        stream = io.BytesIO()
        write_values(stream, names, scope)
        return stream.getvalue()
    folder = path_of(dirname, "dirname") if dirname is not None else ""
    filename = path_of(filename, "filename") if filename is not None else None
    with replacing() as files:
        write_files(files, folder, filename, names, scope)
    return None


def write_files(
    files: Replacement, folder: str, filename: str | None, names: list[str], scope: Scope
) -> None:
    """Write the values of variables into one file of a folder, or (None) a file for each."""
    groups = {inside(folder, name): [name] for name in names}
    if filename is not None:
        groups = {os.path.join(folder, filename): names}
    for path, group in groups.items():
        with files.open(path) as file:
            write_values(file, group, scope)


def write_values(file: BinaryIO, names: Iterable[str], scope: Scope) -> None:
    """Write the values of variables behind each other."""
    for name in names:
        tensor = value_of(name, scope)
        write_tensor(file, tensor.memory(), tensor.lod())


def load_variables(
    variables: list[Variable],
    dirname: str | None,
    filename: str | bytes | None,
    scope: Scope | None = None,
) -> None:
    """Load values into a scope (None: the global one): from a folder, a file in it, or bytes without a folder.

    Every file is looked through before the first value is changed.

    Raises:
        MissingFile: a file is not there.
        DamagedFile: a file is damaged, or holds another number of variables.
        InvalidType: the folder or the file is no path.
        StateMismatch: a value has another shape than the program's variable.
    """
    ordered = sorted(variables, key=lambda v: v.name)
    scope = global_scope() if scope is None else scope
    folder = path_of(dirname, "dirname") if dirname is not None else ""
    if dirname is None and not isinstance(filename, bytes):
        raise InvalidValue(
            "name a folder (dirname), or give the bytes of the variables as filename."
        )
    with ExitStack() as stack:
        if isinstance(filename, bytes) and dirname is None:
            _load_together(ordered, io.BytesIO(filename), "the bytes of the variables", scope)
        elif filename is not None:
            name = filename if isinstance(filename, bytes) else path_of(filename, "filename")
            path = os.path.join(folder, os.fsdecode(name))
            _load_together(ordered, stack.enter_context(reading(path)), repr(path), scope)
        else:
            _load_each(ordered, folder, scope)


def _load_together(variables: list[Variable], file: BinaryIO, label: str, scope: Scope) -> None:
    tensors = TensorFile(file, label)
    entries = tensors.scan([v.name for v in variables])
    for variable, entry in zip(variables, entries, strict=True):
        check_shape(variable, entry.shape, label)
    for variable, entry in zip(variables, entries, strict=True):
        _fill(scope, variable.name, entry, tensors)


def _load_each(variables: list[Variable], folder: str, scope: Scope) -> None:
    cure = " Was it saved into one file? Then name it (filename, params_filename)."
    paths = [inside(folder, v.name) for v in variables]
    for filling in (False, True):
        for variable, path in zip(variables, paths, strict=True):
            with reading(path, cure) as file:
                tensors = TensorFile(file, repr(path))
                (entry,) = tensors.scan([variable.name])
                if filling:
                    _fill(scope, variable.name, entry, tensors)
                else:
                    check_shape(variable, entry.shape, repr(path))


def check_shape(variable: Variable, shape: tuple[int, ...], label: str) -> None:
    """Refuse a value whose shape is not the variable's, where that is known.

    Raises:
        StateMismatch: names both shapes.
    """
    declared_shape = variable.shape
    if not declared_shape or min(declared_shape) < 0 or not variable.persistable:
        return
    if tuple(shape) != declared_shape:
        raise StateMismatch(
            f"variable {variable.name!r} has the shape {list(declared_shape)} in the program, and "
            f"{list(shape)} in {label}. Build the program as it was when it was saved, or leave this variable "
            f"out (vars=, predicate=)."
        )


def _fill(scope: Scope, name: str, entry: Entry, tensors: TensorFile) -> None:
    tensor = scope.home(name).get_tensor()
    tensors.read(entry, tensor.allocate(entry.shape, entry.dtype))
    tensor.set_lod(entry.lod)
    tensor.written()


def read_values(path: str, names: list[str]) -> dict[str, np.ndarray]:
    """Return the tensors of a file by name; ``names`` are in the order of the file."""
    with reading(path) as file:
        tensors = TensorFile(file, repr(path))
        arrays = {}
        for name, entry in zip(names, tensors.scan(names), strict=True):
            arrays[name] = np.empty(entry.shape, entry.dtype)
            tensors.read(entry, arrays[name])
        return arrays
