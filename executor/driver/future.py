"""StepFuture: the result of a step that may still be in flight."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from ..feed.fetches import Fetches, Joined
from ..feed.splitting import Portions
from ..gang.delivery import Request
from ..gang.gang import Gang
from .timeline import Spans

if TYPE_CHECKING:
    from .variant import CompiledVariant


class InFlightSteps:
    """Steps under way: their feeds (by place, once or for each step) and the request that was sent."""

    def __init__(self, batches: list[Portions], fetches: Fetches, iterations: int) -> None:
        self.batches, self.fetches, self.iterations = batches, fetches, iterations
        self.variant: CompiledVariant | None = None
        self.request: Request | None = None

    @property
    def open(self) -> bool:
        """Whether steps have yet to happen, as far as is known."""
        request = self.request
        return request is not None and request.failed is None and request.fetched is None

    @property
    def steps(self) -> int:
        """Steps that happened, or are under way."""
        request = self.request
        if request is None:
            return 0
        return request.done if request.settled else request.iterations


class Finisher(Protocol):
    """What a future needs of the run that began its steps."""

    gang: Gang
    spans: Spans

    def finish(self, flight: InFlightSteps) -> list[Joined]:
        """Return what steps that were begun fetch; those begun before them finish first."""


class StepFuture:
    """Steps that may still be under way."""

    def __init__(self, run: Finisher, flight: InFlightSteps) -> None:
        self._run, self._flight = run, flight
        self._result: list[Any] | None = None

    def __repr__(self) -> str:
        fetched = ", ".join(self._flight.fetches.names) or "nothing"
        return f"<StepFuture: {'done' if self.done() else 'under way'}, fetches {fetched}>"

    def done(self) -> bool:
        """Tell whether :meth:`result` returns, or raises, at once. Looks; does not wait."""
        request = self._flight.request
        return self._result is not None or request is None or self._run.gang.poll(request)

    def result(self) -> list[Any]:
        """Return the last step's fetches, once it and all steps before it are done.

        Raises:
            RowlockError: what ``Executor.run`` raises.
        """
        if self._result is None:
            joined, began = self._run.finish(self._flight), time.perf_counter()
            self._result = self._flight.fetches.of(joined)
            if self._run.spans.on and self._flight.request is not None:
                self._run.spans.note("join", self._flight.request.step, began)
        return self._result
