"""Which parameters a program trains, how they are cut, and which server has which part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...strategies.errors import InvalidValue
from ...strategies.types import VarType
from ..program.operator import Operator
from ..program.program import Program
from ..program.role import ROLE_VAR, OpRole
from ..program.variable import Variable
from .config import DistributeTranspilerConfig
from .dispatch import PSDispatcher, RoundRobin
from .slices import part_sizes, row_width

LOOKUPS = ("lookup_table", "lookup_table_v2")
# Updates that servers can make: of each element on its own, and by norms of the whole parameter.
BY_ELEMENT = frozenset(
    {
        "sgd",
        "momentum",
        "adam",
        "adamax",
        "adagrad",
        "decayed_adagrad",
        "adadelta",
        "rmsprop",
        "ftrl",
    }
)
_KEEP_ROWS = ("sum", "scale", "elementwise_mul", "clip", "clip_by_norm")
BY_NORM = frozenset({"lars_momentum", "lamb"})


@dataclass(frozen=True)
class Shard:
    """Rows of a parameter and its gradient that one server keeps: ``begin`` and ``rows`` of dimension 0."""

    parameter: str
    gradient: str
    endpoint: str
    begin: int
    shape: tuple[int, ...]

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return self.shape[0]


@dataclass
class Trained:
    """A parameter, the gradient that its optimizer reads, and the shards of both."""

    parameter: Variable
    gradient: Variable
    update: Operator
    sparse: bool = False  # the gradient is rows of a table
    table: bool = False  # its rows are looked up at the servers, and the trainer has none of them
    shards: list[Shard] = field(default_factory=list)

    @property
    def split(self) -> bool:
        """Tell whether more than one shard has a part of it."""
        return len(self.shards) > 1

    @property
    def sections(self) -> list[int]:
        """The number of rows of each shard."""
        return [shard.rows for shard in self.shards]

    @property
    def endpoints(self) -> list[str]:
        """The server of each shard."""
        return [shard.endpoint for shard in self.shards]


def is_update(op: Operator) -> bool:
    """Tell whether an operator is an optimizer's: it writes a parameter from its gradient."""
    return bool(op.role & OpRole.Optimize and op.inputs.get("Param") and op.inputs.get("Grad"))


def trained_parameters(program: Program) -> list[Trained]:
    """Return what the optimizers of a program train, in their order.

    Raises:
        InvalidValue: servers cannot make the update of an optimizer.
    """
    remote = looked_up(program)
    trained = updated_parameters(program)
    for entry in trained:
        op = entry.update
        if op.type not in BY_ELEMENT | BY_NORM:
            raise InvalidValue(
                f"DistributeTranspiler: servers cannot make the update {op.type!r} of parameter "
                f"{entry.parameter.name!r}; they can: {', '.join(sorted(BY_ELEMENT | BY_NORM))}. Take one of "
                f'these optimizers, or train without servers (config.mode = "collective"). {op.where}'
            )
        entry.table = entry.sparse and entry.parameter.name in remote
    return trained


def updated_parameters(program: Program, updated_here: bool = False) -> list[Trained]:
    """Return what optimizers update, whichever they are; ``updated_here``: on the trainer."""
    block, rows = program.global_block(), row_gradients(program, updated_here)
    trained = []
    for op in filter(is_update, block.ops):
        parameter, gradient = (block.var(op.input(slot)[0]) for slot in ("Param", "Grad"))
        trained.append(Trained(parameter, gradient, op, gradient.name in rows))
    return trained


def looked_up(program: Program) -> set[str]:
    """Return the tables that are only looked up, with gradients of rows: no trainer needs a copy of them."""
    names: set[str] = set()
    for op in program.global_block().ops:
        if op.type in LOOKUPS and op.attrs.get("remote_prefetch"):
            names.update(op.input("W"))
    for block in program.blocks:
        for op in block.ops:
            plain = op.type.removesuffix("_grad") not in LOOKUPS and not is_update(op)
            if plain and not op.role & (OpRole.Optimize | OpRole.Backward):
                names.difference_update(op.input_arg_names)
    return names


def row_gradients(program: Program, updated_here: bool = False) -> set[str]:
    """Return the gradients that are rows: those of embeddings with ``is_sparse``, and what keeps rows.

    Programs here have no type for them until they are sent; those of Paddle's files do. Decay of weights
    changes all rows; ``updated_here`` tells that it is added before they are sent.
    """
    block = program.global_block()
    rows = {v.name for v in block.vars.values() if v.type == VarType.SELECTED_ROWS}
    for op in block.ops:
        if op.role & OpRole.Optimize and not updated_here:
            continue
        if op.attrs.get("is_sparse") and op.type.endswith("_grad"):
            rows.update(op.outputs.get("W@GRAD", []) + op.outputs.get("Weight@GRAD", []))
        elif op.type in _KEEP_ROWS and rows.issuperset(op.inputs.get("X", [""])):
            rows.update(op.outputs["Out"])
        else:
            rows.difference_update(op.output_arg_names)
    return rows


def trainer_side(program: Program) -> list[Operator]:
    """Return the Optimize operators that clip gradients: they read nothing that only servers have.

    A limit needs the gradients of all parameters, which no server has.
    """
    block = program.global_block()
    served: set[str] = set()  # written by what the servers do
    clips = []
    for op in block.ops:
        if op.role != OpRole.Optimize:
            continue
        state = any(_is_persistable(program, name) for name in op.input_arg_names)
        if is_update(op) or state or served.intersection(op.input_arg_names):
            served.update(op.output_arg_names)
        else:
            clips.append(op)
    return clips


def _is_persistable(program: Program, name: str) -> bool:
    variable = program.global_block().find_var_recursive(name)
    return variable is not None and variable.persistable


def place(
    trained: Sequence[Trained],
    config: DistributeTranspilerConfig,
    endpoints: Sequence[str],
    seed: int,
) -> list[Trained]:
    """Cut parameters, and deal the parts to the servers: in order, or without slices as the seed decides.

    Return the order.
    """
    dispatcher = (config.split_method or RoundRobin)(endpoints)
    count = len(dispatcher.eps) if config.slice_var_up else 1
    order = list(range(len(trained)))
    if not config.slice_var_up:
        np.random.RandomState(seed).shuffle(order)
    dealt = [trained[index] for index in order]
    for entry in dealt:
        entry.shards = list(_shards(entry, dispatcher, count, config.min_block_size))
    return dealt


def _shards(
    entry: Trained, dispatcher: PSDispatcher, count: int, min_block_size: int
) -> Iterator[Shard]:
    shape = entry.parameter.shape or ()
    sizes = part_sizes(shape, count, min_block_size)
    name, gradient, begin = entry.parameter.name, entry.gradient.name, 0
    names = [f".block{number}" if len(sizes) > 1 else "" for number in range(len(sizes))]
    endpoints = dispatcher.dispatch([_Part(gradient + suffix) for suffix in names])
    for suffix, size, endpoint in zip(names, sizes, endpoints, strict=True):
        rows = size // row_width(shape)
        yield Shard(name + suffix, gradient + suffix, endpoint, begin, (rows, *shape[1:]))
        begin += rows


@dataclass(frozen=True)
class _Part:
    name: str


def role_var_of(op: Operator) -> str:
    """Return the parameter that an operator serves, or an empty string."""
    names = op.attrs.get(ROLE_VAR) or [""]
    return str(names[0])
