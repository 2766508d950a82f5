"""When gradients are applied: all of a step at once (sync), or each as it comes (async)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ...graph.transpiler.server_program import Gradient, of_trainer
from ...graph.transpiler.sparse_sends import ROWS
from ...strategies.errors import InvalidState, InvalidValue, first_of
from ...strategies.log import log
from ..rpc.messages import Pull, Push
from .progress import Progress, room
from .state import ServerState

Array = np.ndarray[Any, Any]
_LISTS = 64  # of changed rows, before they are merged


class Steps(ABC):
    """The order of pushes and pulls. Every method is called with the server's lock.

    ``applied`` counts steps, in async mode those of all trainers. ``lost_steps``: those undone by a restart.
    """

    def __init__(self, state: ServerState) -> None:
        self.state = state
        self.applied = 0
        self.lost_steps = 0

    @abstractmethod
    def takes_alone(self, progress: Progress, number: int, name: str) -> bool:
        """Tell whether the memory of a gradient is this push's until its step ends."""

    @abstractmethod
    def begins_at(self, progress: Progress) -> int:
        """Return the number of the step behind which a trainer that joins goes on."""

    @abstractmethod
    def push(self, progress: Progress, push: Push, gradient: Gradient) -> bool:
        """Take a gradient; tell whether it was not taken before."""

    @abstractmethod
    def sent(self, progress: Progress, number: int) -> None:
        """A trainer has pushed all of a step."""

    @abstractmethod
    def pull(self, progress: Progress, pull: Pull) -> dict[str, Array]:
        """Return variables as a trainer's next step reads them."""

    @abstractmethod
    def restored(self, applied: int) -> None:
        """Go on from a snapshot after so many steps."""

    @abstractmethod
    def look(self, progress: Progress, number: int) -> None:
        """Wait until rows are as a trainer's step reads them."""

    def left(self) -> None:
        """A trainer finished, or was lost."""
        self.state.changed.notify_all()

    def begin(self, progress: Progress, number: int) -> None:
        """Wait until a trainer may begin a step."""
        raise InvalidState("a sync server begins steps for all trainers at once.")

    def count(self, progress: Progress, push: Push) -> None:
        """Add to a trainer's counter of steps."""
        raise InvalidState("trainers of a sync server do not count steps: the server does.")


