"""Small changes of programs that several of the rewriters make."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ...strategies.types import VarType
from ..program.block import Block
from ..program.operator import Operator
from ..program.program import Program
from ..program.role import CALLSTACK, DEVICE, NAMESCOPE, ROLE, ROLE_VAR, OpRole
from ..program.variable import Variable

RPC, DIST = int(OpRole.RPC), int(OpRole.Dist)
Slots = tuple[dict[str, Any], dict[str, Any]]  # of inputs, of outputs
_drawn = random.Random()


def control_variable(block: Block) -> Variable:
    """Add a variable without a value, which orders messages; its name is drawn."""
    return block.create_var(name=f"__control_var@{_drawn.random()}")


def new_block(program: Program, parent: int) -> Block:
    """Add a block inside another one, and go back to block 0."""
    block = program._create_block(parent)
    program.current_block_idx = 0
    return block


def insert(
    block: Block, index: int, kind: str, slots: Slots, attrs: dict[str, Any], role: int = RPC
) -> Operator:
    """Insert an operator of a role; ``slots`` are its inputs and its outputs."""
    inputs, outputs = slots
    return block._insert_op(index, kind, inputs, outputs, {ROLE: role, **attrs})


def append(
    block: Block, kind: str, slots: Slots, attrs: dict[str, Any], role: int = RPC
) -> Operator:
    """Append an operator of a role; ``slots`` are its inputs and its outputs."""
    return insert(block, len(block.ops), kind, slots, attrs, role)


def last_writer(block: Block, name: str) -> int:
    """Return the index of the last operator that writes a variable (-1: none does)."""
    for index in range(len(block.ops) - 1, -1, -1):
        if name in block.ops[index].output_arg_names:
            return index
    return -1


def place_for(block: Block, ops: Sequence[Operator]) -> int | None:
    """Return where one operator can stand for several: behind their operands' writers, before their readers.

    The index is that in the block without them; None: there is no such place.
    """
    ids = {id(op) for op in ops}
    reads = {name for op in ops for name in op.input_arg_names}
    writes = {name for op in ops for name in op.output_arg_names}
    rest = [op for op in block.ops if id(op) not in ids]
    makers = [i for i, op in enumerate(rest) if reads.intersection(op.output_arg_names)]
    users = [i for i, op in enumerate(rest) if writes.intersection(op.input_arg_names)]
    forward = [i for i in makers if not rest[i].role & (OpRole.Backward | OpRole.Optimize)]
    index = max(forward, default=-1) + 1
    return index if index <= min(users, default=index) else None


def rename(block: Block, names: dict[str, str]) -> None:
    """Rename variables, by their old names, also where operators say which gradient they serve."""
    variables = [(names.get(name, name), variable) for name, variable in block.vars.items()]
    block.vars.clear()
    for name, variable in variables:
        variable.name = name
        block.vars[name] = variable
    for op in block.ops:
        lists = [*op.inputs.values(), *op.outputs.values(), op.attrs.get(ROLE_VAR) or []]
        for of in lists:
            of[:] = [names.get(name, name) for name in of]
    block.program.touch()


def remove_ops(block: Block, ops: Sequence[Operator]) -> None:
    """Remove operators from a block."""
    ids = {id(op) for op in ops}
    block.ops = [op for op in block.ops if id(op) not in ids]
    block.program.touch()


def copy_variable(
    block: Block,
    source: Variable,
    *,
    name: str | None = None,
    shape: Sequence[int] | None = None,
    persistable: bool = True,
) -> Variable:
    """Add a variable like another, of a name and shape of its own."""
    tensor = source.type in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS)
    return block.create_var(
        name=name or source.name,
        shape=source.shape if shape is None else shape,
        dtype=source.dtype,
        type=source.type,
        lod_level=source.lod_level,
        persistable=persistable if tensor else source.persistable,
    )


def copy_op(
    block: Block, op: Operator, names: dict[str, str], attrs: dict[str, Any] | None = None
) -> Operator:
    """Append a copy of an operator that reads and writes other variables, by their old names."""

    def renamed(slots: dict[str, list[str]]) -> dict[str, list[str]]:
        return {slot: [names.get(n, n) for n in of] for slot, of in slots.items()}

    stamps = {ROLE, ROLE_VAR, CALLSTACK, DEVICE}
    same = {n: v for n, v in op.attrs.items() if n in op.declaration.attrs or n in stamps}
    same = {n: list(v) if isinstance(v, (list, tuple)) else v for n, v in same.items()}
    return block.append_op(
        op.type, renamed(op.inputs), renamed(op.outputs), {**same, NAMESCOPE: "/", **(attrs or {})}
    )


def drop_unused(program: Program, candidates: set[str]) -> None:
    """Remove those of some variables of block 0 that no operator mentions which is still run."""
    block = program.global_block()
    for name in candidates - _mentioned(block):
        if block.has_var(name):
            block._remove_var(name)


def _mentioned(block: Block) -> set[str]:
    names = {n for op in block.ops for n in (*op.input_arg_names, *op.output_arg_names)}
    bodies = (value for op in block.ops for value in op.attrs.values() if isinstance(value, Block))
    return names.union(*map(_mentioned, bodies))
