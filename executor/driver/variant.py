"""A program as it was compiled for certain feeds and fetches: what the driver keeps of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ir.segments import first_segment
from ...graph.ir.sequences import sequence_of
from ...graph.ops.collective import COLLECTIVES, GATHER_ROWS
from ...graph.ops.registry import Spec
from ...graph.pipeline import Stage
from ..feed.feeds import Cuts
from ..feed.splitting import SHAPES_KEPT
from ..gang.delivery import Results
from ..host.bounded_dict import BoundedDict
from ..plan.shapes import Shapes
from .budget import Budget

VARIANTS_KEPT = 64  # of a program that is compiled for ever other feeds, sizes or fetches


class CompiledVariant:
    """The program compiled for certain feeds and fetches, and loaded on the gang.

    ``unload`` has the gang forget it.
    """

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
        self.shapes = Shapes(first_segment(program))  # of what is known before a step
        self.specs: list[Spec] | None = None  # of the shapes that were checked last
        self.number = number
        self.unload: Callable[[], Any] = lambda: None
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
        fed = [program.values[v] for v in program.feeds]
        gathers = [node for node in program.nodes if node.op == GATHER_ROWS]
        gathers.sort(key=lambda node: node.attrs["number"])
        # By collective: the positions of values that have as many elements as a place brings rows.
        self.gathered = [node.inputs["Counted"] for node in gathers]
        self.batch = [i for i, v in enumerate(fed) if v.varies and sequence_of(v.name) is None]
        self.checked: BoundedDict[tuple[Any, ...], None] = BoundedDict(SHAPES_KEPT)
        # By the identity of cuts, which are kept here: where the rows of each place stand.
        self.known: BoundedDict[int, tuple[Cuts, list[Any], list[Any]]] = BoundedDict(SHAPES_KEPT)
