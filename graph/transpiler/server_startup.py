"""The startup program of one server: it initializes its shards, and no more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidValue
from ..program.block import Block
from ..program.operator import Operator
from ..program.program import Program
from ..program.variable import Variable
from .placement import Shard, Trained
from .plan import Plan
from .rewriting import append, copy_op, copy_variable
from .table import Table

# These fill a shape that an attribute gives; those that draw give a shard numbers of its own.
_FILL = {"gaussian_random", "fill_constant", "uniform_random", "truncated_gaussian_random"}
_VALUES = ("fp32_values", "int32_values", "int64_values", "bool_values")


def write_server_startup(server: Program, plan: Plan, endpoint: str) -> Program:
    """Return the startup program of a server, from that of its trainers before they were told to receive."""
    startup, trained = plan.startup_source, plan.trained
    program = Program()
    program.random_seed = startup.random_seed
    block = program.global_block()
    for variable in server.global_block().vars.values():
        copy_variable(block, variable)
    shards = _shards_here(trained, endpoint)
    state = _state_here(server, trained, endpoint)
    ops = startup.global_block().ops
    writers: dict[str, list[Operator]] = {}
    for op in ops:
        for name in op.output_arg_names:
            writers.setdefault(name, []).append(op)
    for op in ops:
        name = (op.output_arg_names or [""])[0]
        if plan.table is not None and plan.table.name == name:
            copy_op(
                block, op, {}, _rows_of_table(op, plan.table, plan.topology.endpoints, endpoint)
            )
            continue
        targets = [(shard.parameter, shard) for shard in shards.get(name, ())]
        for target, shard in targets or state.get(name, []):
            source = startup.global_block().var(name)
            _initialize(block, op, writers[name], source, target, shard)
    _back_up(block, shards)
    return program


def _shards_here(trained: list[Trained], endpoint: str) -> dict[str, list[Shard]]:
    """Return the shards that a server has, by parameter."""
    return {
        entry.parameter.name: [s for s in entry.shards if s.endpoint == endpoint]
        for entry in trained
    }


def _state_here(
    server: Program, trained: list[Trained], endpoint: str
) -> dict[str, list[tuple[str, Shard | None]]]:
    """Return a server's state by its name in the trainer's program: its name here, and its shard."""
    block = server.global_block()
    state: dict[str, list[tuple[str, Shard | None]]] = {}
    shards = {
        s.parameter: s for e in trained if e.split for s in e.shards if s.endpoint == endpoint
    }
    for name in block.vars:
        state.setdefault(name, []).append((name, None))
    for update in (op for body in server.blocks[1:] for op in body.ops):
        shard = shards.get((update.inputs.get("Param") or [""])[0])
        for name in update.input_arg_names if shard else ():
            if shard and block.has_var(name) and block.var(name).shape == shard.shape:
                suffix = "." + shard.parameter.rpartition(".")[2]
                original = name.removesuffix(suffix)
                others = [pair for pair in state.get(original, []) if pair[0] != name]
                state[original] = [*others, (name, shard)]
    return state


def _initialize(
    block: Block,
    op: Operator,
    writers: list[Operator],
    source: Variable,
    target: str,
    shard: Shard | None,
) -> None:
    """Append what makes a variable, or those rows of it that a shard has; ``op`` is one of its writers."""
    whole = target
    attrs: dict[str, Any] = {}
    if shard is not None and shard.shape != source.shape:
        if len(writers) > 1 or op.type not in (*_FILL, "assign_value"):
            whole = f"{target}@WHOLE"
            copy_variable(block, source, name=whole, persistable=False)
        elif op.type == "assign_value":
            attrs = _rows_of_values(op, shard)
        else:
            attrs = {"shape": list(shard.shape)}
    for name in op.input_arg_names:
        if name != source.name and not block.has_var(name):
            raise InvalidValue(
                f"DistributeTranspiler: {op.type!r} makes {source.name!r} from {name!r}, which the server that "
                f"has it lacks. Initialize it on its own. {op.where}"
            )
    copy_op(block, op, {source.name: whole}, attrs)
    if shard is not None and whole != target and op is writers[-1]:
        rows = {"axes": [0], "starts": [shard.begin], "ends": [shard.begin + shard.rows]}
        append(block, "slice", ({"Input": whole}, {"Out": target}), rows, 0)


def _rows_of_values(op: Operator, shard: Shard) -> dict[str, Any]:
    width = math.prod(shard.shape[1:])
    part = slice(shard.begin * width, (shard.begin + shard.rows) * width)
    lists = {n: list(op.attrs[n])[part] for n in _VALUES if op.attrs.get(n)}
    return {"shape": list(shard.shape), **lists}


def _rows_of_table(
    op: Operator, table: Table, endpoints: Sequence[str], endpoint: str
) -> dict[str, Any]:
    """Return the attributes by which an op makes a server's part of a table, every so many rows of it."""
    shape = table.shape(len(endpoints))
    if op.type in _FILL:
        return {"shape": list(shape)}
    if op.type != "assign_value":
        raise InvalidValue(
            f"DistributeTranspiler: {op.type!r} cannot make parts of the table {table.name!r} "
            f"(is_distributed=True). Initialize it with Constant, Uniform, Normal, TruncatedNormal or "
            f"NumpyArrayInitializer. {op.where}"
        )
    lists = {}
    for name in (name for name in _VALUES if op.attrs.get(name)):
        own = np.reshape(op.attrs[name], (-1, *shape[1:]))[
            endpoints.index(endpoint) :: len(endpoints)
        ]
        part = np.zeros(shape, own.dtype)
        part[: len(own)] = own
        lists[name] = part.reshape(-1).tolist()
    return {"shape": list(shape), **lists}


def _back_up(block: Block, shards: dict[str, list[Shard]]) -> None:
    """Note the first values as those that each trainer received: they correct gradients that are late."""
    for shard in (s for of in shards.values() for s in of):
        prefix = f"{shard.parameter}.trainer_"
        for name in [n for n in block.vars if n.startswith(prefix) and n.endswith("_bak")]:
            append(block, "assign", ({"X": shard.parameter}, {"Out": name}), {}, 0)
