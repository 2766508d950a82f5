"""The trainer's programs: gradients are sent, parameters received, and nothing is updated there."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...strategies.errors import InvalidValue
from ...strategies.types import VarType
from ..program.block import Block
from ..program.program import Program
from ..program.role import ROLE, ROLE_VAR, OpRole
from ..program.variable import Variable
from . import rewriting
from .placement import LOOKUPS, Trained, row_gradients
from .table import Table, send_gradient
from .topology import COUNTER, Topology


@dataclass
class TrainerRewriter:
    """Writes into a trainer's main program. ``controls``: by parameter, what its ``send`` gives out."""

    program: Program
    topology: Topology
    trained: list[Trained]
    dealt: list[Trained]  # the same, in the order in which servers were dealt
    table: Table | None = None
    controls: dict[str, Variable] = field(default_factory=dict)
    gradients: dict[str, str] = field(default_factory=dict)  # their names here, by parameter

    @property
    def block(self) -> Block:
        """The block that is rewritten."""
        return self.program.global_block()

    def run(self) -> None:
        """Cut and send gradients, wait, receive parameters and join them."""
        late = self.topology.split_late
        mark_rows(self.program)
        for entry in self.trained:
            declare_shards(self.block, entry)
        self._name_gradients()
        for entry in self.dealt:
            self._send(entry)
        controls = list(self.controls.values())
        if self.table is not None:
            controls.append(send_gradient(self.block, self.table, self.topology))
        counter = self._send_counter()
        after = self._send_barrier([*controls, *counter])
        received = [name for e in self.trained if not e.table for name in self._recv(e, after)]
        self._fetch_barrier(after, received)
        for entry in self.trained:
            if entry.split and not entry.table and not late:
                join(self.block, entry, role=rewriting.DIST)

    # -- gradients --------------------------------------------------------------------------------

    def _name_gradients(self) -> None:
        """Have gradients that are sent whole bear the trainer's number, where servers merge several."""
        suffix = self.topology.gradient_suffix
        whole = {e.gradient.name for e in self.trained if not e.split and suffix}
        rewriting.rename(self.block, {name: name + suffix for name in whole})
        for entry in self.trained:
            name = entry.gradient.name
            self.gradients[entry.parameter.name] = name + suffix if name in whole else name

    def _send(self, entry: Trained) -> None:
        gradient = self.gradients[entry.parameter.name]
        index = rewriting.last_writer(self.block, gradient)
        if index < 0:
            raise InvalidValue(
                f"DistributeTranspiler: no operator of the program makes {entry.gradient.name!r}, the gradient "
                f"of parameter {entry.parameter.name!r}. Call minimize before transpile."
            )
        late, suffix = self.topology.split_late, self.topology.gradient_suffix
        names = [gradient]
        if entry.split:
            parts = self._declare_gradients(entry, suffix)
        if entry.split and not late:
            names = parts
            self._split(index + 1, entry, parts)
            index += 1
        control = self.controls[entry.parameter.name] = rewriting.control_variable(self.block)
        rewriting.insert(
            self.block,
            index + 1,
            "send",
            ({"X": names}, {"Out": control}),
            {
                "epmap": entry.endpoints,
                "sections": entry.sections if late else [],
                "send_varnames": [shard.gradient for shard in entry.shards] if late else [],
                ROLE_VAR: [entry.parameter.name, gradient],
            },
        )

    def _declare_gradients(self, entry: Trained, suffix: str) -> list[str]:
        whole = self.block.var(entry.gradient.name)
        for shard in entry.shards:
            settings = {"dtype": whole.dtype, "type": whole.type, "lod_level": whole.lod_level}
            self.block.create_var(name=shard.gradient + suffix, shape=shard.shape, **settings)
        return [shard.gradient + suffix for shard in entry.shards]

    def _split(self, index: int, entry: Trained, names: list[str]) -> None:
        kind, attr = "split_byref", "sections"
        if entry.sparse:
            kind, attr = "split_selected_rows", "height_sections"
        slots = ({"X": entry.gradient}, {"Out": names})
        rewriting.insert(self.block, index, kind, slots, {attr: entry.sections}, rewriting.DIST)

    def _send_counter(self) -> list[Variable]:
        """Tell all servers that a step was made, where they count them for a learning-rate schedule."""
        if self.topology.sync_mode or not self.block.has_var(COUNTER):
            return []
        name = f"{COUNTER}.trainer_{self.topology.trainer_id}"
        control = rewriting.control_variable(self.block)
        attrs = {"epmap": self.topology.endpoints, "merge_add": True, "use_send_handler": False}
        attrs["send_varnames"] = [name] if self.topology.split_late else []
        slots = ({"X": [name]}, {"Out": control})
        rewriting.append(self.block, "send", slots, {**attrs, ROLE_VAR: [name, name]})
        return [control]

    def _send_barrier(self, controls: list[Variable]) -> Variable | None:
        half = self.topology.half_async
        if not self.topology.sync_mode and not half:
            return None
        control = rewriting.control_variable(self.block)
        slots = ({"X": controls}, {"Out": control})
        attrs = {**self.topology.barrier, "half_async": half}
        rewriting.append(self.block, "send_barrier", slots, attrs)
        return None if half else control

    # -- parameters -------------------------------------------------------------------------------

    def _recv(self, entry: Trained, after: Variable | None) -> list[str]:
        name, late = entry.parameter.name, self.topology.split_late
        parts = [shard.parameter for shard in entry.shards]
        outputs = [name] if late else parts
        rewriting.append(
            self.block,
            "recv",
            ({"X": self.controls[name] if after is None else after}, {"Out": outputs}),
            {
                "epmap": entry.endpoints,
                "trainer_id": self.topology.trainer_id,
                "recv_varnames": parts if late else [],
                ROLE_VAR: [name, self.gradients[name]],
            },
        )
        return outputs

    def _fetch_barrier(self, after: Variable | None, received: list[str]) -> None:
        if after is None:
            return
        slots = ({"X": after}, {"Out": received or rewriting.control_variable(self.block)})
        rewriting.append(self.block, "fetch_barrier", slots, self.topology.barrier)


