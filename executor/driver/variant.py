"""CompiledVariant: a program compiled for certain feeds and fetches, and what the driver knows of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ir.segments import first_segment
from ...graph.ir.sequences import sequence_of
from ...graph.ops.collective import COLLECTIVES, GATHER_ROWS
from ...graph.ops.registry import Spec
from ...graph.pipeline import Stage
from ...graph.program.program import Program
from ...strategies.bounded_dict import BoundedDict
from ...strategies.errors import ShapeError
from ..device.device import Clock
from ..feed.feeds import FeedShard, check, rows_of
from ..feed.splitting import SHAPES_KEPT, Portions
from ..gang.delivery import Results, Share, StackedShares, StepHeads
from ..plan.shapes import Shapes
from ..plan.sizes import forms_of
from ..replica.message import Stacked
from .budget import Budget
from .values import Values
from .verify import Batch, verify

# What a program is compiled for: feeds, fetches, and what follows from them
VariantKey = tuple[Any, ...]

VARIANTS_KEPT = 64  # of a program that is compiled for ever other feeds, sizes or fetches


class CompiledVariant:
    """The program compiled for certain feeds and fetches, and loaded on the gang.

    ``source`` is the program that was compiled. ``unload`` has the gang forget it.
    """

    def __init__(
        self,
        source: Program,
        program: ReplicaProgram,
        number: int,
        budget: Budget,
        stages: tuple[Stage, ...],  # what is to be verified on the first step
        values: Values,
        generation: int,
    ) -> None:
        self.source, self.program = source, program
        self._values = values
        self.budget = budget
        self.shapes = Shapes(first_segment(program))  # of what is known before a step
        self.specs: list[Spec] | None = None  # of the shapes that were checked last
        self.number = number
        self.unload: Callable[[], Any] = lambda: None
        # Of tensors' memory, when the program's persistables were checked
        self.generation = generation
        self.writes = bool(program.written_names())
        self.votes = any(node.op in COLLECTIVES for node in program.nodes)
        self.stages = stages
        self.states = program.state_names()
        self.needed = frozenset(program.needed_names())
        self.owners = program.owners()
        self.own = program.own_names()
        self.alike = frozenset(self.states) - self.own
        alike = [program.values[i].alike for i in program.fetches]
        self.results = Results(alike, values.id, program.place_states)
        fed = [program.values[v] for v in program.feeds]
        gathers = [node for node in program.nodes if node.op == GATHER_ROWS]
        gathers.sort(key=lambda node: node.attrs["number"])
        # By collective: the positions of values that have as many elements as a place brings rows.
        self.gathered = [tuple(node.inputs["Counted"]) for node in gathers]
        self.batch = [i for i, v in enumerate(fed) if v.varies and sequence_of(v.name) is None]
        capacity = SHAPES_KEPT * budget.replicas  # a step feeds each place other numbers of rows
        self._checked: BoundedDict[tuple[Any, ...], None] = BoundedDict(capacity)
        self._counted: BoundedDict[tuple[Any, ...], list[int]] = BoundedDict(capacity)

    def check(self, portions: Sequence[FeedShard], counts: Sequence[np.ndarray] = ()) -> None:
        """Infer all shapes from the feeds, once per combination, and refuse feeds for which that fails."""
        for portion in portions:
            arrays = [*portion.complete().values(), *counts]
            forms = forms_of(arrays)
            key = self.shapes.key(arrays, forms)
            if key in self._checked:
                continue
            check(self.source, portion.arrays)
            if portion.has_samples:
                fed = [form.spec for form in forms]
                self.specs = self._inferred(fed, arrays, portion, portions)
                self.budget.check(fed, self.specs, self._values.spec)
            self._checked[key] = None

    def _inferred(
        self,
        fed: Sequence[Spec],
        arrays: Sequence[np.ndarray],
        portion: FeedShard,
        portions: Sequence[FeedShard],
    ) -> list[Spec]:
        """Return the exact specs of all values; an error about a place's rows tells those of all places."""
        try:
            return self.shapes.infer(fed, self._values.spec, arrays)
        except ShapeError as error:
            check(self.source, portion.arrays)  # tells what is not fed as declared first
            rows = rows_of(self.source, portions)
            if len(portions) == 1 or not rows:
                raise
            place = next(i for i, other in enumerate(portions) if other is portion)
            counts = ", ".join(f"{c[place]} of the {sum(c)} rows of {n!r}" for n, c in rows.items())
            raise ShapeError(
                f"{error} Place {place} of {len(portions)} is fed {counts}."
            ) from error

    def row_counts(
        self, portions: Sequence[FeedShard], first: int, places: int
    ) -> list[np.ndarray]:
        """Return how many rows of sparse gradients each place brings, as a feed; none without such gradients.

        ``first`` of all ``places`` is the first one here. Those of other trainers are taken to bring as many
        as that, until replicas tell each other.
        """
        if not self.gathered:
            return []
        counts, none = np.zeros((2, len(self.gathered), places), np.int64)
        for place, portion in enumerate(portions):
            if not portion.has_samples:
                continue
            arrays = [*portion.complete().values(), none]
            forms = forms_of(arrays)
            key = self.shapes.key(arrays, forms)
            own = self._counted.get(key)
            if own is None:
                fed, state = [form.spec for form in forms], self._values.spec
                own = [
                    sum(
                        prod(spec.shape)
                        for spec in self.shapes.infer_some(each, fed, state, arrays)
                    )
                    for each in self.gathered
                ]
                self._counted[key] = own
            counts[:, first + place] = own
        counts[:, :first] = counts[:, first + len(portions) :] = counts[:, first : first + 1]
        return [counts]

    def verify(self, shares: Sequence[Share], step: int) -> str:
        """Compute what the passes changed, before and after, on the rows of the first place that has some.

        Return what was compared, in words. This is done once.
        """
        rank = next((i for i, share in enumerate(shares) if not share.idle[0]), 0)
        share, program = shares[rank], self.program
        names = [program.values[i].name for i in program.feeds]
        batch = Batch(
            dict(zip(names, share.arrays, strict=False)),
            lambda name: np.array(self._values.scope.find_var(name).get_tensor()),  # type: ignore[union-attr]
            rank,
            program.seed,
            Clock(step, share.rows[0], share.parts[0]),
        )
        compared = verify(self.stages, batch)
        self.stages = ()
        return compared


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
