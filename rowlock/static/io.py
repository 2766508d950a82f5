"""``paddle.static``: saving and loading, as 2.x and 3.x spell it."""

from __future__ import annotations

import os
from typing import Any

from ..executor.saving import models, states
from ..executor.saving.distributed import scope_with_tables
from ..executor.saving.files import path_of, reading, replacing
from ..executor.saving.models import normalize_program
from ..executor.saving.states import load, load_program_state, set_program_state
from ..executor.saving.variables import is_persistable, load_variables, program_of, select_variables
from ..graph.program.clone import copy_program
from ..graph.program.program import Program
from ..graph.transpiler.trainer import look_up_here
from ..strategies.errors import InvalidArgument, InvalidType, InvalidValue


def save(program: Any, model_path: str, protocol: int = 4, **configs: Any) -> None:
    """Save parameters, optimizer state and program as ``model_path`` + ``.pdparams``, ``.pdopt``, ``.pdmodel``.

    ``protocol``: of the pickles, 2 to 4. Paddle 1.8 wrote 2; the newer ones are faster and take large arrays.
    """
    if "pickle_protocol" in configs:
        protocol = configs.pop("pickle_protocol")
    _refuse(configs, "save")
    states.save(program, model_path, protocol)


def save_inference_model(
    path_prefix: str, feed_vars: Any, fetch_vars: Any, executor: Any, **kwargs: Any
) -> None:
    """Save the part of a program that predicts ``fetch_vars``: ``path_prefix`` + ``.pdmodel``, ``.pdiparams``.

    Keyword arguments: ``program`` (default: the main program), ``skip_prune_program``, and ``clip_extra`` and
    ``legacy_format``, which change nothing here.
    """
    program = program_of(kwargs.pop("program", None))
    pruning = {"skip_prune_program": kwargs.pop("skip_prune_program", False)}
    _refuse(
        {k: v for k, v in kwargs.items() if k not in ("clip_extra", "legacy_format")},
        "save_inference_model",
    )
    source = copy_program(program)
    look_up_here(source)
    predictor = normalize_program(source, feed_vars, fetch_vars, **pruning)
    folder, name = _split(path_prefix)
    scope = scope_with_tables(program, predictor)
    models.write_model(predictor, folder, f"{name}.pdmodel", f"{name}.pdiparams", scope)


def load_inference_model(path_prefix: str | None, executor: Any, **kwargs: Any) -> list[Any]:
    """Load ``path_prefix`` + ``.pdmodel`` and ``.pdiparams``; parameters go to the global scope.

    Keyword arguments: ``model_filename`` and ``params_filename``, other files in the folder
    ``path_prefix``; they hold the bytes of program and parameters if ``path_prefix`` is None.

    Returns:
        The program, the names of the variables to feed, and the variables to fetch.
    """
    model, params = kwargs.pop("model_filename", None), kwargs.pop("params_filename", None)
    _refuse(kwargs, "load_inference_model")
    if path_prefix is None:
        return models.load_inference_model(None, executor, model, params)
    folder, name = _split(path_prefix)
    if model is not None or params is not None:
        folder, name = os.path.join(folder, name), "model"
    model, params = model or f"{name}.pdmodel", params or f"{name}.pdiparams"
    path = os.path.join(folder, model)
    return models.load_model(models.read_program(path), repr(path), folder, params)


def _split(path_prefix: str) -> tuple[str, str]:
    if not isinstance(path_prefix, (str, os.PathLike)):
        raise InvalidValue(f"path_prefix must be a str such as 'models/net', got {path_prefix!r}.")
    path = os.path.normpath(os.fspath(path_prefix))
    if not os.path.basename(path) or os.fspath(path_prefix).endswith(os.sep):
        raise InvalidArgument(f"path_prefix must be folder/name, got {path_prefix!r}.")
    return os.path.split(path)


def _refuse(kwargs: dict[str, Any], function: str) -> None:
    if kwargs:
        raise InvalidType(f"{function} has no argument {next(iter(kwargs))!r}.")


def serialize_program(feed_vars: Any, fetch_vars: Any, **kwargs: Any) -> bytes:
    """Return the part of a program (default: the main program) that predicts ``fetch_vars``, as bytes."""
    program = program_of(kwargs.get("program"))
    return normalize_program(program, feed_vars, fetch_vars).serialize_to_string()


def deserialize_program(data: bytes) -> Program:
    """Return the program that bytes hold."""
    return Program.parse_from_string(data)


def serialize_persistables(
    feed_vars: Any, fetch_vars: Any, executor: Any, **kwargs: Any
) -> bytes | None:
    """Return the values that predicting ``fetch_vars`` needs as bytes; None if there are none."""
    program = program_of(kwargs.get("program"))
    predictor = normalize_program(program, feed_vars, fetch_vars)
    return models.persistable_bytes(predictor) or None


def deserialize_persistables(program: Program, data: bytes, executor: Any) -> None:
    """Load the values that bytes hold into the global scope, for the persistables of a program."""
    if not isinstance(program, Program):
        raise InvalidType(f"program must be a Program, got {type(program).__name__}.")
    if not isinstance(data, bytes):
        raise InvalidType(f"data must be bytes, got {type(data).__name__}.")
    load_variables(select_variables(program, None, is_persistable), None, data)


def save_to_file(path: str, content: bytes) -> None:
    """Write bytes to a file."""
    if not isinstance(content, bytes):
        raise InvalidValue(f"content must be bytes, got {type(content).__name__}.")
    with replacing() as files, files.open(path_of(path, "path")) as file:
        file.write(content)


def load_from_file(path: str) -> bytes:
    """Return the bytes of a file."""
    with reading(path_of(path, "path")) as file:
        return file.read()


__all__ = [
    "deserialize_persistables",
    "deserialize_program",
    "load",
    "load_from_file",
    "load_inference_model",
    "load_program_state",
    "normalize_program",
    "save",
    "save_inference_model",
    "save_to_file",
    "serialize_persistables",
    "serialize_program",
    "set_program_state",
]