def mark_rows(program: Program, updated_here: bool = False) -> None:
    """Give the gradients that are rows the type by which messages know them."""
    for name in row_gradients(program, updated_here):
        program.global_block().var(name).desc.set_type(VarType.SELECTED_ROWS)


def declare_shards(block: Block, entry: Trained) -> None:
    """Add variables for the parts of a parameter, if it is cut."""
    for shard in entry.shards if entry.split else ():
        block.create_var(
            name=shard.parameter,
            shape=shard.shape,
            dtype=entry.parameter.dtype,
            type=entry.parameter.type,
            lod_level=entry.parameter.lod_level,
        )


def join(block: Block, entry: Trained, role: int) -> None:
    """Join the parts of a parameter."""
    slots = (
        {"X": [shard.parameter for shard in entry.shards]},
        {"Out": block.var(entry.parameter.name)},
    )
    rewriting.append(block, "concat", slots, {"axis": 0}, role)


def write_startup(startup: Program, topology: Topology, whole: list[Trained]) -> None:
    """Have the startup program of a trainer receive what the servers' made of the parameters ``whole``."""
    block = startup.global_block()
    for entry in whole:
        declare_shards(block, entry)
        rewriting.append(
            block,
            "recv",
            ({}, {"Out": [shard.parameter for shard in entry.shards]}),
            {"epmap": entry.endpoints, "trainer_id": topology.trainer_id},
        )
    slots: rewriting.Slots = ({}, {"Out": rewriting.control_variable(block)})
    rewriting.append(block, "fetch_barrier", slots, topology.barrier)
    for entry in whole:
        if entry.split:
            join(block, entry, role=0)


