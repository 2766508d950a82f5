"""A table that no host could hold: ``embedding(is_distributed=True)``, as Paddle 1.6 distributes it.

Row r is at server r % n, as its row r // n. A trainer cuts the ids of a step by server (``split_ids``), asks
each for its rows (``prefetch``), and puts them in order (``merge_ids``); its gradient goes back the same way.
There is one such table in a program, and servers update it by plain SGD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...strategies.errors import Unsupported
from ...strategies.types import VarType
from ..program.block import Block
from ..program.program import Program
from ..program.role import ROLE_VAR
from ..program.variable import Variable
from ..program.where import warn_user
from . import rewriting
from .placement import LOOKUPS, Trained
from .topology import Topology

_PATH = "kLookupTablePath"


@dataclass(frozen=True)
class Table:
    """The table, and what looks it up."""

    trained: Trained
    padding: int

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.trained.parameter.name

    def shape(self, servers: int) -> tuple[int, ...]:
        """Return the shape of a server's part."""
        rows, *rest = self.trained.parameter.shape or (0,)
        return (math.ceil(rows / servers), *rest)


def distributed_table(program: Program, trained: list[Trained]) -> Table | None:
    """Return the table of a program (None: it has none).

    Raises:
        Unsupported: it has several, or its lookups have several paddings.
    """
    lookups = [
        op
        for op in program.global_block().ops
        if op.type in LOOKUPS and op.attrs.get("is_distributed")
    ]
    names = sorted({op.input("W")[0] for op in lookups})
    paddings = {op.attrs["padding_idx"] for op in lookups}
    if len(names) > 1 or len(paddings) > 1:
        what = f"{len(names)} ({', '.join(names)})" if len(names) > 1 else f"paddings {paddings}"
        raise Unsupported(
            f"transpile: a program has one table with is_distributed=True and one padding_idx, this one has "
            f"{what}. Look the others up with is_sparse=True alone: servers hold their rows, too, and trainers "
            f"none."
        )
    entry = next((e for e in trained if names == [e.parameter.name]), None)
    if entry is None:
        return None
    if entry.update.type != "sgd":
        warn_user(
            f"servers update the table {names[0]!r} (is_distributed=True) by SGD, as in Paddle, and not by "
            f"{entry.update.type}. A table that is looked up with is_sparse=True alone takes every optimizer."
        )
    return Table(entry, paddings.pop())


# -- the trainer ----------------------------------------------------------------------------------


def look_up(block: Block, table: Table, topology: Topology) -> None:
    """Replace the lookups of a table by one of all ids, cut by server."""
    ops = [op for op in block.ops if op.type in LOOKUPS and op.input("W")[0] == table.name]
    ids = [name for op in ops for name in op.input("Ids")]
    results = [name for op in ops for name in op.output("Out")]
    index = rewriting.place_for(block, ops)
    if index is None:
        raise Unsupported(
            f"transpile: the ids that look up {table.name!r} (is_distributed=True) follow from other rows of "
            f"it, so that one request cannot ask for all. Look it up with is_sparse=True alone. {ops[0].where}"
        )
    rewriting.remove_ops(block, ops)
    parts = []
    for kind, like in (("in", ids[0]), ("out", results[0])):
        names = [f"prefetch_compress_{kind}_tmp_{k}" for k in range(len(topology.endpoints))]
        for name in names:
            rewriting.copy_variable(block, block.var_recursive(like), name=name, persistable=False)
        parts.append(names)
    queries, rows = parts
    rewriting.insert(block, index, "split_ids", ({"Ids": ids}, {"Out": queries}), {}, role=0)
    attrs = {"epmap": topology.endpoints, "trainer_id": topology.trainer_id}
    rewriting.insert(block, index + 1, "prefetch", ({"X": queries}, {"Out": rows}), attrs)
    slots = ({"Ids": ids, "Rows": queries, "X": rows}, {"Out": results})
    rewriting.insert(block, index + 2, "merge_ids", slots, {}, role=0)


