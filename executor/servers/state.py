"""What a server knows: its parameters, how far trainers are, whether it goes on; and how callers wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.program.program import Program
from ...graph.transpiler.server_program import ServerProgram
from ...strategies.errors import EnforceNotMet, ExecutionError, InvalidValue, TrainerLost
from ..device.tensor import Tensor
from ..feed.scope import Scope
from ..host.deadline import Deadline, Stopwatch, longest_look
from .progress import Progress
from .updates import Updates

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig

Saver = Callable[[str, Mapping[str, np.ndarray[Any, Any]]], None]  # a folder, arrays by name


class ServerState:
    """The state of a server. ``changed`` is its lock, and tells callers that something did.

    ``failure``: why it does not go on. ``counts``: how many pushes came, and rows in them.

    Raises:
        InvalidValue: the program is no server's, or the bound of staleness cannot be kept.
        NotInitialized: the server's startup program was not run in the scope.
    """

    def __init__(self, program: Program, scope: Scope, config: ClusterConfig) -> None:
        self.config = config
        self.parts = ServerProgram(program)
        self.endpoint = self.parts.endpoint
        self.updates = Updates(self.parts, scope)
        self.by_id = {i: Progress(i) for i in range(self.parts.trainers)}
        self.failure: EnforceNotMet | None = None
        self.changed = threading.Condition()
        self.counts = {"pushes": 0, "repeated": 0, "rows": 0}
        self.refusals: dict[int, str] = {}  # of trainers that wanted to join
        self.overdue = ""  # what the last trainer was told that waited for others in vain
        self._idle = Deadline(config.start_deadline_s)
        self._check_bound()

    def _check_bound(self) -> None:
        bound, others = self.config.staleness_bound, len(self.by_id) - 1
        if bound is not None and bound < others and not self.parts.sync:
            raise InvalidValue(
                f"ClusterConfig.staleness_bound is {bound}, and {len(self.by_id)} trainers that work at the "
                f"same time are {others} steps apart. Set it to {others} or more, or train in sync mode."
            )

    @property
    def trainers(self) -> Sequence[Progress]:
        """All trainers, in order."""
        return list(self.by_id.values())

    @property
    def ended(self) -> bool:
        """Whether no trainer will ask any more."""
        return not any(progress.live for progress in self.trainers)

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of a name in the scope."""
        return self.updates.tensor(name)

    # With the lock:

    def trainer(self, number: int) -> Progress:
        """Return a trainer that may ask, or say why it may not.

        Raises:
            InvalidValue: there is no such trainer.
            TrainerLost: the server goes on without it, or has ended because of another.
        """
        if self.failure is not None:
            raise self.failure
        if number not in self.by_id:
            raise InvalidValue(
                f"trainer {number} is unknown to parameter server {self.endpoint}, which was transpiled for "
                f"trainers 0 to {len(self.by_id) - 1}. Give each a trainer_id below the number of trainers."
            )
        progress = self.by_id[number]
        if progress.lost:
            raise TrainerLost(
                f"parameter server {self.endpoint} goes on without trainer {number} ({progress.lost}); it has "
                f"to join again: run its startup program."
            )
        return progress

    def fail(self, error: EnforceNotMet) -> None:
        """End the server, and tell all callers why."""
        self.failure = self.failure or error
        self.changed.notify_all()

    def attempt(self, call: Callable[[], None]) -> None:
        """Call what updates; if it fails, end the server: some variables may be updated, others not."""
        try:
            call()
        except Exception as error:
            kind = type(error) if isinstance(error, EnforceNotMet) else ExecutionError
            failure = kind(f"parameter server {self.endpoint}: {error}")
            self.fail(failure)
            raise failure from error

    def until(
        self, ready: Callable[[], bool], waited: Callable[[], list[Progress]], what: str
    ) -> None:
        """Wait until something holds that trainers bring about.

        Raises:
            TrainerLost: a trainer did not come, or not in time; names those ``waited`` for.
        """
        config = self.config
        watch = Stopwatch(longest_look(min(config.start_deadline_s, config.step_deadline_s)))
        while not ready():
            if self.failure is not None:
                raise self.failure
            late = waited()
            never = any(not progress.joined for progress in late)
            within = config.start_deadline_s if never else config.step_deadline_s
            remaining_s = within - watch.look()
            if remaining_s <= 0:
                self.overdue = f"{what}: {self._absence(late, within)}"
                raise TrainerLost(self.overdue)
            self.changed.wait(min(remaining_s, watch.longest))
        if self.failure is not None:
            raise self.failure
        self.overdue = ""

    def refuse_absence(self) -> None:
        """End if no trainer is at work, and those that were awaited did not come in time."""
        within = self._idle.within
        if any(progress.live and progress.joined for progress in self.trainers):
            self._idle = Deadline(within)
        elif self._idle.over:
            absent = self._absence(
                [progress for progress in self.trainers if progress.live], within
            )
            self.fail(TrainerLost(f"parameter server {self.endpoint}: {absent}"))

    def _absence(self, late: list[Progress], within: float) -> str:
        """Return who was waited for in vain, and what to do."""
        names = ", ".join(str(progress.id) for progress in late) or "nobody"
        if all(progress.joined for progress in late):
            return (
                f"trainer {names} sent nothing within {within:g} s (ClusterConfig.step_deadline_s)."
            )
        text = (
            f"trainer {names} did not join, or sent nothing within {within:g} s "
            f"(ClusterConfig.start_deadline_s)."
        )
        refusals = [self.refusals[p.id] for p in late if p.id in self.refusals]
        if refusals:
            return f"{text} It was refused: {refusals[0]}"
        return (
            f"{text} Start every trainer, each with a trainer_id of its own (PADDLE_TRAINER_ID), the same "
            f"endpoints of servers, and in the same Ray cluster (RAY_ADDRESS)."
        )
