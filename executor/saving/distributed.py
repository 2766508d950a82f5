"""What trainers and parameter servers hold of one program, saved to files as of one process, and loaded again.

A trainer saves what it has, the first trainer also what only servers have: tables, the state of optimizers and
of schedules, a file each. A server loads its rows of these files. A table with ``is_distributed=True`` is saved
by the servers themselves, each its part, under ``__lookup_table__``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from ...graph.program.formats.tensors import TensorFile, write_tensor
from ...graph.program.program import Program
from ...graph.transpiler.exchange import Exchange, Piece, Saved, TableLookup, exchange_of
from ...graph.transpiler.placement import Shard
from ...graph.transpiler.plan import Distribution
from ...graph.transpiler.server_program import serves
from ...strategies.errors import InvalidValue, StateMismatch, Unsupported, first_of
from ...strategies.log import log
from ..feed.scope import Scope, global_scope
from ..servers.session import Session, open_session
from .files import inside, kind_of, path_of, reading, replacing
from .variables import is_persistable, select_variables, value_of

_TABLES = "__lookup_table__"


def is_trainers(program: Program) -> bool:
    """Tell whether a program is that of a trainer with parameter servers."""
    return program.distribution is not None and not serves(program)


def save_distributed(dirname: str | None, program: Program, filename: str | None = None) -> None:
    """Save the persistable variables of a trainer's program, and those of its servers, to a file each.

    Every trainer saves its own, trainer 0 also those of the servers, as they are behind its last step.

    Raises:
        InvalidValue: no folder, or one file for all.
        InvalidState: the trainer's executor has not run the startup program, or was closed.
        NotInitialized: a variable holds no value in the global scope.
    """
    folder, distribution = _folder(dirname, filename), _distribution(program)
    exchange = exchange_of(program)
    session = open_session(exchange)
    remote = _remote(distribution)
    elsewhere = {*remote, distribution.distributed_table}
    own = select_variables(program, None, lambda v: is_persistable(v) and v.name not in elsewhere)
    with replacing() as files:
        for name in sorted(v.name for v in own):
            tensor = value_of(name, global_scope())
            with files.open(inside(folder, name)) as file:
                write_tensor(file, tensor.memory(), tensor.lod())
        for name, shards in sorted(remote.items()) if program._is_chief else ():
            value = served_value(session, exchange, name, shards)
            with files.open(inside(folder, name)) as file:
                write_tensor(file, value)
    if program._is_chief and distribution.distributed_table:
        table = distribution.distributed_table
        session.save(
            [
                Saved(endpoint, _table_folder(folder, table, number), table)
                for number, endpoint in enumerate(distribution.topology.endpoints)
            ]
        )


def scope_with_tables(program: Program, model: Program) -> Scope:
    """Return a scope that has what a ``model`` of a program needs: the global one, or a child of it.

    The child has the tables that the servers of a trainer's program hold, received from them.

    Raises:
        InvalidState: the trainer's executor has not run the startup program, or was closed.
        Unsupported: the model looks a table with ``is_distributed=True`` up.
    """
    scope = global_scope()
    if not is_trainers(program):
        return scope
    distribution = _distribution(program)
    if any(op.type == "prefetch" for op in model.global_block().ops):
        raise Unsupported(
            f"a model cannot have the table {distribution.distributed_table!r}, of which each parameter server "
            f"has a part (is_distributed=True): fluid.io.save_persistables saves the parts. Look it up with "
            f"is_sparse=True alone to save it in a model."
        )
    needed_names = {v.name for v in select_variables(model, None, is_persistable)}
    tables = sorted(distribution.tables & needed_names)
    if not tables:
        return scope
    exchange = exchange_of(program)
    session, scope = open_session(exchange), Scope(scope)
    for name in tables:
        value = served_value(session, exchange, name, distribution.shards[name])
        scope.var(name).get_tensor().adopt(value)
    return scope


def load_distributed(dirname: str | None, program: Program, filename: object = None) -> None:
    """Load a server's rows of what :func:`save_distributed` saved into the global scope.

    State of optimizers and schedules that has no file stays as the startup program made it, with a warning.

    Raises:
        InvalidValue: no folder, or one file for all.
        MissingFile: a parameter has no file.
        StateMismatch: a file's shape or element type is not the program's.
    """
    folder, distribution = _folder(dirname, filename), _distribution(program)
    here = str(program._ps_endpoint)
    missing = []
    for name, shards in (distribution.shards | distribution.state).items():
        path, own = inside(folder, name), [s for s in shards if s.endpoint == here]
        if own and name in distribution.state and not kind_of(path):
            missing.append(name)
            continue
        for shard in own:
            _load_rows(path, name, shard, shards)
    table, number = distribution.distributed_table, distribution.topology.endpoints.index(here)
    if table:
        path = inside(_table_folder(folder, table, number), table)
        rows = global_scope().home(table).get_tensor().memory()
        _load_rows(path, table, Shard(table, "", here, 0, rows.shape), ())
    if missing:
        log.warning(
            "%d variable(s) of optimizers or schedules have no file in %r, and begin anew at the parameter "
            "server %s: %s",
            len(missing),
            folder,
            here,
            first_of(missing),
        )


def served_value(
    session: Session, exchange: Exchange, name: str, shards: Sequence[Shard]
) -> np.ndarray:
    """Return the value of a variable that servers hold, in parts or as copies."""
    height = sum(shard.rows for shard in shards)
    pieces = tuple(Piece(s.endpoint, s.parameter, s.begin, s.begin + s.rows) for s in shards)
    if _copies(shards):
        height, pieces = shards[0].rows, pieces[:1]
    whole = TableLookup("", name, pieces, height, padding_idx=-1, drops_last=False)
    return session.lookup(exchange, whole, np.arange(height))


def _copies(shards: Sequence[Shard]) -> bool:
    return not any(shard.begin for shard in shards)


def _remote(distribution: Distribution) -> Mapping[str, tuple[Shard, ...]]:
    """Return what trainers have no copy of, the distributed table aside."""
    return {n: distribution.shards[n] for n in distribution.tables} | distribution.state


def _distribution(program: Program) -> Distribution:
    distribution: Distribution = program.distribution
    return distribution


def _folder(dirname: str | None, filename: object) -> str:
    if dirname is None or filename is not None:
        raise InvalidValue(
            "a program that trains with parameter servers has a file for each variable: pass a folder as "
            "dirname, and no filename."
        )
    return path_of(dirname, "dirname")


def _table_folder(folder: str, table: str, number: int) -> str:
    return os.path.join(folder, _TABLES, f"{table}_{number}")


def _load_rows(path: str, name: str, shard: Shard, shards: Sequence[Shard]) -> None:
    """Read the rows of a shard from a file that has all of them."""
    tensor = global_scope().home(shard.parameter).get_tensor()
    memory = tensor.memory()
    height = shard.rows if _copies(shards) else sum(other.rows for other in shards)
    shape = (height, *shard.shape[1:])
    cure = " Save with fluid.io.save_persistables from a trainer, before its executor is closed."
    with reading(path, cure) as file:
        tensors = TensorFile(file, repr(path))
        (entry,) = tensors.scan([name])
        if entry.shape != shape or entry.dtype != memory.dtype:
            raise StateMismatch(
                f"variable {name!r} is {memory.dtype}{list(shape)} at the parameter server "
                f"{shard.endpoint}, and {entry.dtype}{list(entry.shape)} in {path!r}. Build the program as it "
                f"was when it was saved."
            )
        at = entry.offset + shard.begin * (entry.nbytes // max(height, 1))
        tensors.read(entry._replace(shape=shard.shape, offset=at), memory)
    tensor.written()
