"""ParameterServer: answers the messages of trainers, however they reach it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.program.program import Program
from ...strategies.current import current_config
from ...strategies.errors import (
    EnforceNotMet,
    InvalidState,
    InvalidValue,
    NotFound,
    TrainerLost,
    Unsupported,
    first_of,
    nearest,
)
from ..feed.scope import Scope
from ..host.deadline import Deadline
from ..rpc import messages
from ..rpc.answers import refusal_of
from .state import Saver, ServerState
from .steps import AsyncSteps, Steps, SyncSteps
from .updates import check_rows

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig

Array = np.ndarray[Any, Any]


class ParameterServer(messages.Service):
    """A :class:`Service`: parameters in a scope, updated by the blocks of a server's program.

    ``saver`` writes arrays by name into a folder, for trainers that ask for it. ``config``: deadlines, the
    bound of staleness, and what happens when a trainer is lost; default: the configuration in force.

    Raises:
        InvalidValue: the program is no server's, or the bound cannot be kept.
        NotInitialized: the server's startup program was not run in the scope.
    """

    def __init__(
        self,
        program: Program,
        scope: Scope,
        config: ClusterConfig | None = None,
        saver: Saver | None = None,
    ) -> None:
        self.program, self.scope = program, scope
        self.state = ServerState(program, scope, config if config is not None else current_config())
        self.steps: Steps = (SyncSteps if self.state.parts.sync else AsyncSteps)(self.state)
        self._saver = saver
        self._handlers: dict[type[Any], Callable[[Any], messages.Answer]] = {
            messages.Hello: self._hello,
            messages.Push: self._push,
            messages.Barrier: self._barrier,
            messages.Pull: self._pull,
            messages.Lookup: self._lookup,
            messages.Save: self._save,
            messages.Goodbye: self._goodbye,
            messages.Ask: self._ask,
            messages.Together: self._together,
        }

    @property
    def endpoint(self) -> str:
        return self.state.endpoint

    def __repr__(self) -> str:
        mode = "sync" if self.state.parts.sync else "async"
        return f"<ParameterServer at {self.endpoint}, {mode}, {len(self.state.trainers)} trainers>"

    # -- the service ----------------------------------------------------------------------------

    def handle(self, message: messages.Message) -> messages.Answer:
        try:
            return self._handle(message)
        finally:
            self._keep_lent(message)

    def _handle(self, message: messages.Message) -> messages.Answer:
        try:
            handler = self._handlers.get(type(message))
            if handler is None:
                raise Unsupported(f"a parameter server does not know {type(message).__name__}.")
            return handler(message)
        except EnforceNotMet as error:
            return refusal_of(error)

    def _keep_lent(self, message: messages.Message) -> None:
        """Copy pushes that lie in memory of their trainer and are not applied: it will write there again."""
        pushes = [part for part in messages.parts_of(message) if isinstance(part, messages.Push)]
        if not pushes:
            return
        with self.state.changed:
            for push in pushes:
                progress = self.state.by_id.get(push.trainer)
                if progress is not None and push.name in progress.pushed:
                    self.state.updates.keep(push.name)

    @property
    def published(self) -> Sequence[str]:
        """Names of the values that trainers may read where they lie: a push must come before they change."""
        parts = self.state.parts
        tables = {gradient.param for gradient in parts.gradients.values() if gradient.rows}
        return [name for name in parts.params if name not in tables] if parts.sync else []

    def destination(
        self,
        trainer: int,
        number: int,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        lent: Array | None = None,
    ) -> Array | None:
        gradient = self.state.parts.by_pushed.get(name)
        if (
            gradient is None
            or gradient.rows
            or trainer not in self.state.by_id
            or self.state.failure
        ):
            return None
        updates = self.state.updates
        if updates.memory(name).shape != shape or updates.memory(name).dtype != np.dtype(dtype):
            return None
        with self.state.changed:
            if not self.steps.takes_alone(self.state.by_id[trainer], number, name):
                return None
            return updates.place(name, lent)

    def lost(self, trainer: int, reason: str) -> None:
        with self.state.changed:
            progress = self.state.by_id.get(trainer)
            if progress is None or not progress.live:
                return
            step = progress.number + 1
            text = f"trainer {trainer} of parameter server {self.endpoint} was lost in step {step}: {reason}"
            if self.state.overdue:
                text += f" A trainer was told before: {self.state.overdue}"
            progress.lost, progress.computing = reason or "lost", False
            if self.state.config.lost_trainer == "stop":
                self.state.fail(
                    TrainerLost(
                        f"{text} ClusterConfig(lost_trainer='continue') goes on without it."
                    )
                )
            else:
                self.state.attempt(self.steps.left)
            self.state.changed.notify_all()

    def snapshot(self) -> messages.Snapshot:
        with self.state.changed:
            names = [n for n in sorted(self.state.parts.lasting | {*self.state.parts.counters})]
            arrays = {name: self.state.updates.memory(name).copy() for name in names}
            trainers = {str(p.id): p.lasting() for p in self.state.trainers}
            return messages.Snapshot(arrays, {"applied": self.steps.applied, "trainers": trainers})

    def restore(self, snapshot: messages.Snapshot) -> None:
        """Go back to a state; trainers go on from the step that each of them has reached.

        Raises:
            InvalidValue: the snapshot is of another program.
        """
        with self.state.changed:
            names = self.state.parts.lasting | {*self.state.parts.counters}
            if set(snapshot.arrays) != names:
                other = sorted(names.symmetric_difference(snapshot.arrays))
                raise InvalidValue(
                    f"the snapshot is of another server's program than {self.endpoint}'s: they differ in "
                    f"{first_of(map(repr, other))}."
                )
            for name, array in snapshot.arrays.items():
                self.state.tensor(name).set(array)
            for progress in self.state.trainers:
                progress.restore(snapshot.counters["trainers"].get(str(progress.id), {}))
            self.steps.restored(int(snapshot.counters["applied"]))
            self.state.changed.notify_all()

    def wait(self, within: float) -> bool:
        deadline = Deadline(within)
        with self.state.changed:
            while self.state.failure is None and not self.state.ended:
                self.state.refuse_absence()
                if deadline.over:
                    return False
                self.state.changed.wait(deadline.slice_s)
            if self.state.failure is not None:
                raise self.state.failure
            return True

    def stop(self, reason: str) -> None:
        with self.state.changed:
            self.state.fail(InvalidState(f"parameter server {self.endpoint} was stopped: {reason}"))

    # -- messages -------------------------------------------------------------------------------

    def _together(self, message: messages.Together) -> messages.Answer:
        answer: messages.Answer = messages.Taken()
        for progress in message.messages:
            answer = self._handle(progress)
            if isinstance(answer, messages.Refused):
                break
        return answer

    def _hello(self, message: messages.Hello) -> messages.Answer:
        with self.state.changed:
            progress = self.state.by_id.get(message.trainer)
            if progress is not None and self.state.failure is None:
                progress.lost = ""
            progress = self.state.trainer(message.trainer)
            if refusal := self._refusal(message):
                self.state.refusals[message.trainer] = refusal
                raise InvalidValue(refusal)
            progress.joined, progress.finished = True, False
            if not progress.arrived:
                progress.pushed.clear()
            self.state.changed.notify_all()
            return messages.Welcome(self.steps.begins_at(progress))

    def _refusal(self, message: messages.Hello) -> str:
        """Return why a trainer cannot join (empty: it can)."""
        count = len(self.state.trainers)
        if message.trainers not in (0, count):
            return (
                f"trainer {message.trainer} was transpiled for {message.trainers} trainers, parameter "
                f"server {self.endpoint} for {count}. Use the same trainers= everywhere."
            )
        if message.digest and message.digest not in self.state.parts.digests:
            return (
                f"trainer {message.trainer} has another program than parameter server {self.endpoint}: "
                f"what it receives is not what the server holds. Transpile the same program, with the same "
                f"pservers=, trainers= and config, on all of them."
            )
        return ""

    def _push(self, message: messages.Push) -> messages.Answer:
        if message.name in self.state.parts.counters:
            with self.state.changed:
                self.state.attempt(
                    lambda: self.steps.count(self.state.trainer(message.trainer), message)
                )
            return messages.Taken()
        gradient = self.state.parts.by_pushed.get(message.name)
        if gradient is None:
            raise NotFound(
                f"parameter server {self.endpoint} takes no {message.name!r} "
                f"(trainer {message.trainer}, step {message.number})."
                f"{nearest(message.name, self.state.parts.by_pushed)} It was transpiled with "
                f"sync_mode={self.state.parts.sync}: give all roles the same program, sync_mode= and config."
            )
        self.state.updates.check(message, gradient)
        with self.state.changed:
            progress = self.state.trainer(message.trainer)
            self.state.counts["pushes"] += 1
            self.state.counts["rows"] += 0 if message.rows is None else len(message.rows)
            if not self.steps.push(progress, message, gradient):
                self.state.counts["repeated"] += 1
        return messages.Taken()

    def _barrier(self, message: messages.Barrier) -> messages.Answer:
        with self.state.changed:
            progress = self.state.trainer(message.trainer)
            if message.kind == "send":
                self.steps.sent(progress, message.number)
                self.state.changed.notify_all()
            elif message.kind == "begin":
                self.steps.begin(progress, message.number)
            elif message.kind != "fetch":
                raise InvalidValue(f"there is no barrier {message.kind!r}.")
        return messages.Taken()

    def _pull(self, message: messages.Pull) -> messages.Answer:
        for name in message.names:
            if name not in self.state.parts.params and name not in self.state.parts.shared_rows:
                raise NotFound(
                    f"parameter server {self.endpoint} has no {name!r} "
                    f"(trainer {message.trainer}).{nearest(name, self.state.parts.params)}"
                )
        with self.state.changed:
            return messages.Arrays(self.steps.pull(self.state.trainer(message.trainer), message))

    def _lookup(self, message: messages.Lookup) -> messages.Answer:
        tables = self.state.parts.readable
        if message.table not in tables:
            raise NotFound(
                f"parameter server {self.endpoint} has no table {message.table!r}."
                f"{nearest(message.table, tables)}"
            )
        what = f"trainer {message.trainer} looks up {message.table!r} in step {message.number}"
        with self.state.changed:
            self.steps.look(self.state.trainer(message.trainer), message.number)
            table = self.state.updates.memory(tables[message.table])
            check_rows(what, message.ids, len(table))
            return messages.Arrays({message.table: table[message.ids]})

    def _save(self, message: messages.Save) -> messages.Answer:
        if self._saver is None:
            raise Unsupported(f"parameter server {self.endpoint} has nothing to write files with.")
        with self.state.changed:
            names = message.names or tuple(sorted(self.state.parts.lasting))
            unknown = [name for name in names if name not in self.state.parts.lasting]
            if unknown:
                raise NotFound(f"parameter server {self.endpoint} has no {unknown[0]!r} to save.")
            self._saver(message.folder, {name: self.state.updates.memory(name) for name in names})
        return messages.Taken()

    def _goodbye(self, message: messages.Goodbye) -> messages.Answer:
        with self.state.changed:
            progress = self.state.by_id.get(message.trainer)
            if progress is not None and progress.live:
                progress.finished, progress.computing = True, False
                if self.state.failure is None:
                    self.state.attempt(self.steps.left)
            self.state.changed.notify_all()
        return messages.Taken()

    def _ask(self, message: messages.Ask) -> messages.Answer:
        with self.state.changed:
            trainers = {progress.id: progress.facts() for progress in self.state.trainers}
            return messages.Report(
                {
                    "endpoint": self.endpoint,
                    "mode": "sync" if self.state.parts.sync else "async",
                    "steps": self.steps.applied,
                    "lost_steps": self.steps.lost_steps,
                    "compilations": self.state.updates.compilations,
                    **self.state.counts,
                    "trainers": trainers,
                }
            )
