"""Dependencies: what each instruction waits for, and how long temporaries last if some run side by side."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.lowering.memory import MemoryPlan
from ...graph.ops.collective import COLLECTIVES
from .memory import ValueMemory
from .part import RankPart
from .run import dependencies, last_concurrent


class Dependencies:
    """The order among one rank's instructions: one for each node.

    Before the last collective stands one more if something is fetched early.
    """

    def __init__(self, part: RankPart, memory: ValueMemory) -> None:
        self._part, self._memory = part, memory
        self._early = list(part.early_fetches().values())

    def needs(self) -> list[set[int]]:
        """Return, per instruction of the plan, those that it must wait for (see :func:`dependencies`)."""
        part, storages = self._part, self._memory.storages
        reads: list[list[int]] = []
        writes: list[list[int]] = []
        chained: list[int] = []
        fetched = storages({"": self._early})
        for node in part.nodes:
            if node is part.vote_at and self._early:
                reads.append(fetched)
                writes.append([])
                chained.append(len(writes) - 1)  # it must precede the collective, like another one
            if node.op in COLLECTIVES:
                chained.append(len(writes))
            reads.append(storages(node.inputs))
            writes.append(storages(node.outputs))
        needs = dependencies(reads, writes, chained)
        if part.vote_at is not None:
            vote = chained[-1]
            # Who comes to the vote can make its writes alone: all that they are made of is there.
            needs[vote].update(range(vote))
            for late in range(vote + 1, len(needs)):
                needs[late].add(vote)
        return needs

    def spread(self, lanes: Sequence[int]) -> MemoryPlan:
        """Return the arena for several lanes: storages last until all that follows waits for their users."""
        at = self._instruction_numbers()
        last = len(lanes)
        users: dict[int, int] = {}
        spans: dict[int, tuple[int, int]] = {}
        planned = self._memory.arena.plan
        for k, node in enumerate(self._part.nodes):
            for i in node.touches():
                if i in planned.roots:
                    root = planned.roots[i]
                    users[root] = users.get(root, 0) | 1 << at[k]
        after = last_concurrent(self.needs(), lanes)
        for root, (first, final) in planned.spans.items():
            begin = at[first] if first >= 0 else first
            end = last if final == planned.usage.end else at[final] if final >= 0 else final
            spans[root] = (begin, max(end, after(users.get(root, 0))))
        return planned.spread(spans)

    def _instruction_numbers(self) -> list[int]:
        """Return the number of each node's instruction."""
        number, numbers = 0, []
        for node in self._part.nodes:
            number += bool(node is self._part.vote_at and self._early)
            numbers.append(number)
            number += 1
        return numbers
