"""Read a parameter server's program: its optimize blocks as programs of their own, which a server runs.

A gradient is a persistable: pushes write the memory that the block reads. One that is pushed as rows is fed, as
rows (``G@ROWS`` [n] int64, ``G`` [n, width]). What a block makes and reads itself is a temporary.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from ...strategies.errors import InvalidValue
from ...strategies.types import VarType
from ..program.block import Block
from ..program.clone import copy_program
from ..program.operator import Operator
from ..program.program import Program
from ..program.role import ROLE, OpRole
from .exchange import digest
from .sparse_sends import ROWS
from .topology import DistributedMode

LISTEN = "listen_and_serv"
COUNTER = "@LR_DECAY_COUNTER@"
_OF_TRAINER = re.compile(r"(.+)\.trainer_(\d+)(\.pserver_\d+)?$")
_ROW_VALUES = "@VALUES"


def serves(program: Program) -> bool:
    """Tell whether a program is a parameter server's."""
    return any(op.type == LISTEN for op in program.global_block().ops)


@dataclass(frozen=True)
class Gradient:
    """What trainers push under ``names`` (one for each trainer in sync mode), for block ``block``.

    ``rows``: as rows of a table like ``param``, else as a tensor.
    """

    name: str
    names: tuple[str, ...]
    block: int
    param: str
    rows: bool


