"""UndecidedSteps: steps on which GPUs have voted, until the host has seen how."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from ...strategies.errors import CollectiveAborted
from ..cuda.runtime import Event
from ..host.deadline import Deadline
from ..plan.group import CollectiveGroup, When

_PAUSE_S = 5e-5


class UndecidedStep:
    """One step, the ``number``-th that the GPUs vote on; ``error`` says why it did not happen."""

    def __init__(self, steps: UndecidedSteps, number: int, event: Event, tag: str) -> None:
        self._steps = steps
        self.number, self.event, self.tag = number, event, tag
        self.deadline: Deadline | None = None  # from when on it is the next one
        self.over = False
        self.error: Exception | None = None

    def here(self) -> bool:
        """Tell, without waiting, whether it has happened.

        Raises:
            CollectiveError: it never will: the GPUs did not come to its end in time, or NCCL failed.
            CollectiveAborted: it never will: another replica gave up.
        """
        self._steps.look(self)
        if self.error is not None:
            raise self.error
        return self.over

    def wait(self) -> None:
        """Wait until it has happened; raise what :meth:`here` does."""
        while not self.here():
            time.sleep(_PAUSE_S)


class UndecidedSteps:
    """The steps of one ``group`` in their order; ``counted`` is called for each that has happened.

    ``failed`` returns what this rank's kernels found wrong, if it is that.
    """

    def __init__(
        self,
        within: float,
        counted: Callable[[], None],
        failed: Callable[[], Exception | None],
    ) -> None:
        self._within, self._counted, self._failed = within, counted, failed
        self._steps: deque[UndecidedStep] = deque()
        self._group: CollectiveGroup | None = None

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, group: CollectiveGroup, event: Event, tag: str) -> UndecidedStep:
        """Note a step that was put on the compute stream; ``event`` is behind its vote."""
        assert group.device_vote is not None
        self._group = group
        group.device_vote.launched += 1
        step = UndecidedStep(self, group.device_vote.launched, event, tag)
        self._steps.append(step)
        return step

    def leave(self, most: int) -> None:
        """Wait until at most ``most`` steps are undecided; raise what :meth:`UndecidedStep.here` does."""
        while len(self._steps) > most:
            self._steps[0].wait()

    def settle(self) -> None:
        """Wait until all steps are decided; errors are raised later, to what asks for a step's results."""
        while self._steps:
            self.look(self._steps[-1])
            time.sleep(_PAUSE_S if self._steps else 0)

    def look(self, last: UndecidedStep) -> None:
        """Note, without waiting, which steps up to a given one have happened."""
        while self._steps and not last.over:
            step = self._steps[0]
            error = None
            try:
                if not self._passed(step):
                    return
            except Exception as reason:
                error = reason
            if not self._happened(step, ended=error is not None):
                self._give_up(error or self._failed() or self._abandoned(step))
                return
            self._steps.popleft()
            step.over = True
            self._counted()

    def _passed(self, step: UndecidedStep) -> bool:
        assert self._group is not None
        step.deadline = step.deadline or Deadline(self._within)
        return self._group.passed(step.event, step.deadline, When(self._within, step.tag))

    def _happened(self, step: UndecidedStep, ended: bool) -> bool:
        """Tell whether the GPU counted a step; ``ended``: it may still be at it, and its collectives end."""
        assert self._group is not None and self._group.device_vote is not None
        deadline = Deadline(self._within)
        try:
            while ended and not step.event.done() and not deadline.over:
                time.sleep(_PAUSE_S)
        except Exception:  # the GPU's own, which was raised before
            return False
        return self._group.device_vote.reached >= step.number

    def _abandoned(self, step: UndecidedStep) -> Exception:
        assert self._group is not None
        reason = self._group.aborted or "another replica gave the step up"
        return CollectiveAborted(f"{step.tag} was aborted: {reason}")

    def _give_up(self, error: Exception) -> None:
        while self._steps:
            self._steps.popleft().error = error
