"""LoadedProgram: a program on a replica, with its gradient buckets and the plans bound so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...graph.ir.idle import idle_parts
from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ir.segments import Part, cut, cut_block
from ...graph.ops.collective import ROW_COUNTS
from ...graph.ops.registry import Spec
from ..cuda.memory import DeviceMemory
from ..cuda.runtime import Runtime
from ..host.arena import Memory
from ..kernels.back_ends import library_of
from ..plan.bind import Binder
from ..plan.binding_cache import BindingCache
from ..plan.buckets import Buckets
from ..plan.group import CollectiveGroup, When
from ..plan.instruction import SharedPart
from ..plan.overlap import may_overlap
from ..plan.part import Peers, gpus_can_vote
from ..plan.plan import Plan
from ..plan.resized import Resizer
from ..plan.shapes import Inferred, StateSpecs
from ..plan.sizes import Form, Sizes
from ..plan.traced import STEPS_KEPT, TracedStep
from .agreement import NO_STEP
from .host_call import HostCall
from .message import KEPT, Message
from .orders import EarlyFetches, Load, pack
from .plan_cache import PlanBudget, PlanCache

PLAN_BYTES, BINDER_BYTES = 4 << 10, 12 << 10  # as measured, beside instructions
RESIZERS_KEPT = 4  # of a segment: shapes tell which values can share memory
_MEASURED_SHAPES = 4  # the first of a program whose shapes change from step to step


class Seat:
    """Where a program meets its peers: a group (None: nowhere), the rank there, and the steps done in it.

    ``rank`` is None on the driver's thread, where an error need not tell which replica it is of.
    """

    def __init__(self, group: CollectiveGroup | None, rank: int | None) -> None:
        self.group, self.rank, self.done = group, rank, 0


class BoundPlan:
    """A plan, and the binder that binds it again for several threads once its instructions were timed.

    ``binder`` is None if that never happens. ``fed``: the arrays in shared memory from which the plan reads its
    feeds, if it does.
    """

    timed_steps = 0
    deliver: Callable[[], None] | None = None

    def __init__(
        self,
        program: ReplicaProgram,
        plan: Plan,
        binder: Binder | None,
        fed: Sequence[np.ndarray] | None,
        post: Callable[[Message], None] | None,
    ) -> None:
        self.program, self.binder = program, binder
        self.fed = fed
        self._post = post
        self.use(plan)
        self.size = PLAN_BYTES + plan.nbytes + (0 if binder is None else BINDER_BYTES)

    def use(self, plan: Plan) -> None:
        """Use this plan from now on; :attr:`deliver` posts its early fetches."""
        self.plan = plan
        if plan.vote is not None and self._post is not None:
            early = dict(sorted(plan.vote.early.items()))
            self.deliver = partial(
                self._post, pack(EarlyFetches(list(early)), list(early.values()))
            )

    @property
    def parts(self) -> Sequence[SharedPart]:
        """What it shares with other plans."""
        return self.plan.parts

    def close(self) -> None:
        """End the threads of the plan."""
        self.plan.close()

    def deliver_own(self, done: int) -> Callable[[], None] | None:
        """Return a call that posts the place's own persistables, after a step that is not a request's last.

        ``done``: the number of steps done by then.
        """
        program, vote = self.program, self.plan.vote
        if not program.place_states or vote is None or self._post is None:
            return None
        early = [array for k, array in vote.early.items() if k >= len(program.answers)]
        if len(early) < len(program.place_states):
            return None
        return partial(self._post, Message(KEPT, {}, early, done))


class Segment:
    """Nodes of a program that one plan runs, with their gradient buckets and the plans bound so far.

    ``budget``: the memory that plans of all segments of the program may take. ``resizers`` bind the segment on
    the memory of some of these plans; the one used last is at the end. ``unread`` are the numbers of fetches of
    which only the shapes are read.
    """

    def __init__(
        self,
        program: ReplicaProgram,
        group: CollectiveGroup | None,
        budget: PlanBudget[BoundPlan],
        buckets: Buckets | None = None,
    ) -> None:
        self.program = program
        self.buckets = buckets or Buckets(program, group if program.buckets else None)
        self.buckets.users += 1
        self.plans = PlanCache(budget)
        self.cache = BindingCache(program)
        self.resizers: list[Resizer] = []
        self.states: StateSpecs | None = None  # of persistables, as plans are bound to them
        self.unread: frozenset[int] = frozenset()

    @property
    def reads(self) -> set[int]:
        """Positions of what it is fed and whose elements it reads, or passes on."""
        program, known = self.program, self.cache.shapes.known.feeds
        return {i for k, i in enumerate(program.feeds) if i in program.read or k in known}

    def infer(
        self,
        forms: Sequence[Form],
        arrays: Sequence[np.ndarray],
        state: Callable[[str], Spec | None],
    ) -> Inferred:
        """Infer the shapes from which all others follow; ``state`` returns a persistable's spec.

        Persistables keep their shapes as long as there are plans that read them.
        """
        if self.states is None:
            self.states = self.cache.shapes.states(state)
        return self.cache.shapes.begin(forms, self.states, arrays)

    def resized(self, sizes: Sizes, complete: Callable[[], Sequence[Spec]]) -> Plan | None:
        """Return a plan for these sizes on the memory of another plan, if it fits there.

        ``complete`` returns the specs of all values, which follow from the sizes.
        """
        for k in reversed(range(len(self.resizers))):
            plan = self.resizers[k].plan(sizes, complete)
            if plan is not None:
                if k < len(self.resizers) - 1:
                    self.resizers.append(self.resizers.pop(k))
                return plan
        return None

    def resize(self, resizer: Resizer) -> None:
        """Add a resizer; the one used longest ago goes."""
        self.resizers = [*self.resizers[1 - RESIZERS_KEPT :], resizer]

    def forget_plans(self) -> None:
        """Forget all plans, and release their memory."""
        self.plans.clear()
        self.resizers.clear()
        self.cache.templates.clear()
        self.states = None


class LastSegment(Segment):
    """The last segment of a program, which has its fetches, and the parts that run before it (``earlier``)."""

    def __init__(
        self,
        program: ReplicaProgram,
        group: CollectiveGroup | None,
        budget: PlanBudget[BoundPlan],
        buckets: Buckets | None,
        earlier: Sequence[Segment | HostCall],
    ) -> None:
        super().__init__(program, group, budget, buckets)
        self.earlier = earlier

    @property
    def meets_in(self) -> list[Segment]:
        """The segments in which it may meet its peers: the last, and those before it that have collectives."""
        earlier = [part for part in self.earlier if isinstance(part, Segment)]
        return [*(part for part in earlier if part.program.buckets), self]

    def release(self) -> None:
        """Give back what plans hold, and the memory in which values meet."""
        self.forget_plans()
        for part in self.meets_in:
            part.buckets.release()

    def forget_states(self) -> None:
        """Look again at the shapes of persistables before another plan is bound."""
        for segment in (*segments(self.earlier), self):
            segment.states = None

    def forget_plans(self) -> None:
        """Let go of every plan and its memory."""
        for segment in segments(self.earlier):
            segment.forget_plans()
        super().forget_plans()


class LoadedProgram(LastSegment):
    """A program on this replica. ``idle`` is the part that it runs in a step in which its place has no rows.

    ``threads`` instructions may run at once, on so many ``cores``; OpenMP may start ``openmp`` threads for it
    (0: as many as it likes). ``seat``: where it meets its peers. ``direct``: a step is just a run of the plan,
    which is never dealt to threads, meets no peers and limits no OpenMP. ``memory``: that of its temporaries.
    ``twin``: another variant with the same collectives, whose buckets this one shares. ``row_counts``: the
    position of the feed that trainers tell each other before a step (None: there is none).
    """

    def __init__(
        self,
        order: Load,
        seat: Seat,
        memory: Memory | DeviceMemory,
        cores: int,
        openmp: int,
        within: float,
        runtime: Runtime | None = None,
        twin: LoadedProgram | None = None,
    ) -> None:
        self.seat, group = seat, seat.group
        self.memory, self._within = memory, within
        self.whole = _program_of(order)
        self._parts, self._runtime = cut(self.whole), runtime
        self._budget = PlanBudget[BoundPlan]()
        super().__init__(*self._last_of(self._parts, [] if twin is None else twin.meets_in))
        self._idle: LastSegment | None = None
        self.options = options = order.options
        on_gpu = runtime is not None
        votes = on_gpu and not self.earlier and not options.trainers
        self._gpus_vote = votes and gpus_can_vote(self.program)
        starts_openmp = any(library_of(node.kernel) == "onednn" for node in self.whole.nodes)
        self.openmp = openmp if starts_openmp else 0
        fed = [self.whole.values[i].name for i in self.whole.feeds]
        counted = group is not None and bool(options.trainers) and ROW_COUNTS in fed
        self.row_counts = fed.index(ROW_COUNTS) if counted else None
        if group is not None and twin is None:
            # All have the same program, or nobody has it.
            group.begin(NO_STEP)
            number = "of all trainers" if options.trainers else order.id
            what = f"loading program {number}, schedule {self.schedule}"
            group.barrier(When(within, what))
        self.scope = order.scope
        threads = 1 if options.in_program_order else options.execution.num_threads
        self.threads = min(threads, cores) if options.capped else threads
        # num_threads=1 means sequential; owning one core does not.
        self.overlap = threads > 1 and may_overlap(self.program) and not on_gpu
        if on_gpu:
            self.threads = 1  # its streams run side by side
        self.parallel = self.threads > 1 or self.overlap
        self.uses_lanes = False  # some plan does
        self._shapes_met = 0
        self.direct = group is None and not self.parallel and not self.openmp
        self.spare = cores > self.threads
        self.meets_early = len(self.meets_in) > 1
        self.alive: Plan | None = None
        self.last: Plan | None = None
        self.tracing = False
        self.traced: deque[TracedStep] = deque(maxlen=STEPS_KEPT)

    def measures_next(self) -> bool:
        """Tell whether the plan for shapes met for the first time is measured, to deal it to threads.

        Measuring takes steps in order, and binding all nodes. Where shapes ever change, a few tell whether
        threads are worth it for the others: the first, and then fewer and fewer.
        """
        if not self.parallel:
            return False
        self._shapes_met += 1
        few = self._shapes_met <= _MEASURED_SHAPES or self._shapes_met.bit_count() == 1
        return few or self.uses_lanes or not self.whole.uneven

    @property
    def idle(self) -> LastSegment:
        """What a place without rows runs; it meets its peers where one with rows does."""
        if self._idle is None:
            self._idle = LastSegment(*self._last_of(idle_parts(self._parts), self.meets_in))
        return self._idle

    def _last_of(self, parts: Sequence[Part], alike: Sequence[Segment]) -> tuple[Any, ...]:
        """Return the parts of a :class:`LastSegment`; ``alike`` are segments whose buckets it shares."""
        *before, last = parts
        assert isinstance(last, ReplicaProgram), "the last part is a segment"
        group, buckets = self.seat.group, [segment.buckets for segment in alike]
        earlier = _load(self.whole, before, self._budget, group, buckets)
        _note_unread(earlier, {*last.feeds, *self.whole.fetches})
        # A plan of the last holds a graph on a GPU.
        budget = self._budget if self._runtime is None else PlanBudget[BoundPlan](most=0)
        return last, group, budget, buckets[-1] if buckets else None, earlier

    @property
    def schedule(self) -> str:
        """A hash of what all ranks must do alike."""
        return self.whole.meetings if self.options.rings else self.whole.schedule

    def peers(self, segment: Segment) -> Peers:
        """Return the ranks that plans of a segment meet; they vote on a step in the last."""
        decide = isinstance(segment, LastSegment)
        return Peers(
            *(self.seat.group, self.seat.rank, self._within, self.schedule),
            gpus_vote=self._gpus_vote,
            decide=decide,
        )

    def release(self) -> None:
        super().release()
        if self._idle is not None:
            self._idle.release()

    def forget_states(self) -> None:
        super().forget_states()
        if self._idle is not None:
            self._idle.forget_states()

    def forget_plans(self) -> None:
        self.alive = self.last = None
        super().forget_plans()
        if self._idle is not None:
            self._idle.forget_plans()


def _load(
    program: ReplicaProgram,
    parts: Sequence[Part],
    budget: PlanBudget[BoundPlan],
    group: CollectiveGroup | None = None,
    shared: Iterable[Buckets] = (),
) -> list[Segment | HostCall]:
    """Return what runs parts of a program; collectives meet in ``shared`` buckets, if there are any."""

    def load_block(block: ReplicaProgram) -> list[Segment | HostCall]:
        return _load(block, cut_block(block), budget)

    buckets = iter(shared)
    return [
        Segment(part, group, budget, next(buckets, None) if part.buckets else None)
        if isinstance(part, ReplicaProgram)
        else HostCall(part, program.values, load_block)
        for part in parts
        # The first has nothing to do where a program begins with a loop.
        if not isinstance(part, ReplicaProgram) or part.nodes or part.fetches
    ]


def _note_unread(parts: Sequence[Segment | HostCall], read: set[int]) -> None:
    """Note fetches of segments whose elements nothing reads; ``read`` are positions read behind these parts."""
    read = read.union(*(part.reads for part in parts))
    calls = [part for part in parts if isinstance(part, HostCall)]
    gradients = {call.rounds: call for call in calls if call.goes_back}
    for part in parts:
        if isinstance(part, Segment):
            fetches = enumerate(part.program.fetches)
            part.unread = frozenset(k for k, i in fetches if i not in read)
        elif part.program is not None:
            gradient = None if part.goes_back else gradients.get(part.rounds)
            _note_unread(part.body, part.fetched_for(gradient))


def segments(parts: Iterable[Segment | HostCall]) -> Iterator[Segment]:
    """Return the segments among parts, and in the bodies of loops."""
    for part in parts:
        if isinstance(part, Segment):
            yield part
        else:
            yield from segments(part.body)


def _program_of(load: Load) -> ReplicaProgram:
    program = load.program
    return ReplicaProgram.from_json(program) if isinstance(program, str) else program
