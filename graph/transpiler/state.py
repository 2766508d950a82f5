"""The state of servers beside parameters: accumulators of optimizers, counters of schedules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..program.block import Block
from ..program.operator import Operator
from ..program.program import Program
from ..program.role import OpRole
from .placement import Shard, Trained, role_var_of
from .topology import COUNTER, Topology

_SCHEDULE_ROLES = (OpRole.LRSched, OpRole.LRSched | OpRole.Optimize)


def schedule_of(source: Program) -> list[Operator]:
    """Return the operators that compute learning rates."""
    return [op for op in source.global_block().ops if op.role in _SCHEDULE_ROLES]


def updates_of(source: Program) -> dict[str, list[Operator]]:
    """Return by parameter what servers do for it: decay of weights, the update, what advances its state."""
    by_parameter: dict[str, list[Operator]] = {}
    for op in source.global_block().ops:
        if op.role == OpRole.Optimize:
            by_parameter.setdefault(role_var_of(op), []).append(op)
    return by_parameter


def state_name(name: str, entry: Trained, shard: Shard) -> str:
    """Return the name that a server has for a shard's part of a state as large as the parameter.

    Two shards of a parameter at one server (by HashName) have state of their own.
    """
    first = next(other for other in entry.shards if other.endpoint == shard.endpoint)
    return name if shard is first else f"{name}.{shard.parameter.rpartition('.')[2]}"


def served_state(
    source: Program, trained: Sequence[Trained], topology: Topology
) -> dict[str, tuple[Shard, ...]]:
    """Return by name where state is: its parts, or a copy of it at each of several servers.

    ``source`` is the training program as it was before.
    """
    block, updates = source.global_block(), updates_of(source)
    state: dict[str, tuple[Shard, ...]] = {}
    for entry in trained:
        ops = updates.get(entry.parameter.name, [])
        own = {entry.parameter.name, entry.gradient.name}
        for name in _carried(block, ops) - own:
            shape = tuple(block.var(name).shape or ())
            if entry.split and shape == entry.parameter.shape:
                state[name] = tuple(
                    Shard(state_name(name, entry, s), "", s.endpoint, s.begin, s.shape)
                    for s in entry.shards
                )
            else:
                state[name] = _copies(name, shape, entry.endpoints)
    for name in _carried(block, schedule_of(source)):
        # Asynchronous servers add up what trainers count.
        if name != COUNTER or topology.sync_mode:
            state[name] = _copies(name, tuple(block.var(name).shape or ()), topology.endpoints)
    return state


def _copies(name: str, shape: tuple[int, ...], endpoints: Iterable[str]) -> tuple[Shard, ...]:
    return tuple(Shard(name, "", endpoint, 0, shape) for endpoint in dict.fromkeys(endpoints))


def _carried(block: Block, ops: Iterable[Operator]) -> set[str]:
    """Return the names of variables that operators write, and read as they were before."""
    reads: set[str] = set()
    writes: set[str] = set()
    for op in ops:
        reads |= set(op.input_arg_names) - writes
        writes |= set(op.output_arg_names)
    return {name for name in reads & writes if block.has_var(name) and block.var(name).persistable}