class ServerProgram:
    """The parts of a server's program.

    Raises:
        InvalidValue: the program has no ``listen_and_serv``, or lacks a block that this op names.
    """

    def __init__(self, program: Program) -> None:
        listens = [op for op in program.global_block().ops if op.type == LISTEN]
        if len(listens) != 1:
            raise InvalidValue(
                f"a parameter server's program has one listen_and_serv op, this one has {len(listens)}. Get it "
                f"from DistributeTranspiler.get_pserver_program(endpoint)."
            )
        (self.op,) = listens
        self.program = program
        self.endpoint: str = self.op.attrs["endpoint"]
        self.trainers: int = self.op.attrs["Fanin"]
        self.dc_asgd = bool(self.op.attrs.get("dc_asgd"))
        self.lr_block = int(self.op.attrs.get("lr_decay_block_id", -1))
        gradients: dict[str, dict[int, str]] = {}  # by trainer
        for name in self.op.inputs.get("X", ()):
            match = _OF_TRAINER.match(name)
            if match:
                gradients.setdefault(match[1], {})[int(match[2])] = name
        alone = self.trainers == 1 and self.op.attrs.get("distributed_mode", 0) == 0
        self.sync = bool(gradients) or alone
        self.gradients = {g.name: g for g in self._gradients(gradients)}
        self.by_pushed = {name: g for g in self.gradients.values() for name in g.names}

    def _gradients(self, by_trainer: Mapping[str, Mapping[int, str]]) -> Iterator[Gradient]:
        for pair in self.op.attrs["grad_to_block_id"]:
            name, _, number = pair.rpartition(":")
            block = self.program.block(int(number))
            names = [name]
            if name in by_trainer:
                names = [by_trainer[name][i] for i in range(self.trainers)]
            params = [op.inputs["Param"][0] for op in block.ops if "Param" in op.inputs]
            params += [op.outputs["Out"][0] for op in block.ops if op.type == "sum"]  # geo-SGD
            variable = self.program.global_block().vars.get(name)
            rows = variable is not None and variable.type == VarType.SELECTED_ROWS
            yield Gradient(name, tuple(names), block.idx, params[0] if params else name, rows)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a variable of block 0."""
        return tuple(self.program.global_block().var(name).shape or (1,))

    @cached_property
    def params(self) -> tuple[str, ...]:
        """Names of the parameters (and parts of them) that live here."""
        return tuple(dict.fromkeys(g.param for g in self.gradients.values()))

    @cached_property
    def tables(self) -> Mapping[str, str]:
        """Return the names of parameters by the names under which trainers look their rows up."""
        names = {name: name for name in self.params}
        for pair in self.op.attrs.get("prefetch_var_name_to_block_id", ()):
            name, _, number = pair.rpartition(":")
            block = self.program.block(int(number))
            names[name] = next(op.inputs["W"][0] for op in block.ops if "W" in op.inputs)
        return names

    @cached_property
    def shared_rows(self) -> Mapping[str, str]:
        """Return, in geo-SGD, tables by the name of their change: what a trainer pulls others' rows by."""
        if self.op.attrs.get("distributed_mode", 0) != DistributedMode.GEO:
            return {}
        return {g.name: g.param for g in self.gradients.values() if g.rows}

    @cached_property
    def readable(self) -> Mapping[str, str]:
        """Return the names of all that lasts, too: what is saved is read like rows."""
        return {name: name for name in self.lasting} | dict(self.tables)

    @cached_property
    def counters(self) -> tuple[str, ...]:
        """Names of the trainers' counters of steps, from which an asynchronous schedule counts (or none)."""
        names = (name for name in self.program.global_block().vars)
        return tuple(n for n in names if n.startswith(f"{COUNTER}.trainer_"))

    @cached_property
    def digests(self) -> frozenset[str]:
        """Hashes of what trainers pull from here: all parameters, or those whose rows they do not look up."""
        tables = {g.param for g in self.gradients.values() if g.rows}
        dense = [name for name in self.params if name not in tables]
        sets = (dense, list(self.params))
        return frozenset(digest((n, self.shape(n)) for n in names) for names in sets)

    # -- programs -------------------------------------------------------------------------------

    def schedule(self) -> Program | None:
        """Return the program of the learning rate's schedule (None: there is none)."""
        return None if self.lr_block < 0 else self._program([self.lr_block], ())

    def update(self, names: Sequence[str], trainers: Collection[int]) -> Program:
        """Return the program of the updates by some gradients, merged over these trainers."""
        blocks = [self.gradients[name].block for name in names]
        return self._program(blocks, tuple(sorted(trainers)))

    @cached_property
    def lasting(self) -> frozenset[str]:
        """Names of what a server keeps from one update to the next, gradients aside."""
        blocks = dict.fromkeys(g.block for g in self.gradients.values())
        blocks |= {self.lr_block: None} if self.lr_block >= 0 else {}
        lasting = {name for block in blocks for name in self._read_first(self.program.block(block))}
        backups = {n for op in self._refs() for n in op.inputs["X"]}
        pushed = {*self.by_pushed, *self.gradients}
        return frozenset(lasting | backups | set(self.params)) - pushed

    @cached_property
    def scheduled(self) -> frozenset[str]:
        """Names of what updates read and the schedule computes anew before them, such as a rate that decays."""
        if self.lr_block < 0:
            return frozenset()
        block = self.program.block(self.lr_block)
        writes = {name for op in block.ops for name in op.output_arg_names}
        return self.lasting & writes - self._read_first(block)

    @cached_property
    def backups(self) -> Mapping[str, tuple[str, ...]]:
        """In DC-ASGD, by parameter the names of what each trainer pulled last."""
        return {
            op.outputs["Out"][0].removesuffix(".local_bak"): tuple(op.inputs["X"])
            for op in self._refs()
        }

    def _refs(self) -> list[Operator]:
        return [op for b in self.program.blocks for op in b.ops if op.type == "ref_by_trainer_id"]

    def _read_first(self, block: Block) -> set[str]:
        """Return the names that a block reads before it has surely written them."""
        reads: set[str] = set()
        writes: set[str] = set()
        for op in _flat(block):
            reads |= set(op.input_arg_names) - writes
            if op.block is block and "sub_block" not in op.attrs:
                writes |= set(op.output_arg_names)
            elif op.block is not block:
                reads |= set(op.output_arg_names) - writes  # a branch that is not taken keeps it
        variables = self.program.global_block().vars
        return {
            name
            for name in reads
            if name in variables and variables[name].type != VarType.STEP_SCOPES
        }

    def _program(self, blocks: Sequence[int], trainers: tuple[int, ...]) -> Program:
        """Return blocks as one program."""
        result = copy_program(self.program)
        home = result.global_block()
        home.ops = []
        for number in blocks:
            source = result.block(number)
            for name, variable in source.vars.items():
                home.vars.setdefault(name, variable).block = home
            for op in source.ops:
                op.block = home
                home.ops.append(op)
        _adopt_sub_blocks(home)
        rows = {g.name: g for g in self.gradients.values() if g.rows and g.block in blocks}
        home.ops = list(_for_trainers(home.ops, self.gradients, trainers))
        for gradient in rows.values():
            _add_by_row(home, gradient)
            _feed_rows(home, gradient.name, gradient.param)
        home.ops = [op for op in home.ops if op.type != "ref_by_trainer_id"]
        lasting = self.lasting | (set(self.by_pushed) - {n for g in rows.values() for n in g.names})
        for gradient in rows.values():
            home.vars[gradient.param].desc.set_type(VarType.LOD_TENSOR)
        for name, variable in home.vars.items():
            variable.persistable = name in lasting
        result.touch()
        return result

    def compensated(self, name: str, trainer: int) -> Program:
        """Return the program of a gradient's update in DC-ASGD, beside what a trainer pulled last."""
        gradient = self.gradients[name]
        result = self._program([gradient.block], ())
        for param, backups in self.backups.items():
            for op in result.global_block().ops:
                op.rename_input(f"{param}.local_bak", backups[trainer])
        result.touch()
        return result


