"""The program of one server: a loop that takes messages, and the blocks that it runs for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...strategies.errors import InvalidValue
from ...strategies.types import VarType
from ..program.block import Block
from ..program.operator import Operator
from ..program.program import Program
from ..program.role import ROLE, OpRole
from ..program.variable import Variable
from .placement import Shard, Trained, is_update
from .plan import Plan
from .rewriting import append, copy_op, copy_variable, new_block
from .state import schedule_of, state_name, updates_of
from .table import TableServer
from .topology import COUNTER, Topology

TRAINER_ID = "@TRAINER_ID@"
THREADS = ("rpc_get_thread_num", "rpc_send_thread_num", "rpc_prefetch_thread_num")


@dataclass
class ServerWriter:
    """Writes the program of the server at an endpoint, from a training program as it was before."""

    plan: Plan
    endpoint: str
    corrects_delay: bool = False  # DC-ASGD
    program: Program = field(default_factory=Program)
    inputs: list[str] = field(default_factory=list)
    optimize_blocks: list[Block] = field(default_factory=list)
    grad_to_block: list[str] = field(default_factory=list)
    by_parameter: dict[str, list[Operator]] = field(default_factory=dict)
    rates: set[str] = field(default_factory=set)  # what a schedule computes
    _corrections: int = 0

    @property
    def topology(self) -> Topology:
        """Return the trainers and servers that take part."""
        return self.plan.topology

    @property
    def source(self) -> Program:
        """The training program as it was before."""
        return self.plan.source

    def run(self) -> Program:
        """Return the program."""
        self.program.random_seed = self.source.random_seed
        served = self._served(self.plan.trained)
        for _, shard in self._served(self.plan.dealt):
            self.inputs += self._gradients(shard)
        for entry, shard in served:
            self._declare(entry, shard)
        schedule = self._write_schedule() if served or self.plan.table else -1
        parent = self.program.num_blocks - 1
        for entry, shard in served:
            self._write_update(entry, shard, parent)
        extra = self._serve_table(parent)
        if not self.optimize_blocks:
            self.optimize_blocks.append(new_block(self.program, 0))
        self._listen(served, schedule, extra)
        return self.program

    def _served(self, trained: list[Trained]) -> list[tuple[Trained, Shard]]:
        return [(e, s) for e in trained for s in e.shards if s.endpoint == self.endpoint]

    @property
    def block(self) -> Block:
        """Block 0, which holds all that outlives a message."""
        return self.program.global_block()

    # -- variables --------------------------------------------------------------------------------

    def _declare(self, entry: Trained, shard: Shard) -> None:
        shape = shard.shape
        copy_variable(self.block, entry.parameter, name=shard.parameter, shape=shape)
        gradient = copy_variable(self.block, entry.gradient, name=shard.gradient, shape=shape)
        if entry.sparse:
            gradient.desc.set_type(VarType.SELECTED_ROWS)
        names = self._gradients(shard)
        for name in names if self.topology.merges else ():
            copy_variable(self.block, gradient, name=name, shape=shape, persistable=False)
        for name in self._backups(shard):
            copy_variable(self.block, entry.parameter, name=name, shape=shape, persistable=False)

    def _gradients(self, shard: Shard) -> list[str]:
        if not self.topology.merges:
            return [shard.gradient]
        return [f"{shard.gradient}.trainer_{k}" for k in range(self.topology.trainers)]

    def _backups(self, shard: Shard) -> list[str]:
        """Return the names of a parameter as each trainer last received it."""
        count = self.topology.trainers if self.corrects_delay else 0
        return [f"{shard.parameter}.trainer_{k}_bak" for k in range(count)]

    # -- blocks -----------------------------------------------------------------------------------

    def _write_schedule(self) -> int:
        """Copy the operators that compute learning rates; return their block (-1: there are none)."""
        ops = schedule_of(self.source)
        if not ops:
            return -1
        block = new_block(self.program, 0)
        self.optimize_blocks.append(block)
        for op in ops:
            self._copy_rate_op(block, op)
            self.rates.update(op.output_arg_names)
        return block.idx

    def _copy_rate_op(self, block: Block, op: Operator) -> None:
        for name in (*op.input_arg_names, *op.output_arg_names):
            self._declare_state(op, name)
        if (
            op.type == "increment"
            and COUNTER in op.output_arg_names
            and not self.topology.sync_mode
        ):
            names = counters(self.topology.trainers)
            for name in names:
                copy_variable(self.block, self.block.var(COUNTER), name=name)
            append(block, "sum", ({"X": names}, {"Out": COUNTER}), {}, int(OpRole.LRSched))
            if self.plan.first_step:
                step, counter = {"step": self.plan.first_step}, ({"X": COUNTER}, {"Out": COUNTER})
                append(block, "increment", counter, step, int(OpRole.LRSched))
            return
        attrs = {}
        inner = op.attrs.get("sub_block")
        if isinstance(inner, Block):
            attrs["sub_block"] = self._copy_block(inner, block)
        copy_op(block, op, {}, attrs)

    def _copy_block(self, source: Block, parent: Block) -> Block:
        block = new_block(self.program, parent.idx)
        names = [n for op in source.ops for n in (*op.input_arg_names, *op.output_arg_names)]
        for name in dict.fromkeys(names):
            copy_variable(block, source.var_recursive(name))
        for op in source.ops:
            copy_op(block, op, {})
        return block

    def _write_update(self, entry: Trained, shard: Shard, parent: int) -> None:
        block = new_block(self.program, parent)
        self.optimize_blocks.append(block)
        self.grad_to_block.append(f"{shard.gradient}:{block.idx}")
        if self.topology.merges:
            self._merge(block, shard)
        names = {entry.parameter.name: shard.parameter, entry.gradient.name: shard.gradient}
        renamed = entry.gradient.name + ("" if entry.split else self.topology.gradient_suffix)
        readable = {entry.parameter.name, entry.gradient.name, *self.rates}
        for op in self._ops_of(entry):
            self._check_reads(op, readable)
            readable.update(op.output_arg_names)
            for name in dict.fromkeys((*op.input_arg_names, *op.output_arg_names)):
                if name not in names:
                    names |= self._own_state(op, name, entry, shard)
            corrected = dict(names)
            if self.corrects_delay and is_update(op):
                corrected[entry.gradient.name] = self._correct(block, shard)
            copied = copy_op(block, op, corrected)
            copied.attrs["op_role_var"] = [entry.parameter.name, renamed]

    def _check_reads(self, op: Operator, names: set[str]) -> None:
        for name in op.input_arg_names:
            if name not in names and not self._source(op, name).persistable:
                raise InvalidValue(
                    f"DistributeTranspiler: {op.type!r} reads {name!r}, which is computed by trainers and not "
                    f"sent to servers. Train without servers, or without what computes it. {op.where}"
                )

    def _merge(self, block: Block, shard: Shard) -> None:
        gradient = self.block.var(shard.gradient)
        append(block, "sum", ({"X": self._gradients(shard)}, {"Out": gradient}), {}, 0)
        share = {"scale": 1.0 / self.topology.trainers}
        append(block, "scale", ({"X": gradient}, {"Out": gradient}), share, 0)

    def _ops_of(self, entry: Trained) -> list[Operator]:
        if not self.by_parameter:
            self.by_parameter = updates_of(self.source)
        return self.by_parameter.get(entry.parameter.name, [])

    def _own_state(self, op: Operator, name: str, entry: Trained, shard: Shard) -> dict[str, str]:
        """Declare what an operator of a shard reads or writes; return its name at the server, if another."""
        source = self._source(op, name)
        if source.shape != entry.parameter.shape or not entry.split:
            self._declare_state(op, name)
            return {}
        own = state_name(name, entry, shard)
        copy_variable(self.block, source, name=own, shape=shard.shape)
        return {name: own}

    def _declare_state(self, op: Operator, name: str) -> None:
        if not self.block.has_var(name):
            copy_variable(self.block, self._source(op, name))

    def _source(self, op: Operator, name: str) -> Variable:
        variable = self.source.global_block().find_var_recursive(name)
        if variable is None:
            raise InvalidValue(
                f"DistributeTranspiler: {op.type!r} uses {name!r}, which is no variable of block 0, and so "
                f"cannot be computed by a server. {op.where}"
            )
        return variable

    # -- delay ------------------------------------------------------------------------------------

    def _correct(self, block: Block, shard: Shard) -> str:
        """Append gradient + gradient² x (parameter - what the trainer had of it); return its name."""
        parameter = self.block.var(shard.parameter)
        block.create_var(name=TRAINER_ID, dtype="int64", shape=[1])
        had = copy_variable(
            block, parameter, name=f"{shard.parameter}.local_bak", persistable=False
        )
        slots = {"X": self._backups(shard), "TrainerId": TRAINER_ID}
        append(block, "ref_by_trainer_id", (slots, {"Out": had}), {}, 0)
        gradient, result = shard.gradient, ""
        x: Variable | str = parameter
        for kind, y in (("sub", had.name), ("mul", gradient), ("mul", gradient), ("add", "")):
            result = f"tmp_dc_output_{self._corrections}"
            self._corrections += 1
            copy_variable(block, parameter, name=result, persistable=False)
            pair = {"X": x, "Y": y} if y else {"X": gradient, "Y": x}
            append(block, f"elementwise_{kind}", (pair, {"Out": result}), {}, 0)
            x = result
        return result

    # -- the loop ---------------------------------------------------------------------------------

    def _serve_table(self, parent: int) -> dict[str, Any]:
        """Write the blocks of a table that is cut by rows; return what the loop must know of them."""
        if self.plan.table is None:
            return {}
        table = TableServer(
            self.program, self.source, self.plan.table, self.topology, self.endpoint
        )
        block, gradient = table.write_update(parent)
        self.optimize_blocks.append(block)
        self.grad_to_block.append(f"{gradient}:{block.idx}")
        self.inputs += table.gradients()
        self.program._distributed_lookup_table = self.plan.table.name
        return {
            "prefetch_var_name_to_block_id": [table.write_lookup(block.idx)],
            "checkpint_block_id": table.write_checkpoint(block.idx),
        }

    def _listen(
        self, served: Sequence[tuple[Trained, Shard]], schedule: int, extra: dict[str, Any]
    ) -> None:
        tables = [(entry, shard) for entry, shard in served if entry.table]
        append(
            self.block,
            "listen_and_serv",
            ({"X": self.inputs}, {}),
            {
                "endpoint": self.endpoint,
                "pserver_id": self.topology.endpoints.index(self.endpoint),
                "Fanin": self.topology.trainers,
                "optimize_blocks": self.optimize_blocks,
                "grad_to_block_id": self.grad_to_block,
                "sparse_grad_to_param": [f"{s.gradient}:{s.parameter}" for _, s in tables],
                "lr_decay_block_id": schedule,
                "distributed_mode": int(self.topology.server_mode),
                "dc_asgd": self.corrects_delay,
                **dict.fromkeys(THREADS, 12),
                **extra,
                ROLE: 0,
            },
            0,
        )


def counters(trainers: int) -> list[str]:
    """Return the names under which a server counts the steps of each trainer."""
    return [f"{COUNTER}.trainer_{k}" for k in range(trainers)]
