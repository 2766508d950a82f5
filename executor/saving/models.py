"""Models: a program that predicts, and the values of its parameters."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from typing import Any

from ...graph.layers.unary import scale
from ...graph.program.clone import copy_program
from ...graph.program.formats.inference import (
    feed_and_fetch_names,
    inference_program,
    stamp_versions,
)
from ...graph.program.formats.program import order_as_copied, parse, serialize
from ...graph.program.program import Program, program_guard
from ...graph.program.variable import Variable
from ...graph.program.where import warn_user
from ...graph.transpiler.trainer import look_up_here
from ...strategies.errors import DamagedFile, InvalidType, InvalidValue, MissingFile, first_of
from ..feed.scope import Scope, global_scope
from .distributed import scope_with_tables
from .files import kind_of, path_of, reading, replacing
from .variables import (
    is_persistable,
    load_variables,
    program_of,
    select_variables,
    write_files,
    write_values,
)

MODEL = "__model__"


def save_inference_model(
    dirname: str,
    feeded_var_names: Any,
    target_vars: Any,
    executor: Any,
    main_program: Any = None,
    model_filename: str | None = None,
    params_filename: str | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the part of a program that predicts ``target_vars``, and the values of its parameters.

    Of a trainer's program, tables are received from the parameter servers, so that the model predicts alone.

    Args:
        dirname: the folder; it is created if missing.
        feeded_var_names: names of the variables that are fed.
        target_vars: the predictions. An op ``scale`` by 1 is appended to the program for each, as Paddle does.
        executor: accepted as Paddle does; values come from the global scope, the newest ones wherever they are.
        main_program: the Program or CompiledProgram; default: the main program.
        model_filename: file of the program; default: ``__model__``.
        params_filename: one file for all parameters; default: a file for each.
        export_for_deployment: False saves the whole program, in ``<model_filename>.main_program``.
        program_only: do not save parameters.

    Returns:
        Names of the variables to fetch.

    Raises:
        InvalidValue: names are no strings, targets no variables, or a fed variable is not needed.
        NotInitialized: a parameter holds no value.
        InvalidState: servers hold a table, and the trainer has not begun, or has said goodbye to them.
        Unsupported: a table with ``is_distributed=True``.
    """
    program = program_of(main_program)
    is_list = isinstance(feeded_var_names, Iterable) and not isinstance(
        feeded_var_names, (str, Variable)
    )
    feeds = list(feeded_var_names) if is_list else [feeded_var_names]
    if not all(isinstance(name, str) for name in feeds):
        raise InvalidValue(f"feeded_var_names must be a list of names, got {feeds!r}.")
    _warn_of_auc(program)
    targets = _targets(target_vars, "target_vars", program)
    model = os.path.basename(model_filename) if model_filename is not None else MODEL
    if export_for_deployment:
        copied = copy_program(program)
        look_up_here(copied)
        targets = _scaled(copied, targets)
        inference = inference_program(copied, feeds, targets)
        order_as_copied(inference)
        stamp_versions(inference)
    else:
        inference, model = program, f"{model}.main_program"
    if program_only:
        warn_user("program_only is True: the parameters are not saved.")
    scope = None if program_only else scope_with_tables(program, inference)
    write_model(inference, dirname, model, params_filename, scope)
    return [target.name for target in targets]


def _scaled(program: Program, targets: list[Variable]) -> list[Variable]:
    """Append an op for each target, so that no pass of a predictor fuses a target away."""
    block = program.global_block()
    with program_guard(program):
        return [
            scale(block.var(target.name), 1.0, name=f"save_infer_model/scale_{i}")
            for i, target in enumerate(targets)
        ]


def _targets(value: Any, argument: str, program: Program) -> list[Variable]:
    targets = [value] if isinstance(value, Variable) else value
    if not isinstance(targets, (list, tuple)) or not targets:
        raise InvalidValue(f"{argument} must be a list of Variables, got {value!r}.")
    for target in targets:
        if not isinstance(target, Variable):
            raise InvalidValue(
                f"{argument} must be a list of Variables, got a {type(target).__name__} in it."
            )
        if not program.global_block().has_var(target.name):
            raise InvalidValue(
                f"{argument}: {target.name!r} is no variable of this program. Give the program that has it, or "
                f"call this within its program_guard."
            )
    return list(targets)


def _warn_of_auc(program: Program) -> None:
    if any(op.type == "auc" for op in program.global_block().ops):
        warn_user("the program has an auc op: set its states to zero before you save it.")


def write_model(
    program: Program,
    folder: str,
    model: str,
    params_filename: str | None,
    scope: Scope | None,
) -> None:
    """Write parameters and program, the program last, so that a new program never lacks its parameters.

    ``scope`` has the values (None: only the program is written).
    """
    folder = path_of(folder, "dirname")
    names = sorted(v.name for v in select_variables(program, None, is_persistable))
    data = serialize(program)
    with replacing() as files:
        if names and scope is not None:
            params = None if params_filename is None else os.path.basename(params_filename)
            write_files(files, folder, params, names, scope)
        with files.open(os.path.join(folder, model)) as file:
            file.write(data)


