"""A program as it was compiled for certain feeds and fetches: what the driver keeps of it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ops.collective import COLLECTIVES
from ...graph.ops.registry import Spec
from ...graph.pipeline import Stage
from ..feed.feeds import Cuts
from ..gang.delivery import Results
from ..plan.shapes import Shapes
from .budget import Budget


class CompiledVariant:
    """The program compiled for certain feeds and fetches, and loaded on the gang."""

    def __init__(
        self,
        program: ReplicaProgram,
        number: int,
        budget: Budget,
        stages: tuple[Stage, ...],  # what is to be verified on the first step
        scope: int,
        generation: int,
    ) -> None:
        self.program = program
        self.budget = budget
        self.shapes = Shapes(program)
        self.specs: list[Spec] | None = None  # of the shapes that were checked last
        self.number = number
        self.generation = (
            generation  # of tensors' memory, when the program's persistables were checked
        )
        self.writes = bool(program.written_names())
        self.votes = any(node.op in COLLECTIVES for node in program.nodes)
        self.stages = stages
        self.states = program.state_names()
        self.needed = frozenset(program.needed_names())
        self.owners = program.owners()
        self.own = program.own_names()
        self.alike = frozenset(self.states) - self.own
        alike = [program.values[i].alike for i in program.fetches]
        self.results = Results(alike, scope, program.place_states)
        self.batch = [i for i, v in enumerate(program.feeds) if program.values[v].varies]
        self.checked: OrderedDict[tuple[Any, ...], None] = OrderedDict()
        # By the identity of cuts, which are kept here: where the rows of each place stand.
        self.known: dict[int, tuple[Cuts, list[Any]]] = {}
