"""Choose threads for instructions from measured times, or run them in order if that is as fast."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ops.collective import COLLECTIVES
from .instruction import EARLY_FETCH
from .plan import Plan
from .run import deal, worth_dealing


def may_overlap(program: ReplicaProgram) -> bool:
    """Tell whether some collective can run beside other work; the last one starts when all work is done."""
    return sum(node.op in COLLECTIVES for node in program.nodes) > 1


def meetings(plan: Plan) -> list[int]:
    """Return the numbers of the instructions that belong in the communication lane."""
    return [
        i
        for i, instruction in enumerate(plan.instructions)
        if instruction.op in COLLECTIVES or instruction.op == EARLY_FETCH
    ]


def choose(
    plan: Plan, needs: Sequence[set[int]], threads: int, *, overlap: bool, spare: bool
) -> list[int] | None:
    """Return a lane for each instruction of a timed plan; None if running in order should be as fast.

    Args:
        threads: lanes that compute.
        overlap: allow one more lane, for communication.
        spare: that lane has a core of its own. Without one, the processor time of a collective is not saved,
            only its waiting for the network.

    The seconds of a collective leave out the time until the last peer arrived (see ``Plan.run``): hiding that
    saves nothing, as the step takes as long as the slowest replica's work. Noise only adds, so the least of the
    timed steps is what is sure to be saved. Replicas may choose differently: collectives keep one order in any
    lane.
    """
    options = []
    if threads > 1:
        options.append(deal(plan.seconds, needs, threads))
    if overlap:
        costs = {i: 0.0 if spare else min(plan.busy[i], plan.seconds[i]) for i in meetings(plan)}
        options.append(deal(plan.seconds, needs, threads, costs))
    if not options:
        return None
    chosen, expected = min(options, key=lambda option: option[1])
    return _without_gaps(chosen) if worth_dealing(plan.seconds, expected) else None


def communication_lane(plan: Plan) -> int | None:
    """Return the lane that runs communication only, or None."""
    if plan.lanes is None:
        return None
    chosen, meets = plan.lanes.chosen, set(meetings(plan))
    lanes = {chosen[i] for i in meets} - {chosen[i] for i in range(len(chosen)) if i not in meets}
    return lanes.pop() if len(lanes) == 1 else None


def _without_gaps(chosen: Sequence[int]) -> list[int]:
    used = sorted(set(chosen))
    return [used.index(lane) for lane in chosen]
