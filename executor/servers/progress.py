"""How far each trainer is, as a server sees it, and how stale its gradients were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Staleness:
    """Steps of others that were applied between what a trainer computed on and its own gradients."""

    steps: int = 0
    total: int = 0
    last: int = 0
    most: int = 0

    def note(self, applied: int) -> None:
        """Count a step."""
        self.steps, self.total = self.steps + 1, self.total + applied
        self.last, self.most = applied, max(self.most, applied)

    def facts(self) -> dict[str, Any]:
        """Return the last, the largest and the mean staleness."""
        mean = self.total / self.steps if self.steps else 0.0
        return {"steps": self.steps, "last": self.last, "max": self.most, "mean": mean}


@dataclass
class Progress:
    """One trainer.

    ``number``: its last step that was applied. ``pushed``: in sync mode, what came of the step under way;
    ``arrived``: that it came whole. ``taken``: else, by name the number of the last step that pushed it.
    ``computing``: it has what it computes the next step on; ``behind``: steps of others applied since.
    """

    id: int
    joined: bool = False
    finished: bool = False
    lost: str = ""
    number: int = 0
    pushed: set[str] = field(default_factory=set)
    arrived: bool = False
    taken: dict[str, int] = field(default_factory=dict)
    computing: bool = False
    behind: int = 0
    staleness: Staleness = field(default_factory=Staleness)

    @property
    def live(self) -> bool:
        """Whether others wait for it."""
        return not (self.finished or self.lost)

    def facts(self) -> dict[str, Any]:
        """Return what a report tells of it."""
        return {
            "steps": self.number,
            "joined": self.joined,
            "finished": self.finished,
            "lost": self.lost,
            "staleness": self.staleness.facts(),
        }

    def lasting(self) -> dict[str, Any]:
        """Return what a snapshot has of it."""
        taken = dict(self.taken)
        return {"number": self.number, "taken": taken, "finished": self.finished, "lost": self.lost}

    def restore(self, past: Mapping[str, Any]) -> None:
        """Go back to what :meth:`lasting` returned."""
        self.number, self.taken = int(past.get("number", 0)), dict(past.get("taken", {}))
        self.finished, self.lost = bool(past.get("finished")), str(past.get("lost", ""))
        self.pushed, self.arrived, self.computing = set(), False, False

    def begin(self) -> None:
        """Note that it has what it computes its next step on."""
        self.computing, self.behind = True, 0

    def end(self, number: int, others: Iterable[Progress]) -> None:
        """Note that a step of it was applied."""
        self.number = number
        self.staleness.note(self.behind)
        self.computing, self.behind = False, 0
        for other in others:
            if other is not self:
                other.behind += 1


def room(progress: Iterable[Progress], bound: int) -> bool:
    """Tell whether one more trainer may begin a step, so that no gradients will be staler than a bound.

    A place is kept for each step under way, which may end before any other: then no two wait for each other.
    """
    computing = [trainer for trainer in progress if trainer.live and trainer.computing]
    return all(trainer.behind + len(computing) <= bound for trainer in computing)