# -- what the servers do, the trainer does no more ------------------------------------------------


def drop_updates(main: Program, startup: Program, tables: list[Trained]) -> None:
    """Remove updates, schedules, their state and what initializes it; tables keep a name and a shape."""
    block = main.global_block()
    served = [op for op in block.ops if op.role & (OpRole.Optimize | OpRole.LRSched)]
    updates = [op for op in served if op.role == OpRole.Optimize]
    state = {name for op in updates for name in (*op.input_arg_names, *op.output_arg_names)}
    rewriting.remove_ops(block, served)
    rewriting.drop_unused(main, state)
    dropped_names = {name for name in state if not block.has_var(name)}
    names = {entry.parameter.name for entry in tables}
    first = startup.global_block()
    stale = [op for op in first.ops if (dropped_names | names).intersection(op.output_arg_names)]
    rewriting.remove_ops(first, stale)
    for name in dropped_names - names:
        if first.has_var(name):
            first._remove_var(name)
    for entry in tables:
        shape = list(entry.parameter.shape or ())
        slots: rewriting.Slots = ({}, {"Out": first.var(entry.parameter.name)})
        rewriting.append(first, "fake_init", slots, {"shape": shape}, role=0)


# -- tables ---------------------------------------------------------------------------------------


def look_up_remotely(program: Program, topology: Topology, trained: list[Trained]) -> None:
    """Replace the lookups of each table by one that asks the servers, where all its ids are known."""
    for entry in (e for e in trained if e.table):
        groups: dict[tuple[str, int], list[int]] = {}
        for op in program.global_block().ops:
            if op.type in LOOKUPS and entry.parameter.name in op.input("W"):
                groups.setdefault((op.type, op.attrs["padding_idx"]), []).append(id(op))
        for lookups in groups.values():
            _replace_lookups(program.global_block(), topology, entry, lookups)


def _replace_lookups(block: Block, topology: Topology, entry: Trained, lookups: list[int]) -> None:
    ops = [op for op in block.ops if id(op) in lookups]
    ids = [name for op in ops for name in op.input("Ids")]
    results = [name for op in ops for name in op.output("Out")]
    begin = rewriting.place_for(block, ops)
    if begin is None:  # the ids of one follow from the rows of another
        for op in ops:
            _replace_lookups(block, topology, entry, [id(op)])
        return
    kind, first = ops[0].type, ops[0]
    rewriting.remove_ops(block, ops)
    attrs = {
        "table_names": [shard.parameter for shard in entry.shards],
        "height_sections": entry.sections,
        "endpoints": entry.endpoints,
        "trainer_id": topology.trainer_id,
        "lookup_table_version": kind,
        "padding_idx": first.attrs["padding_idx"],
        "dtype": int(entry.parameter.dtype or VarType.FP32),
        ROLE: first.attrs[ROLE],
    }
    slots = ({"Ids": ids, "W": entry.parameter}, {"Outputs": results})
    rewriting.insert(block, begin, "distributed_lookup_table", slots, attrs, role=0)


def look_up_here(program: Program) -> None:
    """Replace the lookups that ask servers by lookups of a table that the process has, as a model's are."""
    block = program.global_block()
    for lookup in [op for op in block.ops if op.type == "distributed_lookup_table"]:
        index = block.ops.index(lookup)
        rewriting.remove_ops(block, [lookup])
        attrs = {"is_sparse": True, "padding_idx": lookup.attrs["padding_idx"]}
        pairs = zip(lookup.input("Ids"), lookup.output("Outputs"), strict=True)
        for ids, rows in reversed(list(pairs)):
            slots: rewriting.Slots = ({"Ids": ids, "W": lookup.input("W")}, {"Out": rows})
            kind = lookup.attrs["lookup_table_version"]
            rewriting.insert(block, index, kind, slots, attrs, lookup.role)
