"""Copies of programs: whole, for testing, and pruned to the ops that some results need."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from ...strategies.errors import InvalidType, InvalidValue
from .block import Block, ProgramBlocks
from .operator import Operator
from .role import EMPTY_VAR, OpRole
from .variable import Variable

_Program = TypeVar("_Program", bound=ProgramBlocks)
_DISTRIBUTED = (
    *("_trainers_endpoints", "_nccl_comm_num", "_use_hierarchical_allreduce"),
    *("_hierarchical_allreduce_inter_nranks", "distribution", "_is_distributed", "_is_chief"),
    *("_endpoints", "_ps_endpoint", "_distributed_lookup_table"),
)
_NOT_FORWARD = int(OpRole.Backward | OpRole.Optimize | OpRole.LRSched)


def copy_program(program: _Program) -> _Program:
    """Return a deep copy, parameters' settings, seed and role state included."""
    clone = type(program)()
    clone.random_seed, clone.first_step = program.random_seed, program.first_step
    clone.lr_scheduler = program.lr_scheduler
    clone.readers = list(program.readers)
    clone._current_role, clone._op_role_var = program._current_role, list(program._op_role_var)
    clone._appending_grad_times = program._appending_grad_times
    for name in _DISTRIBUTED:
        setattr(clone, name, getattr(program, name))
    clone.blocks = [Block(clone, block.idx, block.parent_idx) for block in program.blocks]
    clone.current_block_idx = program.current_block_idx
    clone.file_fields = dict(program.file_fields)
    clone.shared_variables = dict(program.shared_variables)
    for source, block in zip(program.blocks, clone.blocks, strict=True):
        block.forward_block_idx = source.forward_block_idx
        block.from_file, block.file_fields = source.from_file, source.file_fields
        for name, variable in source.vars.items():
            block.vars[name] = _copy_variable(variable, block)
        for op in source.ops:
            _append_copy(block, op)
    return clone


def _copy_variable(variable: Variable, block: Block) -> Variable:
    clone = copy.copy(variable)
    clone.block, clone.op = block, None
    return clone


def _append_copy(block: Block, op: Operator) -> Operator:
    clone = copy.copy(op)
    clone.block = block
    clone.inputs = {slot: list(names) for slot, names in op.inputs.items()}
    clone.outputs = {slot: list(names) for slot, names in op.outputs.items()}
    clone.attrs = {name: _copy_value(value, block.program) for name, value in op.attrs.items()}
    block.ops.append(clone)
    for name in clone.output_arg_names:
        if name in block.vars:
            block.vars[name].op = clone
    return clone


def _copy_value(value: Any, program: ProgramBlocks) -> Any:
    """Copy an attribute; blocks are those of the copied program."""
    if isinstance(value, Block):
        return program.blocks[value.idx]
    if isinstance(value, list):
        return [_copy_value(item, program) for item in value]
    return copy.deepcopy(value)


def for_test_program(program: _Program) -> _Program:
    """Return the forward part alone, with ``is_test`` set; its seed is the default.

    Of what a trainer exchanges with parameter servers it only looks rows up. Where ops are dropped, so are
    variables that no other op mentions and no reader feeds; else all variables stay.
    """
    clone = copy_program(program)
    clone.random_seed, clone.first_step = type(program)().random_seed, 0
    clone.lr_scheduler = None
    clone._appending_grad_times = 0
    drops = False
    for block in clone.blocks:
        ops = [op for op in block.ops if not (op.role & _NOT_FORWARD or _exchanges(op))]
        drops = drops or len(ops) < len(block.ops)
        block.ops = ops
    set_test_mode(clone)
    if drops:
        _drop_unused(clone, keep={name for reader in clone.readers for name in reader.names})
    return clone


def set_test_mode(program: ProgramBlocks) -> None:
    """Have ops such as dropout and batch norm compute as they do behind training."""
    for block in program.blocks:
        for op in block.ops:
            if "is_test" in op.attrs:
                op.attrs["is_test"] = True


def _exchanges(op: Operator) -> bool:
    """Tell whether an op sends to servers what a step computed, or receives what the next one reads."""
    return bool(op.role & (OpRole.RPC | OpRole.Dist)) and op.type != "prefetch"


def prune(program: _Program, feed_names: Sequence[str], targets: Any) -> _Program:
    """Return a copy with only the ops that the targets need when ``feed_names`` are fed.

    Raises:
        InvalidType: a target that is no Variable, name or Operator.
        InvalidValue: no op makes a target.
    """
    targets = targets if isinstance(targets, (list, tuple)) else [targets]
    needs: set[str] = set()
    for target in targets:
        if isinstance(target, Operator):
            needs.update(target.output_arg_names)
        elif isinstance(target, (Variable, str)):
            needs.add(target if isinstance(target, str) else target.name)
        else:
            raise InvalidType(
                f"a target must be a Variable, a name or an Operator, got {target!r}."
            )
    clone = copy_program(program)
    block = clone.global_block()
    produced = {name for op in block.ops for name in op.output_arg_names}
    for name in needs - set(feed_names):
        if name not in produced:
            raise InvalidValue(
                f"cannot prune to {name!r}: no operator of this program makes it. Where another one does, give "
                f"that, or call this within its program_guard."
            )
    ops: list[Operator] = []
    for op in reversed(block.ops):
        optimizes = op.role & int(OpRole.Optimize) and not any(
            isinstance(t, Operator) for t in targets
        )
        if needs.intersection(op.output_arg_names) and not optimizes:
            ops.append(op)
            needs.update(name for name in op.input_arg_names if name not in feed_names)
    block.ops = ops[::-1]
    _drop_unused(clone, keep=set(feed_names))
    return clone


def _blocks_below(block: Block) -> list[Block]:
    """Return a block and those that its ops hold, and theirs."""
    inner = [value for op in block.ops for value in op.attrs.values() if isinstance(value, Block)]
    return [block, *(block for each in inner for block in _blocks_below(each))]


def _drop_unused(program: ProgramBlocks, keep: set[str] | frozenset[str] = frozenset()) -> None:
    """Drop blocks that no op holds and variables that no op mentions; sort others by name, as Paddle does."""
    in_use = {block.idx for block in _blocks_below(program.global_block())}
    numbers = {old: new for new, old in enumerate(sorted(in_use))}
    program.blocks = [block for block in program.blocks if block.idx in in_use]
    for block in program.blocks:
        block.idx = numbers[block.idx]
        block.parent_idx = numbers.get(block.parent_idx, -1)
        block.forward_block_idx = numbers.get(block.forward_block_idx, -1)
    for block in program.blocks:
        mentions = {n for op in block.ops for n in (*op.input_arg_names, *op.output_arg_names)} - {
            EMPTY_VAR
        }
        names = sorted(name for name in block.vars if name in mentions or name in keep)
        variables = {name: block.vars[name] for name in names}
        block.vars.clear()
        block.vars.update(variables)
    program.touch()