def send_gradient(block: Block, table: Table, topology: Topology) -> Variable:
    """Cut the table's gradient by server, and send it; return what ``send`` gives out."""
    gradient = block.var(table.trained.gradient.name)
    gradient.desc.set_type(VarType.SELECTED_ROWS)
    middle = topology.gradient_suffix
    names = [f"{gradient.name}{middle}.pserver_{k}" for k in range(len(topology.endpoints))]
    shape = table.shape(len(names))
    for name in names:
        rewriting.copy_variable(block, gradient, name=name, shape=shape, persistable=False)
    index = rewriting.last_writer(block, gradient.name) + 1
    rewriting.insert(
        block, index, "split_ids", ({"Ids": gradient}, {"Out": names}), {}, rewriting.DIST
    )
    control = rewriting.control_variable(block)
    attrs = {"epmap": topology.endpoints, ROLE_VAR: [table.name, gradient.name]}
    rewriting.insert(block, index + 1, "send", ({"X": names}, {"Out": control}), attrs)
    return control


# -- the server -----------------------------------------------------------------------------------


@dataclass
class TableServer:
    """The blocks of a server that update, look up and save its part of a table."""

    program: Program
    source: Program
    table: Table
    topology: Topology
    endpoint: str

    def __post_init__(self) -> None:
        self.number = self.topology.endpoints.index(self.endpoint)
        self.block = self.program.global_block()
        shape = self.table.shape(len(self.topology.endpoints))
        part = rewriting.copy_variable(self.block, self.table.trained.parameter, shape=shape)
        part.desc.set_type(VarType.SELECTED_ROWS)
        self.part = part

    def gradients(self) -> list[str]:
        """Return the names under which gradients arrive."""
        base = self.table.trained.gradient.name
        if not self.topology.merges:
            return [f"{base}.pserver_{self.number}"]
        count = self.topology.trainers
        return [f"{base}.trainer_{k}.pserver_{self.number}" for k in range(count)]

    def write_update(self, parent: int) -> tuple[Block, str]:
        """Write the block that updates; return it and the name of the gradient it is run for."""
        block, names = rewriting.new_block(self.program, parent), self.gradients()
        total = self.table.trained.gradient.name if self.topology.merges else names[0]
        for name in dict.fromkeys((total, *names)):
            gradient = rewriting.copy_variable(
                self.block,
                self.table.trained.gradient,
                name=name,
                shape=self.part.shape,
                persistable=name == total,
            )
            gradient.desc.set_type(VarType.SELECTED_ROWS)
        if self.topology.merges:
            rewriting.append(block, "sum", ({"X": names}, {"Out": total}), {}, 0)
            share = {"scale": 1.0 / self.topology.trainers}
            rewriting.append(block, "scale", ({"X": total}, {"Out": total}), share, 0)
        rate = self.table.trained.update.input("LearningRate")[0]
        if not self.block.has_var(rate):
            rewriting.copy_variable(self.block, self.source.global_block().var(rate))
        slots = {"Param": self.part, "Grad": total, "LearningRate": rate}
        rewriting.append(block, "sgd", (slots, {"ParamOut": self.part}), {}, 0)
        return block, total

    def write_lookup(self, parent: int) -> str:
        """Write the block that looks rows up; return what ``listen_and_serv`` runs it for."""
        block = rewriting.new_block(self.program, parent)
        ids, rows = (f"prefetch_compress_{k}_tmp_{self.number}" for k in ("in", "out"))
        width = self.part.shape[-1] if self.part.shape else 1
        self.block.create_var(name=ids, shape=[-1, 1], dtype="int64")
        self.block.create_var(name=rows, shape=[-1, width], dtype=self.part.dtype)
        attrs = {"padding_idx": self.table.padding}
        slots = ({"Ids": ids, "W": self.part}, {"Out": rows})
        rewriting.append(block, "lookup_sparse_table", slots, attrs, 0)
        return f"{ids}:{block.idx}"

    def write_checkpoint(self, parent: int) -> int:
        """Write the block that saves the part where a trainer says; return its number."""
        self.block.create_var(name=_PATH, persistable=True, type=VarType.RAW)
        block = rewriting.new_block(self.program, parent)
        rewriting.append(block, "save", ({"X": self.part}, {}), {"file_path": "none"}, 0)
        return block.idx
