"""One driver that starts a whole training: servers in actors, trainers in Ray tasks or on its own threads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from ...executor.executor import Executor
from ...executor.feed.scope import Scope
from ...executor.host.background import in_background
from ...executor.servers.server import ParameterServer
from ...graph.program.program import Program
from ...strategies.cluster import ClusterConfig
from ...strategies.current import current_config, push_config
from ...strategies.errors import (
    InvalidArgument,
    InvalidType,
    InvalidValue,
    TrainerLost,
)
from ..ray.replica_handle import why
from .hosting import HostedServer
from .launcher import job_of

_TURN_S = 0.25


@dataclass(frozen=True)
class TrainerProgram:
    """A trainer that the driver runs on a thread of its own: it feeds one batch a step.

    ``program`` and ``startup``: what ``get_trainer_program()`` and ``get_startup_program()`` of its transpiler
    return. ``batches``: feeds by variable name. The result is a list of the values of ``fetch_list``, a step
    each.
    """

    program: Program
    startup: Program
    batches: Iterable[Mapping[str, Any]]
    fetch_list: Sequence[Any] = ()

    def run(self) -> list[list[np.ndarray]]:
        """Train, and say goodbye to the servers."""
        scope, exe = Scope(), Executor()
        try:
            exe.run(self.startup, scope=scope)
            return [
                exe.run(self.program, feed=dict(batch), fetch_list=[*self.fetch_list], scope=scope)
                for batch in self.batches
            ]
        finally:
            exe.close()


Trainer = Callable[[int], Any] | TrainerProgram


class Topology:
    """Servers and trainers that were started together. As a context manager it ends them at its end."""

    def __init__(self, servers: list[HostedServer], trainers: list[_Task | _Thread]) -> None:
        self._servers, self._trainers = servers, trainers

    def wait(self, within: float | None = None) -> list[Any]:
        """Return what each trainer returned, in the order in which they were named.

        Raises:
            TrainerLost: a trainer's process ended.
            ServerLost: a server was lost, and could not be restored.
            TimeoutError: they are not done after ``within`` seconds.
            Exception: whatever a trainer raised. All others are ended first, in every case.
        """
        deadline = None if within is None else time.monotonic() + within
        try:
            waiting = list(self._servers)
            while waiting or not all(trainer.done(_TURN_S) for trainer in self._trainers):
                waiting = [server for server in waiting if not server.wait(_TURN_S)]
                for (
                    trainer
                ) in self._trainers:  # one that failed keeps the others, and the servers, waiting
                    if trainer.done(0.0):
                        trainer.result()
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"the trainers are not done after {within:g} s")
            return [trainer.result() for trainer in self._trainers]
        finally:
            self.stop("the driver that started it ends the training.")

    def stop(self, reason: str = "the driver ended the training.") -> None:
        """End all that still runs."""
        for trainer in self._trainers:
            trainer.cancel()
        for server in self._servers:
            if server.actor is not None:
                server.stop(reason)

    def __enter__(self) -> Topology:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def launch(servers: Mapping[str, tuple[Program, Program]], trainers: Sequence[Trainer]) -> Topology:
    """Start servers and trainers from this process, on the Ray cluster of the configuration in force.

    Args:
        servers: by endpoint, what ``transpiler.get_pserver_programs(endpoint)`` returns: program and startup
            program. The endpoint's address chooses the node.
        trainers: each a function, which is called with the trainer's number in a Ray task (Ray pickles it; it
            builds its program, runs it with ``Executor`` and closes that), or a :class:`TrainerProgram`.

    Raises:
        InvalidType: something else is among them.
        InvalidArgument: there is no server, or no trainer.
        InvalidValue: a program is another endpoint's, or was transpiled for another number of trainers.
        InvalidState: another server has one of the endpoints.
    """
    config = current_config()
    if not servers or not trainers:
        raise InvalidArgument(
            f"a training needs servers and trainers, got {len(servers)} and {len(trainers)}."
        )
    for trainer in trainers:
        if not (callable(trainer) or isinstance(trainer, TrainerProgram)):
            raise InvalidType(
                f"a trainer is a function of its number or a TrainerProgram, got {trainer!r}."
            )
    hosted: list[HostedServer] = []
    members: list[_Task | _Thread] = []
    topology = Topology(hosted, members)
    try:
        for endpoint, (program, startup) in servers.items():
            hosted.append(_host(endpoint, program, startup, len(trainers), config))
        for number, trainer in enumerate(trainers):
            kind = _Thread if isinstance(trainer, TrainerProgram) else _Task
            members.append(kind(number, trainer, config))  # type: ignore[arg-type]  # as it is one of both
    except BaseException:
        topology.stop()
        raise
    return topology


def _host(
    endpoint: str, program: Program, startup: Program, trainers: int, config: ClusterConfig
) -> HostedServer:
    scope = Scope()
    with contextlib.closing(Executor()) as exe:
        exe.run(startup, scope=scope)
    server = ParameterServer(program, scope, config)
    if server.endpoint != endpoint:
        raise InvalidValue(
            f"the program given for {endpoint} is that of {server.endpoint}: name each server's programs under "
            f"its own endpoint."
        )
    if len(server.state.by_id) != trainers:
        raise InvalidValue(
            f"{trainers} trainers are launched, and the program of {endpoint} was transpiled for "
            f"{len(server.state.by_id)} (trainers= of transpile)."
        )
    hosted = HostedServer(job_of(server), config)
    hosted.start()
    return hosted


class _Task:
    """A trainer's function in a Ray task."""

    def __init__(self, number: int, function: Callable[[int], Any], config: ClusterConfig) -> None:
        self._number = number
        task = _train.options(
            num_cpus=config.num_cpus_per_replica, max_retries=0, name=f"trainer {number}"
        )
        self._answer = task.remote(function, number, config.model_dump_json())

    def done(self, within: float) -> bool:
        """Tell whether it has ended."""
        return bool(ray.wait([self._answer], timeout=within)[0])

    def result(self) -> Any:
        """Return or raise what it did."""
        try:
            return ray.get(self._answer)
        except RayTaskError as error:
            raise error.cause from error
        except RayError as error:
            raise TrainerLost(f"trainer {self._number} was lost: {why(error)}") from error

    def cancel(self) -> None:
        """End it, if it still runs."""
        with contextlib.suppress(RayError, GetTimeoutError):
            if not self.done(0.0):
                ray.cancel(self._answer, force=True)


@ray.remote
def _train(function: Callable[[int], Any], number: int, config: str) -> Any:
    push_config(ClusterConfig.model_validate_json(config))
    return function(number)


class _Thread:
    """A trainer's program on a thread of this process."""

    def __init__(self, number: int, trainer: TrainerProgram, config: ClusterConfig) -> None:
        self._future = in_background(trainer.run, f"rowlock-trainer-{number}")

    def done(self, within: float) -> bool:
        """Tell whether it has ended."""
        return bool(wait([self._future], within).done)

    def result(self) -> Any:
        """Return or raise what it did."""
        return self._future.result()

    def cancel(self) -> None:
        """Do nothing: its servers end, which it is told in its next step."""
