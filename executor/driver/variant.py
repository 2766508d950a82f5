"""CompiledVariant: a program compiled for certain feeds and fetches, and what the driver knows of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ir.segments import first_segment
from ...graph.ir.sequences import sequence_of
from ...graph.ops.collective import COLLECTIVES, GATHER_ROWS
from ...graph.ops.registry import Spec
from ...graph.pipeline import Stage
from ..feed.splitting import SHAPES_KEPT, Portions
from ..gang.delivery import Results, Share, StackedShares, StepHeads
from ..host.bounded_dict import BoundedDict
from ..plan.shapes import Shapes
from ..replica.message import Stacked
from .budget import Budget

VariantKey = tuple[
    Any, ...
]  # what a program is compiled for: feeds, fetches, and what follows from them

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


class KnownStep:
    """What is known of the steps of a variant that are fed alike: of the same shapes, cut by the same ``cuts``.

    ``key`` is that of the variant; ``where`` has rows, parts and idleness of each place's :class:`Share`, and
    ``counts`` the arrays that come behind those that are fed.
    """

    def __init__(
        self,
        portions: Portions,
        key: VariantKey,
        variant: CompiledVariant,
        shares: Sequence[Share],
        counts: Sequence[np.ndarray],
    ) -> None:
        self.key, self.variant = key, variant
        self._where = [(share.rows, share.parts, share.idle) for share in shares]
        self._counts = counts
        self.cuts, self._shapes = portions.cuts, portions.stacked_shapes()
        self.heads = StepHeads()

    def shares(self, portions: Portions) -> Sequence[Share]:
        """Return what each place computes."""
        if self._shapes is not None:
            stacks = portions.stacks(self._shapes)
            stacks += [count[np.newaxis] for count in self._counts]
            return StackedShares(Stacked(stacks, len(self._where)), self._where)
        return [
            Share([*arrays, *self._counts], *where)
            for arrays, where in zip(portions.by_place(), self._where, strict=True)
        ]
