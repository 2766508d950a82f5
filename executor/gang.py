"""What a gang offers: replicas in lockstep that answer messages. One is made of threads, one of Ray actors.

``ParallelExecutor`` and ``CompiledProgram`` see only this file. The front door registers launchers, so that
nothing here knows Ray.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..strategies import errors
from ..strategies.errors import ExecutionError, InvalidArgument, RowlockError
from .place import Place
from .replica import Message

if TYPE_CHECKING:
    from ..strategies.cluster import ClusterConfig


class Delivery(Protocol):
    """How messages reach replicas: one message each, answers in rank order."""

    size: int

    @property
    def broken(self) -> bool:
        """Whether it was closed or lost a replica: the next run starts a new gang."""
        ...

    def exchange(self, messages: Sequence[Message]) -> list[Message]:
        """Deliver message i to replica i, all at once, and return the answers.

        It may be left by any exception, a KeyboardInterrupt too: the next exchange gets its own answers.
        """
        ...

    def close(self) -> None:
        """End the replicas."""
        ...


class Share(NamedTuple):
    """What one place computes: the arrays of one step, or of several behind each other.

    Per set of arrays: ``rows`` the global index of the place's first row, ``parts`` its part of all rows,
    ``idle`` whether it has none.
    """

    arrays: list[np.ndarray]
    rows: list[int]
    parts: list[float]
    idle: list[bool]


class Gang:
    """Replicas that programs can be loaded on. Several programs share one gang and its device scopes."""

    def __init__(self, delivery: Delivery, within: float = 300.0) -> None:
        self.delivery = delivery
        self.size = delivery.size
        self.within = within
        self.epoch = 0
        self._ids = 0
        self._leaving: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._unwanted: dict[str, list[int]] = {"programs": [], "scopes": []}

    def new_id(self) -> int:
        """Return a number that no program or device scope of this gang has."""
        self._ids += 1
        return self._ids

    def all(self, kind: str, arrays: Sequence[np.ndarray] = (), **head: Any) -> list[Message]:
        """Send one message to every replica."""
        return self.each([Message(kind, {"epoch": self.epoch, **head}, arrays)] * self.size)

    def each(self, messages: Sequence[Message]) -> list[Message]:
        """Send each replica its own message and return the answers.

        Raises:
            RowlockError: a replica failed; the first cause is raised, not what followed from it.
        """
        try:
            answers = self.delivery.exchange(messages)
        except BaseException:
            self.epoch += 1  # whatever the replicas were in the middle of is void
            raise
        failures = [answer for answer in answers if answer.kind == "error"]
        if failures:
            self.epoch += 1
            raise _cause(failures)
        return answers

    def load(
        self,
        program: str,
        scope: int,
        *,
        threads: int = 1,
        capped: bool = False,
        every_lock: bool = False,
    ) -> int:
        """Give a compiled program (JSON) to every replica and return its id there.

        ``threads`` that a replica may use, ``capped`` by its share of the host's cores or not; ``every_lock``:
        they signal every dependency.
        """
        self._unload()
        number = self.new_id()
        how: dict[str, Any] = {"threads": threads, "capped": capped, "every_lock": every_lock}
        self.all("load", id=number, program=program, scope=scope, **how)
        return number

    def forget(self, kind: str, number: int) -> None:
        """Have a program or a scope ("programs", "scopes") unloaded before the next program is loaded."""
        self._unwanted[kind].append(number)

    def _unload(self) -> None:
        if any(self._unwanted.values()) and not self.delivery.broken:
            unwanted, self._unwanted = self._unwanted, {"programs": [], "scopes": []}
            self.all("unload", programs=unwanted["programs"], scopes=unwanted["scopes"])

    def write(
        self,
        scope: int,
        names: Sequence[str],
        arrays: Sequence[np.ndarray],
        owners: Mapping[str, int] | None = None,
    ) -> None:
        """Write persistables to a device scope of every replica, or of their owners alone."""
        messages = []
        for rank in range(self.size):
            held = [
                (name, array)
                for name, array in zip(names, arrays, strict=True)
                if (owners or {}).get(name, rank) == rank
            ]
            head = {"epoch": self.epoch, "scope": scope, "names": [name for name, _ in held]}
            messages.append(Message("write", head, [array for _, array in held]))
        self.each(messages)

    def read(self, scope: int, name: str, rank: int = 0) -> np.ndarray:
        """Return a persistable from one replica's device scope."""
        ask = Message("read", {"epoch": self.epoch, "scope": scope, "names": [name]})
        idle = Message("read", {"epoch": self.epoch, "scope": scope, "names": []})
        answers = self.each([ask if i == rank else idle for i in range(self.size)])
        return answers[rank].arrays[0]

    def step(
        self, program: int, shares: Sequence[Share], step: int, iterations: int, drop: Sequence[int]
    ) -> list[Sequence[np.ndarray]]:
        """Run steps everywhere, the first of them being number ``step``; ``shares[i]`` is for replica i.

        ``drop`` names the loaded programs whose temporaries end their life with the last.
        """
        messages = [
            Message(
                "step",
                {
                    "id": program,
                    "step": step,
                    "iterations": iterations,
                    "rows": share.rows,
                    "parts": share.parts,
                    "idle": share.idle,
                    "drop": drop,
                    "epoch": self.epoch,
                },
                share.arrays,
            )
            for share in shares
        ]
        return [answer.arrays for answer in self.each(messages)]

    def before_close(self, call: Callable[[], None]) -> None:
        """Have a method called when the gang is closed in good health, while replicas still answer.

        Its object is not kept alive for that.
        """
        self._leaving.append(weakref.WeakMethod(call))

    def close(self) -> None:
        """End the replicas."""
        try:
            if not self.delivery.broken:
                for held in self._leaving:
                    call = held()
                    if call is not None:
                        call()
        finally:  # a replica may be found dead only now
            self._leaving.clear()
            self.delivery.close()