class SyncSteps(Steps):
    """A step is applied once every live trainer has sent it whole: merged, all of it or nothing."""

    def __init__(self, state: ServerState) -> None:
        super().__init__(state)
        self._rows: dict[str, tuple[Array, Array]] = {}  # by the name they were pushed under
        self._reached: dict[int, int] | None = None  # by trainer, after a restart

    def takes_alone(self, progress: Progress, number: int, name: str) -> bool:
        """Each trainer has memory of its own, until it has sent the step."""
        mine = of_trainer(name) in (progress.id, None)
        return (
            mine
            and number == self.applied + 1
            and not progress.arrived
            and name not in progress.pushed
        )

    def begins_at(self, progress: Progress) -> int:
        """All trainers are in one step."""
        return self.applied

    def push(self, progress: Progress, push: Push, gradient: Gradient) -> bool:
        """Keep a gradient until the step is applied."""
        owner = of_trainer(push.name)
        if owner not in (progress.id, None):
            raise InvalidValue(
                f"trainer {progress.id} pushes {push.name!r}, which is trainer {owner}'s."
            )
        self._reach(progress, push.number)
        self._until_applied(push.number - 1)
        if push.number <= self.applied or push.name in progress.pushed or progress.arrived:
            return False
        if push.rows is None:
            self.state.updates.write(push.name, push.values)
        else:
            self._rows[push.name] = (push.rows.copy(), push.values.copy())
        progress.pushed.add(push.name)
        return True

    def sent(self, progress: Progress, number: int) -> None:
        """Apply the step if this trainer was the last."""
        self._reach(progress, number)
        self._until_applied(number - 1)
        if number <= self.applied or progress.arrived:
            return
        due = {
            name for name in self.state.parts.by_pushed if of_trainer(name) in (progress.id, None)
        }
        missing = sorted(due - progress.pushed)
        if missing:
            raise InvalidState(
                f"trainer {progress.id} ends step {number} without {len(missing)} of its {len(due)} gradients "
                f"({first_of(map(repr, missing), 3)}) for parameter server {self.state.endpoint}."
            )
        progress.arrived = True
        self.state.attempt(self.left)

    def left(self) -> None:
        """Apply the step if all trainers that are left have sent it."""
        self._agree()
        live = [progress for progress in self.state.trainers if progress.live]
        if not live or not all(progress.arrived for progress in live):
            return
        here = [progress.id for progress in self.state.trainers if progress.arrived]
        gradients = self.state.parts.gradients
        rows = {
            g.name: [self._rows[n] for n in g.names if n in self._rows]
            for g in gradients.values()
            if g.rows
        }
        updates = self.state.updates
        updates.schedule()
        if gradients:
            updates.update(list(gradients), here, rows)
        self.applied += 1
        self._rows.clear()
        for progress in self.state.trainers:
            if progress.arrived:
                progress.number = self.applied
                progress.staleness.note(0)
            progress.pushed.clear()
            progress.arrived = False
        self.state.changed.notify_all()

    def pull(self, progress: Progress, pull: Pull) -> dict[str, Array]:
        """Wait for the step; the memory itself is returned, for no step is applied before the next push."""
        # Its gradients of the step itself would have come before.
        self._reach(progress, pull.number + 1)
        self._until_applied(pull.number)
        return {name: self.state.updates.memory(name) for name in pull.names}

    def look(self, progress: Progress, number: int) -> None:
        """Wait for the step before: a server that has only tables is asked for nothing else in between."""
        self._reach(progress, number)
        self._until_applied(number - 1)

    def _until_applied(self, number: int) -> None:
        if number <= self.applied:
            return
        what = f"parameter server {self.state.endpoint}, step {self.applied + 1}"
        self.state.until(
            lambda: self.applied >= number,
            lambda: [
                progress
                for progress in self.state.trainers
                if progress.live and not progress.arrived
            ],
            what,
        )

    # -- after a restart ------------------------------------------------------------------------

    def restored(self, applied: int) -> None:
        """Wait for what trainers ask next: it tells how far they had come."""
        self.applied, self._reached = applied, {}
        self._rows.clear()

    def _reach(self, progress: Progress, number: int) -> None:
        """After a restart, find the step that trainers are in: none of them is more than one ahead."""
        if self._reached is None:
            return
        self._reached[progress.id] = max(number, self._reached.get(progress.id, 0))
        self._agree()
        self.state.until(
            lambda: self._reached is None,
            lambda: [
                t for t in self.state.trainers if t.live and t.id not in (self._reached or {})
            ],
            f"parameter server {self.state.endpoint}, restored behind step {self.applied}",
        )

    def _agree(self) -> None:
        reached = self._reached
        if not reached or not all(t.id in reached for t in self.state.trainers if t.live):
            return
        step = max(reached.values()) - 1
        if step > self.applied:
            self.lost_steps += step - self.applied
            log.warning(
                "parameter server %s was restored behind step %d: the updates of steps %d to %d are lost",
                self.state.endpoint,
                self.applied,
                self.applied + 1,
                step,
            )
            self.applied = step
            for progress in self.state.trainers:
                progress.number = step
        self._reached = None
        self.state.changed.notify_all()


class SharedRows:
    """In geo-SGD, which rows of a server's tables others changed since a trainer pulled them last."""

    def __init__(self, state: ServerState) -> None:
        self._state, self._tables = state, state.parts.shared_rows
        self._changed: dict[tuple[int, str], list[Array]] = {}
        # By the number of the pull: one that is heard twice is given them again.
        self._last: dict[tuple[int, str], tuple[int, Array]] = {}

    def note(self, trainer: int, change: str, rows: Array) -> None:
        """Note rows that a trainer changed. Those that join later pull whole tables."""
        if change not in self._tables:
            return
        for other in self._state.trainers:
            if other.id != trainer and other.joined and other.live:
                lists = self._changed.setdefault((other.id, change), [])
                lists.append(np.array(rows))
                if len(lists) > _LISTS:
                    lists[:] = [np.unique(np.concatenate(lists))]

    def note_all(self) -> None:
        """Note that every row may be another than trainers know."""
        for change, table in self._tables.items():
            rows = np.arange(len(self._state.updates.memory(table)))
            self._changed |= {(other.id, change): [rows] for other in self._state.trainers}

    def pulled(self, pull: Pull) -> dict[str, dict[str, Array]]:
        """Return, by the changes that are pulled, tables' rows and their numbers."""
        arrays = {}
        for change, table in self._tables.items():
            key = pull.trainer, change
            if table in pull.names:
                self._changed.pop(key, None)
            if change not in pull.names:
                continue
            number, before = self._last.get(key, (pull.number, np.zeros(0, np.int64)))
            lists = self._changed.pop(key, []) + [before] * (number == pull.number)
            rows = np.unique(np.concatenate([np.zeros(0, np.int64), *lists]))
            self._last[key] = pull.number, rows
            values = self._state.updates.memory(table)[rows]
            arrays[change] = {change: values, change + ROWS: rows}
        return arrays


