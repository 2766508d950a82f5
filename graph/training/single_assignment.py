"""Gives each value of a variable that is written again a name of its own, before gradients are built.

Gradient ops read by name what their ops read. Behind a second write the name stands for another value, and the
gradients of gradient ops would go to that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, islice

from ...strategies.errors import Unsupported
from ...strategies.types import VarType
from ..program.block import Block
from ..program.operator import Operator
from ..program.role import (
    CALLSTACK,
    DEVICE,
    EMPTY_VAR,
    NAMESCOPE,
    ROLE,
    ROLE_VAR,
    OpRole,
    overwritten_name,
)
from ..program.variable import Variable


@dataclass
class _Version:
    """One value of a variable: the op that writes it (None: none in the block), and the ops that read it."""

    writer: Operator | None
    readers: list[Operator] = field(default_factory=list)


def name_overwritten_values(
    block: Block, path: Sequence[Operator], stopped: set[str]
) -> dict[str, list[str]]:
    """Rename the values that an op of ``path`` reads or writes and that another op of the block overwrites.

    Return the new names of each temporary's older values, oldest first; the last value keeps the variable's
    name. Variables that are fed, or that other blocks read or write, are not renamed. Of a persistable only
    values that a gradient of the path reads get names; ops read its value from before the step in a copy.
    The new names of variables in ``stopped``, through which no gradient flows, are added to it.

    Raises:
        Unsupported: a gradient of a gradient reads what a persistable held that a block reads or writes.
    """
    members = set(map(id, path))
    shared = {
        name
        for b in block.program.blocks
        for op in b.ops
        if b is not block or "sub_block" in op.attrs
        for name in (*op.input_arg_names, *op.output_arg_names)
    }
    names: dict[str, list[str]] = {}
    writers: set[int] = set()
    for name, versions in _versions(block).items():
        variable = block.vars.get(name)
        if len(versions) == 1 or variable is None or variable.type != VarType.LOD_TENSOR:
            continue
        choose = _older_of_persistable if variable.persistable else _older_of_temporary
        older = choose(name, versions, members, name in shared)
        if older and older[0].writer is None:
            _copy(block, variable, older.pop(0), stopped)
        if not older:
            continue
        values = _free_names(block, name, len(older))
        for own, version in zip(values, older, strict=True):
            _declare(block, own, variable)
            assert version.writer is not None
            version.writer.rename_output(name, own)
            writers.add(id(version.writer))
            for reader in version.readers:
                _read_instead(reader, name, own)
        if name in stopped:
            stopped.update(values)
        if not variable.persistable:
            names[name] = values
    for op in block.ops:
        if id(op) in writers:
            op.infer()  # the variable had the shape of its last value
    return names


def _older_of_temporary(
    name: str, versions: Sequence[_Version], members: set[int], shared: bool
) -> list[_Version]:
    """Return the older values to rename, if the path reads or writes one; none of a variable that is fed."""
    older = list(versions[:-1])
    ops = [op for v in older for op in (v.writer, *v.readers)]
    return [] if shared or None in ops or members.isdisjoint(map(id, ops)) else older


def _older_of_persistable(
    name: str, versions: Sequence[_Version], members: set[int], shared: bool
) -> list[_Version]:
    """Return the older values that gradients of the path read; none of a variable that an optimizer updates."""
    if any(v.writer is not None and v.writer.role & OpRole.Optimize for v in versions):
        return []
    if shared:
        _refuse_second_order(name, versions, members)
        return []
    return [version for version in versions[:-1] if _is_differentiated(version, name, members)]


def _copy(block: Block, variable: Variable, version: _Version, stopped: set[str]) -> None:
    """Have ops read a copy of the value that a persistable has before a step, made before the first of them."""
    first, name = version.readers[0], variable.name
    (own,) = _free_names(block, name, 1)
    _declare(block, own, variable)
    attrs = {key: first.attrs[key] for key in (CALLSTACK, DEVICE, NAMESCOPE) if key in first.attrs}
    attrs |= {ROLE: first.role & 0xFF, ROLE_VAR: []}
    block._insert_op(block.ops.index(first), "assign", {"X": name}, {"Out": own}, attrs)
    for reader in version.readers:
        _read_instead(reader, name, own)
    if name in stopped:
        stopped.add(own)


def _read_instead(reader: Operator, name: str, own: str) -> None:
    if _only_uses(reader, name):
        reader.rename_output(name, own)
    reader.rename_input(name, own)


def _only_uses(op: Operator, name: str) -> bool:
    """Tell whether an op names among its results a variable that it reads and leaves as it is."""
    both = name in op.input_arg_names and name in op.output_arg_names
    return both and op.declaration.only_uses(op.attrs)


def _free_names(block: Block, name: str, number: int) -> list[str]:
    """Return so many names for older values of a variable."""
    free = (n for n in map(partial(overwritten_name, name), count()) if n not in block.vars)
    return list(islice(free, number))


def _declare(block: Block, name: str, like: Variable) -> None:
    block.create_var(
        name=name,
        shape=like.shape,
        dtype=like.dtype,
        lod_level=like.lod_level,
        stop_gradient=like.stop_gradient,
    )


def _is_differentiated(version: _Version, name: str, members: set[int]) -> bool:
    """Tell whether a gradient of an op among ``members`` reads this value of a variable."""
    writer = version.writer
    if (
        writer is not None
        and id(writer) in members
        and _gradient_reads(writer, writer.outputs, name)
    ):
        return True
    return any(id(op) in members and _gradient_reads(op, op.inputs, name) for op in version.readers)


def _gradient_reads(op: Operator, slots: Mapping[str, Sequence[str]], name: str) -> bool:
    grad = op.declaration.grad
    return grad is not None and any(name in slots.get(slot, ()) for slot in grad.reads().values())


def _refuse_second_order(name: str, versions: Sequence[_Version], members: set[int]) -> None:
    """Refuse gradients of gradient ops that read a persistable of which one name is several values."""
    writer = versions[1].writer
    assert writer is not None, "only the first value stood there before"
    for op in (op for version in versions for op in version.readers):
        by_gradient = id(op) in members and op.role & OpRole.Backward
        if by_gradient and _gradient_reads(op, op.inputs, name):
            raise Unsupported(
                f"gradients of gradients: {op.type} (built at {op.where}) reads {name!r}, which {writer.type} "
                f"(built at {writer.where}) overwrites, and which a block reads or writes. Copy it before that "
                f"(layers.assign), and compute with the copy."
            )


def _versions(block: Block) -> dict[str, list[_Version]]:
    """Return the values of each name that has several, in the order of the ops that write them."""
    versions: dict[str, list[_Version]] = defaultdict(list)
    several = _rewritten(block)
    for op in block.ops if several else ():
        for name in dict.fromkeys(n for n in op.input_arg_names if n in several):
            if not versions[name]:
                versions[name].append(_Version(None))
            versions[name][-1].readers.append(op)
        for name in dict.fromkeys(n for n in op.output_arg_names if n in several):
            if not _only_uses(op, name):
                versions[name].append(_Version(op))
    return versions


def _rewritten(block: Block) -> set[str]:
    """Return the names that an op writes which that op or one before it reads or writes."""
    seen, again = set[str](), set[str]()
    for op in block.ops:
        seen.update(*op.inputs.values())
        written = set().union(*op.outputs.values())
        again |= seen & written
        seen |= written
    return again - {EMPTY_VAR}
