"""Whether a step is dealt to lanes, and to which: told by what its instructions took in the first steps."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ops.collective import COLLECTIVES
from .instruction import EARLY_FETCH
from .plan import Plan
from .run import deal, worth_dealing


def may_overlap(program: ReplicaProgram) -> bool:
    """Tell whether a collective can run beside other work: the last one comes when all that is done."""
    return sum(node.op in COLLECTIVES for node in program.nodes) > 1


def meetings(plan: Plan) -> list[int]:
    """Return the numbers of the instructions that belong into the lane for communication."""
    return [
        i
        for i, instruction in enumerate(plan.instructions)
        if instruction.op in COLLECTIVES or instruction.op == EARLY_FETCH
    ]


def choose(
    plan: Plan, needs: Sequence[set[int]], threads: int, *, overlap: bool, spare: bool
) -> list[int] | None:
    """Return a lane for each instruction of a plan that was timed; None: to run in order promises as much.

    ``threads`` lanes compute. ``overlap``: one more may be had for communication. ``spare``: there is a core
    for it, so that a collective takes nothing from the others; without, what it keeps a processor busy for is
    not saved, only what it waits for the network.

    What a collective took is counted without the time until the last peer came (see ``Plan.run``). To hide
    that time would save nothing: the step takes as long as the slowest replica's work. Noise only adds, so
    the least of the timed steps is nearest to what is sure to be saved. Replicas may choose differently;
    collectives keep their one order in whichever lane they are.
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
    """Return the lane that has nothing but communication; None: there is none."""
    if plan.lanes is None:
        return None
    chosen, meets = plan.lanes.chosen, set(meetings(plan))
    lanes = {chosen[i] for i in meets} - {chosen[i] for i in range(len(chosen)) if i not in meets}
    return lanes.pop() if len(lanes) == 1 else None


def _without_gaps(chosen: Sequence[int]) -> list[int]:
    used = sorted(set(chosen))
    return [used.index(lane) for lane in chosen]
