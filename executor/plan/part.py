"""RankPart: the nodes of a program that one rank runs, and the peers that it meets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...graph.ir.graph import EVERYWHERE, STATE
from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.ops.collective import ALL_REDUCE, COLLECTIVES
from ...strategies.errors import ExecutionError
from ..cuda.device_vote import DeviceVote
from ..kernels.back_ends import ON_HOST
from .group import DEADLINE_S, CollectiveGroup


@dataclass(frozen=True)
class Peers:
    """The ranks that a plan meets: their group (None: no peers), this rank, and a deadline in seconds.

    ``schedule``: what they must do alike, as a hash (empty: all of the program). ``gpus_vote``: their GPUs vote
    on a step, and the host may learn only later whether it happened (see :func:`gpus_can_vote`). ``decide``:
    they vote on the step; else it goes on behind the plan, in another segment.
    """

    group: CollectiveGroup | None = None
    rank: int | None = None
    within: float = DEADLINE_S
    schedule: str = ""
    gpus_vote: bool = False
    decide: bool = True

    def waited(self) -> float:
        """Return the seconds that collectives waited for peers so far."""
        return self.group.waited if self.group is not None else 0.0


ALONE = Peers()


class RankPart:
    """The nodes of a program that one rank runs.

    ``vote_at`` is the last collective, at which all ranks vote if they decide on the step here, and else wait
    for the results of all (None: a rank without peers).
    """

    def __init__(self, program: ReplicaProgram, peers: Peers) -> None:
        self.program, self.peers = program, peers
        self.nodes = [node for node in program.nodes if node.at in (EVERYWHERE, peers.rank)]
        collectives = [node for node in self.nodes if node.op in COLLECTIVES]
        self.collectives = len(collectives)
        grouped = bool(collectives) and peers.group is not None
        self.vote_at: NodeRecord | None = collectives[-1] if grouped else None

    @cached_property
    def outputs(self) -> frozenset[int]:
        """Positions of the values that this rank's nodes make."""
        return frozenset(
            i
            for node in self.nodes
            for positions in node.outputs.values()
            for i in positions
            if i >= 0
        )

    @cached_property
    def inputs(self) -> frozenset[int]:
        """Positions of the values that this rank's nodes read."""
        return frozenset(i for n in self.nodes for ids in n.inputs.values() for i in ids if i >= 0)

    @cached_property
    def states(self) -> tuple[int, ...]:
        """Positions of the persistables that this rank's nodes touch, or that are fetched from it."""
        program, used = self.program, {i for node in self.nodes for i in node.touches()}
        used.update(i for i in program.fetches if self.owns(i))
        return tuple(i for i, v in enumerate(program.values) if v.kind == STATE and i in used)

    @property
    def device_vote(self) -> DeviceVote | None:
        """How GPUs vote on a step by themselves; None: their hosts do."""
        group = self.peers.group
        return group.device_vote if group is not None and self.peers.gpus_vote else None

    def owns(self, position: int) -> bool:
        """Tell whether this rank holds a persistable."""
        owner = self.program.owners().get(self.program.values[position].name, EVERYWHERE)
        return owner in (EVERYWHERE, self.peers.rank)

    def early_fetches(self) -> dict[int, int]:
        """Return the values that are fetched and known before the vote, by position in the fetch list.

        What another rank alone copies stays as it is here.
        """
        early, fetches = self.program.early.items(), self.program.fetches
        return {k: i if fetches[k] in self.outputs else fetches[k] for k, i in early}

    def refuse_early_writes(self) -> None:
        """Refuse a program that writes a persistable before all ranks have come to the last collective.

        Raises:
            ExecutionError: names the operator.
        """
        for node in self.nodes:
            if node is self.vote_at:
                return
            if names := self.program.changed_by(node):
                raise ExecutionError(
                    f"operator {node.op} would write {names[0]!r} before all replicas "
                    f"have agreed to (built at {node.where})"
                )


def gpus_can_vote(program: ReplicaProgram) -> bool:
    """Tell whether GPUs can vote on a step of a program by themselves, which all ranks must do alike.

    They can where each collective is a dense sum, the host has no part in the step and gives nothing away
    before the vote, and our kernels, which can be held back, make all writes behind it.
    """
    if program.early or program.checked:
        return False
    meetings = [k for k, node in enumerate(program.nodes) if node.op in COLLECTIVES]
    late = program.nodes[meetings[-1] + 1 :] if meetings else ()
    sums = all(_is_dense_sum(program.nodes[k]) for k in meetings)
    ours = all(node.kernel == "cuda" for node in late if program.changed_by(node))
    on_gpus = not any(node.kernel in ON_HOST for node in program.nodes)
    return bool(meetings) and sums and ours and on_gpus


def _is_dense_sum(node: NodeRecord) -> bool:
    return node.op == ALL_REDUCE and bool(node.inputs.get("X")) and "Step" not in node.inputs
