"""A program on a replica: its buckets, and the plans that are bound for what was fed so far."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ...strategies.errors import Unsupported
from ..cuda.runtime import Runtime
from ..host.arena import Memory
from ..kernels.back_ends import ALL_LIBRARIES
from ..kernels.capabilities import installed
from ..plan.bind import Binder
from ..plan.binding_cache import BindingCache
from ..plan.buckets import Buckets
from ..plan.group import CollectiveGroup
from ..plan.overlap import may_overlap
from ..plan.plan import Plan
from ..plan.traced import STEPS_KEPT, TracedStep
from .agreement import NO_STEP
from .message import KEPT, Message
from .orders import EarlyFetches, Load, pack


class BoundPlan:
    """A plan, and what it takes to bind it again for several threads once its instructions were timed.

    ``fed`` are the lasting places it reads its feeds from, if it does. ``direct``: a step is nothing but a run
    of the plan, which is never timed to be dealt to threads, meets no peers and shares no OpenMP.
    """

    def __init__(
        self,
        binder: Binder,
        fed: Sequence[np.ndarray] | None,
        post: Callable[[Message], None] | None,
        direct: bool = False,
    ) -> None:
        self.binder = binder
        self.fed = fed
        self._post = post
        self.timed_steps = 0
        self.direct = direct
        self.use(binder.plan())

    def use(self, plan: Plan) -> None:
        """Run this plan from now on. ``deliver`` posts what it fetches before the vote."""
        self.plan = plan
        self.deliver: Callable[[], None] | None = None
        if plan.vote is not None and self._post is not None:
            early = dict(sorted(plan.vote.early.items()))
            self.deliver = partial(
                self._post, pack(EarlyFetches(list(early)), list(early.values()))
            )

    def deliver_own(self, done: int) -> Callable[[], None] | None:
        """Return what posts, in a step that is not a request's last, the place's own values after it.

        ``done`` steps will have been made then.
        """
        program, vote = self.binder.program, self.plan.vote
        if not program.place_states or vote is None or self._post is None:
            return None
        early = [array for k, array in vote.early.items() if k >= len(program.user_fetches)]
        if len(early) < len(program.place_states):
            return None
        return partial(self._post, Message(KEPT, {}, early, done))


class LoadedProgram:
    """A program on this replica: its gradient buckets and the plans bound so far.

    ``threads`` instructions may run at once.
    """

    def __init__(
        self,
        order: Load,
        group: CollectiveGroup | None,
        cores: int,
        within: float,
        runtime: Runtime | None = None,
    ) -> None:
        self.program = _program_of(order)
        self.openmp = any(node.kernel == "onednn" for node in self.program.nodes)
        self._check_libraries(runtime)
        self.options = options = order.options
        self.alone = options.alone
        if group is not None and not self.alone:  # all have the same, or nobody has it
            group.begin(NO_STEP)
            what = f"loading program {order.id}, schedule {self.program.schedule}"
            group.barrier(within=within, tag=what)
        self.scope = order.scope
        threads = 1 if options.in_program_order else options.execution.num_threads
        self.threads = min(threads, cores) if options.capped else threads
        # num_threads=1 means sequential; owning one core does not.
        self.overlap = threads > 1 and may_overlap(self.program) and runtime is None
        if runtime is not None:  # its streams run side by side
            self.threads = 1
        self.parallel = self.threads > 1 or self.overlap
        self.spare = cores > self.threads
        self.buckets = Buckets(self.program, group if self.program.buckets else None)
        self.plans: OrderedDict[Hashable, BoundPlan] = OrderedDict()
        self.cache = BindingCache(self.program)
        self.memory: Memory | None = None  # of its own; else that of the replica
        self.alive: Plan | None = None
        self.last: Plan | None = None
        self.tracing = False
        self.traced: deque[TracedStep] = deque(maxlen=STEPS_KEPT)

    def _check_libraries(self, runtime: Runtime | None) -> None:
        wanted = {node.kernel for node in self.program.nodes}.intersection(ALL_LIBRARIES)
        missing = sorted(wanted - installed(runtime).keys()) if wanted else []
        if missing:
            raise Unsupported(
                f"the program was compiled for {', '.join(missing)}, which this replica's host lacks: "
                f"install '.[{'xla' if missing == ['xla'] else 'cpu'}]' with pip, from Rowlock's "
                f"folder, there, or on no host."
            )

    def forget_plans(self) -> None:
        """Let go of every plan and its memory."""
        self.alive = self.last = None
        for bound in self.plans.values():
            bound.plan.close()
        self.plans.clear()
        self.cache.forget()


def _program_of(load: Load) -> ReplicaProgram:
    program = load.program
    return ReplicaProgram.from_json(program) if isinstance(program, str) else program