def _cause(failures: Sequence[Message]) -> RowlockError:
    first = next((f for f in failures if not f.head["collateral"]), failures[0])
    kind, text, rank = first.head["type"], first.head["text"], first.head["rank"]
    known = getattr(errors, kind, None)
    text = text if f"replica {rank}" in text else f"replica {rank}: {text}"
    if isinstance(known, type) and issubclass(known, RowlockError):
        return known(text)
    return ExecutionError(f"{text} ({kind})")


Launcher = Callable[[Sequence[Place], "ClusterConfig"], Gang]
_launchers: dict[str, Launcher] = {}
_config: list[ClusterConfig] = []
_gangs: dict[tuple[Any, ...], Gang] = {}


def register_launcher(name: str, launcher: Launcher) -> None:
    """Make ``ClusterConfig(launcher=name)`` start gangs with ``launcher``."""
    _launchers[name] = launcher


def current_config() -> ClusterConfig:
    """Return the configuration in force."""
    if not _config:
        from ..strategies.cluster import ClusterConfig

        _config.append(ClusterConfig())
    return _config[-1]


def push_config(config: ClusterConfig) -> None:
    """Put a configuration in force."""
    _config.append(config)


def pop_config() -> None:
    """Go back to the configuration that was in force before."""
    _config.pop()


def gang_for(places: Sequence[Place]) -> Gang:
    """Return the gang on these places, started if there is none yet under the configuration in force.

    Programs that name equal places share replicas.

    Raises:
        InvalidArgument: the place list is empty.
    """
    if not places:
        raise InvalidArgument("there are no places to run on: the place list is empty.")
    config = current_config()
    key = (config.model_dump_json(), tuple(places))
    if key in _gangs and _gangs[key].delivery.broken:
        _gangs.pop(key).close()
    if key not in _gangs:
        _gangs[key] = _launchers[config.launcher](places, config)
    return _gangs[key]


def close_gangs(config: ClusterConfig | None = None) -> None:
    """End every gang, or those of one configuration; the next parallel run starts anew."""
    wanted = None if config is None else config.model_dump_json()
    for key in [key for key in _gangs if wanted in (None, key[0])]:
        _gangs.pop(key).close()


def any_gang() -> bool:
    """Tell whether a gang is running."""
    return bool(_gangs)
