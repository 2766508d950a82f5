"""TracedStep: when the instructions of a step ran. A replica keeps it, and sends it to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .overlap import communication_lane
from .plan import Plan
from .run import Event

STEPS_KEPT = 8  # of each program


class TracedStep(NamedTuple):
    """A step on a replica: when it began by its clock, the lane for communication (-1: none), its events."""

    step: int
    began: float
    communication: int
    events: Sequence[Event]

    @classmethod
    def of(cls, step: int, plan: Plan) -> TracedStep:
        """Return the step that a plan ran last."""
        lane = communication_lane(plan)
        events = [event for event in plan.trace or () if event is not None]
        return cls(step, plan.started, -1 if lane is None else lane, events)

    def plain(self) -> list[Any]:
        """Return it as plain data."""
        rows = [
            [e.op, e.writes, e.lane, e.began, e.ended, e.where, e.waited, e.busy]
            for e in self.events
        ]
        return [self.step, self.began, self.communication, rows]

    @classmethod
    def from_plain(cls, data: Sequence[Any]) -> TracedStep:
        """Undo :meth:`plain`."""
        step, began, lane, rows = data
        return cls(
            step, began, lane, [Event(op, tuple(writes), *more) for op, writes, *more in rows]
        )