def load_inference_model(
    dirname: str | None,
    executor: Any,
    model_filename: Any = None,
    params_filename: Any = None,
    pserver_endpoints: Any = None,
) -> list[Any]:
    """Load a model that Paddle or :func:`save_inference_model` saved; parameters go to the global scope.

    Args:
        dirname: the folder, or None if the next two hold the bytes of program and parameters.
        executor: accepted as Paddle does.
        model_filename: file of the program; default: ``__model__``.
        params_filename: the file of all parameters, if they are in one.
        pserver_endpoints: must be None: a model that predicts looks nothing up at parameter servers.

    Returns:
        The program, the names of the variables to feed, and the variables to fetch.

    Raises:
        MissingFile: the folder or a file is not there.
        DamagedFile: a file is damaged, or the parameters are another program's.
    """
    if pserver_endpoints:
        raise InvalidValue(
            "load_inference_model: a model that predicts looks nothing up at parameter servers. Leave "
            f"pserver_endpoints out, got {pserver_endpoints!r}."
        )
    if dirname is None:
        if not isinstance(model_filename, bytes) or not isinstance(params_filename, bytes):
            raise InvalidValue(
                "without dirname, model_filename and params_filename hold the bytes."
            )
        return load_model(model_filename, "the program", None, params_filename)
    folder = path_of(dirname, "dirname")
    if kind_of(folder) != "folder":
        raise MissingFile(f"there is no folder {folder!r} to load a model from.")
    name = MODEL if model_filename is None else os.path.basename(model_filename)
    path = os.path.join(folder, name)
    params = None if params_filename is None else os.path.basename(params_filename)
    return load_model(read_program(path), repr(path), folder, params)


def _others_beside(path: str) -> str:
    """Describe the files in the folder of a program that is missing."""
    folder = os.path.dirname(path)
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # none, or not for this user
        names = []
    if not names:
        return ""
    return f" The folder holds {first_of(map(repr, names))}: name the program's file with model_filename."


def read_program(path: str) -> bytes:
    """Return the bytes of a program's file.

    Raises:
        MissingFile: it is not there; the text differs for a model in Paddle 3's newer format.
    """
    prefix = path.removesuffix(".pdmodel")
    cure = (
        f" {prefix + '.json'!r} is a model in Paddle 3's own format (PIR): save it in Paddle 3 with the "
        f"environment variable FLAGS_enable_pir_api=0, which writes {prefix + '.pdmodel'!r}."
        if prefix != path and os.path.exists(prefix + ".json")
        else _others_beside(path)
    )
    with reading(path, cure) as file:
        return file.read()


def load_model(
    data: bytes,
    label: str,
    folder: str | None,
    params: str | bytes | None,
    scope: Scope | None = None,
) -> list[Any]:
    """Return program, names to feed and variables to fetch, its parameters loaded (default: global scope)."""
    if data[:1] == b"{":
        raise DamagedFile(
            f"{label} is no program but JSON: Paddle 3's own format (PIR). Save it in Paddle 3 with the "
            f"environment variable FLAGS_enable_pir_api=0."
        )
    program = parse(data, Program(), label)
    feeds, fetches = feed_and_fetch_names(program, label)
    block = program.global_block()
    for name in (*feeds, *fetches):
        if name not in block.vars:
            raise DamagedFile(
                f"{label} is no program: it feeds or fetches {name!r}, which is no variable."
            )
    variables = select_variables(program, None, is_persistable)
    if variables:
        load_variables(variables, folder, params, scope)
    return [program, feeds, [block.var(name) for name in fetches]]


def normalize_program(program: Program, feed_vars: Any, fetch_vars: Any, **kwargs: Any) -> Program:
    """Return the part of a program that predicts ``fetch_vars`` from ``feed_vars``, with feed and fetch ops.

    ``skip_prune_program`` (False): keep every op.
    """
    if not isinstance(program, Program):
        raise InvalidType(f"program must be a Program, got {type(program).__name__}.")
    feeds = (
        [v.name for v in _targets(feed_vars, "feed_vars", program)] if _nonempty(feed_vars) else []
    )
    targets = _targets(fetch_vars, "fetch_vars", program)
    _warn_of_auc(program)
    everything = bool(kwargs.get("skip_prune_program", False))
    predictor = inference_program(program, feeds, targets, everything)
    order_as_copied(predictor)
    stamp_versions(predictor)
    return predictor


def _nonempty(variables: Any) -> bool:
    return isinstance(variables, Variable) or bool(variables)


def persistable_bytes(program: Program) -> bytes:
    """Return the values of a program's persistables as one stream."""
    names: Sequence[str] = sorted(v.name for v in select_variables(program, None, is_persistable))
    stream = io.BytesIO()
    write_values(stream, names, global_scope())
    return stream.getvalue()
