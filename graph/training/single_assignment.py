"""Gives each value of a variable that is written again a name of its own, before gradients are built.

Gradient ops read by name what their ops read. Behind a second write the name stands for another value, and the
gradients of gradient ops would go to that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from ...strategies.types import VarType
from ..program.block import Block
from ..program.operator import Operator
from ..program.role import EMPTY_VAR, overwritten_name


@dataclass
class _Version:
    """One value of a variable: the op that writes it (None: it stood there before), and those that read it."""

    writer: Operator | None
    readers: list[Operator] = field(default_factory=list)


def name_overwritten_values(block: Block, path: Sequence[Operator]) -> dict[str, list[str]]:
    """Rename the values that an op of ``path`` reads or writes and that another op of the block overwrites.

    Return the names of each variable's older values, the first one first; the last value keeps its name.
    Variables stay as they are that outlive a step, that are fed, and that other blocks read or write: one name
    is then several values.
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
        older = versions[:-1]
        ops = [op for v in older for op in (v.writer, *v.readers)]
        if (
            variable is None
            or variable.persistable
            or variable.type != VarType.LOD_TENSOR
            or name in shared
            or None in ops
            or members.isdisjoint(map(id, ops))
        ):
            continue
        numbers = (n for n in count() if overwritten_name(name, n) not in block.vars)
        names[name] = [overwritten_name(name, n) for n, _ in zip(numbers, older, strict=False)]
        for own, version in zip(names[name], older, strict=True):
            block.create_var(
                name=own,
                shape=variable.shape,
                dtype=variable.dtype,
                lod_level=variable.lod_level,
                stop_gradient=variable.stop_gradient,
            )
            assert version.writer is not None
            version.writer.rename_output(name, own)
            writers.add(id(version.writer))
            for reader in version.readers:
                reader.rename_input(name, own)
    for op in block.ops:
        if id(op) in writers:
            op.infer()  # the variable had the shape of its last value
    return names


def _versions(block: Block) -> dict[str, list[_Version]]:
    """Return the values of each name, in the order of the ops that write them."""
    versions: dict[str, list[_Version]] = defaultdict(list)
    for op in block.ops:
        for name in dict.fromkeys(op.input_arg_names):
            if not versions[name]:
                versions[name].append(_Version(None))
            versions[name][-1].readers.append(op)
        for name in dict.fromkeys(op.output_arg_names):
            versions[name].append(_Version(op))
    versions.pop(EMPTY_VAR, None)
    return versions