class AsyncSteps(Steps):
    """A gradient is applied when it comes."""

    def __init__(self, state: ServerState) -> None:
        super().__init__(state)
        self._scheduled = False  # the rate was computed that the next gradient is applied with
        self._shared_rows = SharedRows(state)

    def takes_alone(self, progress: Progress, number: int, name: str) -> bool:
        """Trainers share the memory of a gradient."""
        return False

    def begins_at(self, progress: Progress) -> int:
        """Each trainer counts its own steps."""
        return progress.number

    def push(self, progress: Progress, push: Push, gradient: Gradient) -> bool:
        """Update by a gradient."""
        if push.number <= progress.taken.get(push.name, 0):
            return False
        updates, rows = self.state.updates, {}
        if push.rows is None:
            updates.write(push.name, push.values)
        else:
            rows = {gradient.name: [(push.rows, push.values)]}
        if not self._scheduled:
            self.state.attempt(self._schedule)
        self.state.attempt(lambda: updates.update([gradient.name], (), rows, progress.id))
        if push.rows is not None:
            self._shared_rows.note(push.trainer, push.name, push.rows)
        progress.taken[push.name] = push.number
        return True

    def count(self, progress: Progress, push: Push) -> None:
        """Add to a trainer's counter, and compute the learning rate of all steps so far."""
        if push.number <= progress.taken.get(push.name, 0):
            return
        counter = self.state.updates.memory(push.name)
        counter += push.values.astype(counter.dtype).reshape(counter.shape)
        self._schedule()
        progress.taken[push.name] = push.number

    def _schedule(self) -> None:
        self.state.updates.schedule()
        self._scheduled = True

    def sent(self, progress: Progress, number: int) -> None:
        """Count the step."""
        if number <= progress.number:
            return
        if not self.state.parts.counters:
            self.state.attempt(self._schedule)
        progress.end(number, self.state.trainers)
        self.applied += 1

    def pull(self, progress: Progress, pull: Pull) -> dict[str, Array]:
        """Return copies: others' gradients may come at any time."""
        # With a bound it began before: another server may have sent its values before a step came there.
        if self.state.config.staleness_bound is None or not progress.computing:
            progress.begin()
        updates = self.state.updates
        tables = self._shared_rows.pulled(pull)
        arrays: dict[str, Array] = {}
        for name in pull.names:
            if name in tables:
                arrays |= tables[name]
                continue
            arrays[name] = updates.memory(name).copy()
            backups = self.state.parts.backups.get(name, ())
            if backups:
                np.copyto(updates.memory(backups[progress.id]), arrays[name])
        return arrays

    def look(self, progress: Progress, number: int) -> None:
        """Rows are as they are now."""

    def begin(self, progress: Progress, number: int) -> None:
        """Wait until no gradients get staler than the bound."""
        bound = self.state.config.staleness_bound
        if bound is None or progress.computing:
            return
        self.state.until(
            lambda: room(self.state.trainers, bound),
            lambda: [t for t in self.state.trainers if t.live and t.computing],
            f"parameter server {self.state.endpoint}, trainer {progress.id} before step {number} "
            f"(ClusterConfig.staleness_bound={bound})",
        )
        progress.begin()

    def restored(self, applied: int) -> None:
        """Go on: what was applied since the snapshot is lost, and what comes next is applied."""
        self.applied = applied
        self._scheduled = applied > 0  # a snapshot has the rate
        self._shared_rows.note_all()
