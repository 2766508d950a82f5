"""Rewrite a program so that its temporaries share memory, as Paddle up to 1.5 did.

The compiler plans memory for every program, and better than shared names could, so these functions save no byte
and change no result. They exist for programs that call them and for tools that read the rewritten programs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ...strategies.errors import InvalidValue, require_type
from ...strategies.log import log
from ...strategies.types import VarType
from ..program.block import Block
from ..program.operator import Operator
from ..program.program import Program
from ..program.role import EMPTY_VAR, ROLE, ROLE_VAR, OpRole
from ..program.variable import Variable
from .rewriting import insert

_warned: set[str] = set()


def memory_optimize(
    input_program: Program,
    skip_opt_set: Any = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """Have operators write over temporaries that nothing reads any more, in place.

    Args:
        input_program: the program to rewrite.
        skip_opt_set: variables, or names, that keep a variable of their own, such as fetched ones.
        print_log: print each reuse.
        level: 0: variables of one shape share; 1: smaller ones take larger ones, too.
        skip_grads: gradients of parameters keep their variables.

    Raises:
        InvalidType: no Program, or an item of ``skip_opt_set`` that is no variable.
        InvalidValue: another ``level``, or ``skip_opt_set`` is no set and no list.
    """
    _check_program("memory_optimize", input_program)
    if level not in (0, 1) or isinstance(level, bool):
        raise InvalidValue(f"memory_optimize: level must be 0 or 1, got {level!r}.")
    _warn_once("memory_optimize")
    skipped = _skip_names("memory_optimize", skip_opt_set)
    block = input_program.global_block()
    if skip_grads:
        skipped |= _gradients(block)
    _Reuse(block, skipped, level, print_log).run()
    input_program.touch()


def release_memory(input_program: Program, skip_opt_set: Any = None) -> None:
    """Insert ``delete_var`` behind each operator that is the last to read some temporaries, in place.

    Raises:
        InvalidType, InvalidValue: as :func:`memory_optimize`.
    """
    _check_program("release_memory", input_program)
    _warn_once("release_memory")
    skipped = _skip_names("release_memory", skip_opt_set)
    block = input_program.global_block()
    skipped |= _held_by_blocks(block)
    live = _live_after(block.ops)
    for index in reversed(range(len(block.ops))):
        op = block.ops[index]
        dead = [n for n in _dying(op, live[index]) if n not in skipped and _is_temporary(block, n)]
        if dead:
            insert(block, index + 1, "delete_var", ({"X": dead}, {}), {}, int(op.attrs[ROLE]))


class _Reuse:
    """One run over a block: ``pool`` holds dead variables, the smallest first, and of open sizes last."""

    def __init__(self, block: Block, skipped: set[str], level: int, print_log: bool) -> None:
        self.block, self.level, self.print_log = block, level, print_log
        self.skipped = skipped | _held_by_blocks(block) | _fixed_results(block)
        self.pool: list[Variable] = []
        self.several: list[Variable] = []  # shapes: they follow from the operators
        self.used: set[str] = set()  # by operators before the present one
        self.last_write = {n: i for i, op in enumerate(block.ops) for n in op.output_arg_names}

    def run(self) -> None:
        """Rename variables, operator by operator."""
        ops = self.block.ops
        live = _live_after(ops)
        for index, op in enumerate(ops):
            if not _holds_block(op):
                for name in dict.fromkeys(op.output_arg_names):
                    self._give(index, name, live)
            for name in _dying(op, live[index]):
                again = self.last_write.get(name, -1) > index
                if self._can_share(name) and not again:
                    self.pool.append(self.block.var(name))
            self.pool.sort(key=_order)
            self.used.update(op.input_arg_names, op.output_arg_names)
        for variable in self.several:
            variable.desc.set_shape(())

    def _give(self, index: int, name: str, live: list[set[str]]) -> None:
        """Have an output take the first variable of the pool that it fits into."""
        op = self.block.ops[index]
        fresh = name not in op.input_arg_names and name in live[index]
        if not fresh or not self._can_share(name) or name in self.used:
            return
        variable = self.block.var(name)
        for position, cached in enumerate(self.pool):
            if self._fits(variable, cached):
                del self.pool[position]
                self._rename(index, variable, cached)
                for names in live[index:]:
                    if name in names:
                        names.remove(name)
                        names.add(cached.name)
                return

    def _can_share(self, name: str) -> bool:
        return name not in self.skipped and _is_temporary(self.block, name)

    def _fits(self, variable: Variable, cached: Variable) -> bool:
        if variable.dtype != cached.dtype or variable.lod_level != cached.lod_level:
            return False
        if self.level == 0:
            return variable.shape == cached.shape
        return _size(variable) <= _size(cached) and _is_open(variable) == _is_open(cached)

    def _rename(self, index: int, variable: Variable, cached: Variable) -> None:
        old, new = variable.name, cached.name
        for op in self.block.ops[index:]:
            op.rename_input(old, new)
            op.rename_output(old, new)
            names = op.attrs.get(ROLE_VAR) or []
            if old in names:
                op.attrs[ROLE_VAR] = [new if name == old else name for name in names]
        self.last_write[new] = max(self.last_write[old], self.last_write.get(new, -1))
        if variable.shape != cached.shape:
            self.several.append(cached)
        if self.print_log:
            print(f"memory_optimize: {old} {list(variable.shape or ())} takes the variable {new}")
        program = self.block.program
        program.shared_variables |= {old: new, new: new}
        del self.block.vars[old]


def _live_after(ops: Sequence[Operator]) -> list[set[str]]:
    """Return, for each operator, the names that later operators read before they write them."""
    live: list[set[str]] = [set() for _ in ops]
    needs: set[str] = set()
    for index in reversed(range(len(ops))):
        live[index] = set(needs)
        needs -= set(ops[index].output_arg_names)
        needs |= set(ops[index].input_arg_names)
    return live


def _dying(op: Operator, live: set[str]) -> list[str]:
    """Return what an operator reads and nothing does behind it."""
    writes = op.output_arg_names
    return [n for n in dict.fromkeys(op.input_arg_names) if n not in live and n not in writes]


def _is_temporary(block: Block, name: str) -> bool:
    variable = block.vars.get(name)
    if variable is None or name == EMPTY_VAR or variable.persistable or variable.is_data:
        return False
    return variable.type == VarType.LOD_TENSOR and bool(variable.shape)


def _holds_block(op: Operator) -> bool:
    return any(isinstance(value, Block) for value in op.attrs.values())


def _held_by_blocks(block: Block) -> set[str]:
    """Return what operators with blocks, and the blocks, read and write: they may do so over and over."""
    names: set[str] = set()
    for op in block.ops:
        if _holds_block(op):
            names.update(op.input_arg_names, op.output_arg_names)
    for other in block.program.blocks:
        for op in other.ops if other is not block else ():
            names.update(op.input_arg_names, op.output_arg_names)
    return names


def _fixed_results(block: Block) -> set[str]:
    """Return results that depend on their names (random numbers), and those that stay on the host."""
    fixed: set[str] = set()
    for op in block.ops:
        if op.declaration.random or op.attrs.get("force_cpu"):
            fixed.update(op.output_arg_names)
    return fixed


def _gradients(block: Block) -> set[str]:
    updates: Iterable[Operator] = (op for op in block.ops if op.role & OpRole.Optimize)
    return {name for op in updates for name in (op.attrs.get(ROLE_VAR) or [])[1::2]}


def _size(variable: Variable) -> int:
    return abs(math.prod(variable.shape or ()))


def _is_open(variable: Variable) -> bool:
    return bool(variable.shape) and variable.shape[0] < 0  # type: ignore[index]


def _order(variable: Variable) -> tuple[bool, int]:
    return _is_open(variable), _size(variable)


def _check_program(caller: str, program: Any) -> None:
    require_type(program, Program, f"{caller}: a Program is rewritten")


def _skip_names(caller: str, skipped: Any) -> set[str]:
    if skipped is None:
        return set()
    require_type(
        skipped,
        set | list,
        f"{caller}: skip_opt_set must be a set or a list of variables",
        InvalidValue,
    )
    for item in skipped:
        require_type(item, Variable | str, f"{caller}: skip_opt_set holds variables or their names")
    return {item if isinstance(item, str) else item.name for item in skipped}


def _warn_once(name: str) -> None:
    if name not in _warned:
        _warned.add(name)
        log.warning(
            "fluid.%s: memory is planned when a program is compiled, so that the rewritten program needs as "
            "much as it did before, and computes the same. Take the call out.",
            name,
        )