def _flat(block: Block) -> Iterator[Operator]:
    for op in block.ops:
        yield op
        inner = op.attrs.get("sub_block")
        if isinstance(inner, Block):
            yield from _flat(inner)


def _adopt_sub_blocks(home: Block) -> None:
    """Let the blocks that ops of block 0 hold see its variables."""
    for op in home.ops:
        inner = op.attrs.get("sub_block")
        if isinstance(inner, Block):
            inner.parent_idx = 0
            for name in [name for name in inner.vars if name in home.vars]:
                del inner.vars[name]


def _for_trainers(
    ops: Iterable[Operator], gradients: Mapping[str, Gradient], trainers: tuple[int, ...]
) -> Iterator[Operator]:
    """Yield ops with sums and means over these trainers; a sum of rows is left to what feeds them."""
    counts: dict[str, int] = {}
    for op in ops:
        (out,) = (op.outputs.get("Out") or [""])[:1]
        gradient = gradients.get(out)
        if op.type == "sum" and gradient is not None and set(op.inputs["X"]) <= set(gradient.names):
            counts[out] = len(gradient.names)
            if gradient.rows:
                continue
            op.inputs["X"] = [gradient.names[i] for i in trainers]
        elif op.type == "scale" and counts.pop(out, 0) and op.inputs["X"] == [out]:
            op.attrs["scale"] = 1.0 / len(trainers)
        yield op


def _feed_rows(block: Block, gradient: str, table: str) -> None:
    """Let a gradient be made of rows that are fed, as that of a sparse lookup is."""
    variable = block.vars[gradient]
    height, width = block.var(table).shape or (0, 0)
    variable.desc.set_type(VarType.LOD_TENSOR)
    variable.desc.set_shape((height, width))
    rows, values = gradient + ROWS, gradient + _ROW_VALUES
    block.create_var(name=rows, shape=[-1], dtype="int64", is_data=True)
    block.create_var(name=values, shape=[-1, width], dtype=variable.dtype, is_data=True)
    op = Operator(
        block,
        "lookup_table_v2_grad",
        {"W": [table], "Ids": [rows], "Out@GRAD": [values]},
        {"W@GRAD": [gradient]},
        {"is_sparse": True, ROLE: int(OpRole.Optimize)},
    )
    block.ops.insert(0, op)


def _add_by_row(block: Block, gradient: Gradient) -> None:
    """Let a sum of a table and rows, in geo-SGD, touch these rows alone: it is a step of size -1 along them."""
    for number, op in enumerate(block.ops):
        if op.type == "sum" and op.inputs["X"] == [gradient.param, gradient.name]:
            table, rate = gradient.param, f"{gradient.name}@RATE"
            block.create_var(name=rate, shape=[1], dtype=block.var(table).dtype)
            attrs = {"shape": [1], "dtype": int(block.var(table).dtype or 0), "value": -1.0}
            slots = {"Param": [table], "Grad": [gradient.name], "LearningRate": [rate]}
            role = {ROLE: int(OpRole.Optimize)}
            block.ops[number : number + 1] = [
                Operator(block, "fill_constant", {}, {"Out": [rate]}, attrs | role),
                Operator(block, "sgd", slots, {"ParamOut": [table]}, role),
            ]
            return


def fed_rows(gradient: str) -> tuple[str, str]:
    """Return the names under which the rows of a gradient are fed: numbers and values."""
    return gradient + ROWS, gradient + _ROW_VALUES


@cache
def of_trainer(name: str) -> int | None:
    """Return the trainer whose gradient has this name, if the name tells."""
    match = _OF_TRAINER.match(name)
    return int(match[2]) if match else None
