"""A small parameter server for tests of how messages travel: sums gradients of a step, subtracts them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from rowlock.executor.rpc.messages import (
    Answer,
    Arrays,
    Ask,
    Barrier,
    Goodbye,
    Hello,
    Lookup,
    Message,
    Pull,
    Push,
    Refused,
    Report,
    Snapshot,
    Taken,
    Together,
    Welcome,
)
from rowlock.strategies.errors import TrainerLost


class Summing:
    """Synchronous: a step is applied once all trainers' barriers came. ``digest`` is of its program."""

    def __init__(
        self, trainers: int, values: Mapping[str, np.ndarray], digest: str = "same"
    ) -> None:
        self.trainers, self.digest = trainers, digest
        self.values = {name: np.array(value) for name, value in values.items()}
        self.applied = 0
        self.received: list[tuple[int, int, str]] = []
        self.places: dict[tuple[int, str], np.ndarray] = {}
        self.direct = 0  # pushes that were read into their places
        self.lost_trainers: dict[int, str] = {}
        self.reason = ""
        self._pushed: dict[tuple[int, int, str], np.ndarray] = {}
        self._barriers: set[tuple[int, int]] = set()
        self._leavers: set[int] = set()
        self._changed = threading.Condition()

    def handle(self, message: Message) -> Answer:
        if isinstance(message, Together):
            answer: Answer = Taken()
            for part in message.messages:
                answer = self.handle(part)
            return answer
        with self._changed:
            if self.reason:
                return Refused("TrainerLost", self.reason)
            answer = self._handle(message)
            self._changed.notify_all()
            return answer

    def _handle(self, message: Message) -> Answer:
        if isinstance(message, Hello):
            if message.digest != self.digest:
                return Refused("StateMismatch", f"trainer {message.trainer} has another program")
            return Welcome(self.applied)
        if isinstance(message, Push):
            return self._push(message)
        if isinstance(message, Barrier):
            if message.kind == "send" and message.number > self.applied:
                self._barriers.add((message.trainer, message.number))
                self._apply()
        elif isinstance(message, Pull):
            self._wait_for(message.number)
            return Arrays({name: self.values[name] for name in message.names})
        elif isinstance(message, Lookup):
            return Arrays({message.table: self.values[message.table][message.ids]})
        elif isinstance(message, Ask):
            return Report(
                {"applied": self.applied, "received": len(self.received), "direct": self.direct}
            )
        elif isinstance(message, Goodbye):
            self._leavers.add(message.trainer)
        return Taken()

    def _push(self, message: Push) -> Answer:
        key = (message.trainer, message.number, message.name)
        if message.number <= self.applied or key in self._pushed:
            return Taken()
        place = self.places.get((message.trainer, message.name))
        self.direct += place is message.values
        self.received.append(key)
        value = message.values
        if message.rows is not None:
            value = np.zeros((message.height, *message.values.shape[1:]), message.values.dtype)
            np.add.at(value, message.rows, message.values)
        self._pushed[key] = np.array(value)
        return Taken()

    def _apply(self) -> None:
        number = self.applied + 1
        if any((trainer, number) not in self._barriers for trainer in range(self.trainers)):
            return
        for trainer in range(self.trainers):
            for name in self.values:
                change = self._pushed.pop((trainer, number, name), None)
                if change is not None:
                    self.values[name] = self.values[name] - change
        self._barriers = {one for one in self._barriers if one[1] > number}
        self.applied = number

    def _wait_for(self, number: int) -> None:
        done = self._changed.wait_for(lambda: self.applied >= number or self.reason, 60)
        if not done or self.reason:
            raise TrainerLost(self.reason or "the others did not come")

    def destination(
        self,
        trainer: int,
        number: int,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        lent: np.ndarray | None = None,
    ) -> np.ndarray | None:
        if name not in self.values or shape != self.values[name].shape:
            return None
        if lent is not None:
            self.places[trainer, name] = lent
            return lent
        return self.places.setdefault((trainer, name), np.empty(shape, dtype))

    def lost(self, trainer: int, reason: str) -> None:
        with self._changed:
            self.lost_trainers[trainer] = reason
            self.reason = reason
            self._changed.notify_all()

    def snapshot(self) -> Snapshot:
        with self._changed:
            trainers = {str(t): {"number": self.applied} for t in range(self.trainers)}
            arrays = {name: value.copy() for name, value in self.values.items()}
            return Snapshot(arrays, {"applied": self.applied, "trainers": trainers})

    def restore(self, snapshot: Snapshot) -> None:
        self.values = {name: np.array(value) for name, value in snapshot.arrays.items()}
        self.applied = snapshot.counters["applied"]

    def wait(self, within: float) -> bool:
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._leavers) == self.trainers or self.reason, within
            )
            return len(self._leavers) == self.trainers or bool(self.reason)

    def stop(self, reason: str) -> None:
        with self._changed:
            self.reason = self.reason or reason
            self._changed.notify_all()


def train(wire: Any, endpoints: Mapping[str, str], trainer: int, trainers: int, steps: int) -> Any:
    """Push to servers, by parameter, what depends on trainer and step; return the values at the end."""
    for endpoint in set(endpoints.values()):
        wire.call(endpoint, Hello(trainer, trainers, "same"), 60)
    values: dict[str, np.ndarray] = {}
    for step in range(1, steps + 1):
        step_of(wire, endpoints, trainer, step, values)
    for endpoint in set(endpoints.values()):
        wire.call(endpoint, Goodbye(trainer), 60)
    return values


def step_of(
    wire: Any, endpoints: Mapping[str, str], trainer: int, step: int, values: dict[str, np.ndarray]
) -> None:
    """Push, say so, and pull."""
    for name, endpoint in endpoints.items():
        wire.call(endpoint, Push(trainer, step, name, gradient(name, trainer, step)), 60)
    for endpoint in set(endpoints.values()):
        wire.call(endpoint, Barrier(trainer, step, "send"), 60)
    for name, endpoint in endpoints.items():
        answer = wire.call(endpoint, Pull(trainer, step, (name,)), 60)
        values[name] = np.array(answer.by_name[name])


def gradient(name: str, trainer: int, step: int) -> np.ndarray:
    draw = np.random.default_rng([len(name), trainer, step])
    return draw.integers(-4, 5, size_of(name)).astype("f4")


def size_of(name: str) -> tuple[int, ...]:
    return (300, 100) if name.startswith("large") else (7,)


def initial(names: Any) -> dict[str, np.ndarray]:
    return {name: np.zeros(size_of(name), "f4") for name in names}


def expected(names: Any, trainers: int, steps: int) -> dict[str, np.ndarray]:
    """Return what :func:`train` ends with, undisturbed. Whole numbers: any order of adding gives these."""
    values = initial(names)
    for name, value in values.items():
        for trainer in range(trainers):
            for step in range(1, steps + 1):
                value -= gradient(name, trainer, step)
    return values
