"""Servers and trainers on threads of one process, from one function that builds a net."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import rowlock
from rowlock import fluid
from tests.programs import own_programs

Feed = dict[str, Any]
_ports = itertools.count(20000)
_global_scope = threading.Lock()  # what saves and loads takes the process's
_building = threading.Lock()  # the default program and unique names are the process's
JOIN_S = 200.0


@dataclass
class Roles:
    """What ran: losses by trainer, parameters of each trainer at the end, what each role raised."""

    losses: list[list[float]]
    parameters: list[dict[str, np.ndarray]]
    initial: dict[str, np.ndarray] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    reports: list[dict[str, Any]] = field(default_factory=list)
    served: dict[str, np.ndarray] = field(default_factory=dict)
    left: dict[str, np.ndarray] = field(default_factory=dict)
    tables: dict[str, np.ndarray] = field(default_factory=dict)  # "table" by server, at first


@dataclass
class Trainer:
    """One trainer: its executor, program, loss and scope."""

    number: int
    exe: Any
    main: Any
    loss: Any
    scope: Any
    program: Any = None

    def step(self, feed: Feed) -> float:
        """Run a step; return the loss."""
        program = self.main if self.program is None else self.program
        fetched = self.exe.run(program, feed=feed, fetch_list=[self.loss], scope=self.scope)[0]
        return float(np.mean(fetched))


@contextmanager
def threads(**settings: Any) -> Iterator[None]:
    """Have servers and trainers meet on threads, with short deadlines."""
    defaults = {"launcher": "threads", "start_deadline_s": 60.0, "step_deadline_s": 60.0}
    with rowlock.cluster(rowlock.ClusterConfig(**(defaults | settings))):
        yield


def endpoints(count: int) -> list[str]:
    """Return endpoints that no other test has."""
    return [f"127.0.0.1:{next(_ports)}" for _ in range(count)]


def built(net: Callable[[], Any], seed: int = 7) -> tuple[Any, Any, Any]:
    """Return a net's programs, and its loss, the same each time."""
    with own_programs(seed) as (main, startup):
        loss = net()
    return main, startup, loss


def transpiled(
    net: Callable[[], Any],
    trainer: int,
    servers: Sequence[str],
    trainers: int = 2,
    sync: bool = True,
    config: Callable[[Any], None] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Return a transpiler and what a trainer runs: program, startup program and loss."""
    with _building:
        main, startup, loss = built(net)
        settings = fluid.DistributeTranspilerConfig()
        settings.sync_mode = sync
        if config is not None:
            config(settings)
        transpiler = fluid.DistributeTranspiler(settings)
        transpiler.transpile(
            trainer, program=main, pservers=",".join(servers), trainers=trainers,
            sync_mode=sync, startup_program=startup,
        )  # fmt: skip
        for endpoint in servers:
            transpiler.get_pserver_programs(endpoint)
        return transpiler, transpiler.get_trainer_program(wait_port=False), startup, loss


def persistables(program: Any, scope: Any) -> dict[str, np.ndarray]:
    """Return the parameters of a program that a scope has."""
    variables = {p.name: scope.find_var(p.name) for p in program.all_parameters()}
    return {
        name: np.array(var.get_tensor())
        for name, var in variables.items()
        if var is not None and var.get_tensor().initialized
    }


def table(parts: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Return a parameter of which servers have parts."""
    blocks = [n for n in parts if re.fullmatch(rf"{re.escape(name)}(\.block\d+)?", n)]
    return np.concatenate([parts[n] for n in sorted(blocks)])


def alone(
    net: Callable[[], Any], feeds: Sequence[Feed], initial: dict[str, np.ndarray]
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Train in one process, from the parameters that servers drew."""
    main, startup, loss = built(net)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    for name, value in initial.items():
        scope.find_var(name).get_tensor().set(value)
    losses = [float(exe.run(main, feed=f, fetch_list=[loss], scope=scope)[0]) for f in feeds]
    return losses, persistables(main, scope)


def together(
    net: Callable[[], Any],
    feeds: Sequence[Sequence[Feed]],
    servers: int = 2,
    sync: bool = True,
    config: Callable[[Any], None] | None = None,
    compiled: Callable[[Any, Any], Any] | None = None,
    step: Callable[[Trainer, Feed], float] = Trainer.step,
    folder: str | None = None,
) -> Roles:
    """Train with a trainer for each list of feeds, and so many servers.

    ``compiled`` makes of a trainer's program and loss what is run; ``step`` runs a step and returns its loss.
    Servers load what was saved in ``folder``.
    """
    where, count = endpoints(servers), len(feeds)
    trainers = [transpiled(net, i, where, count, sync, config) for i in range(count)]
    roles = Roles([[] for _ in feeds], [{} for _ in feeds])

    def serve(endpoint: str) -> None:
        program, startup = trainers[0][0].get_pserver_programs(endpoint)
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(startup, scope=scope)
        if folder is not None:
            with _global_scope, fluid.scope_guard(scope):
                fluid.io.load_persistables(exe, folder, program)
        names = [n for n in scope.local_var_names() if scope.find_tensor(n).initialized]
        roles.served |= {n: np.array(scope.find_tensor(n)) for n in names}
        if "table" in names:
            roles.tables[endpoint] = roles.served["table"]
        exe.run(program, scope=scope)
        roles.left |= {n: np.array(scope.find_tensor(n)) for n in names}

    def train(number: int) -> None:
        _, main, startup, loss = trainers[number]
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        try:
            exe.run(startup, scope=scope)
            if not number:
                roles.initial = persistables(main, scope)
            trainer = Trainer(number, exe, main, loss, scope)
            trainer.program = None if compiled is None else compiled(main, loss)
            for feed in feeds[number]:
                roles.losses[number].append(step(trainer, feed))
            roles.parameters[number] = persistables(main, scope)
            if not number:
                roles.reports = [r.facts for s in exe._trainer_runs.sessions for r in s.reports()]
        finally:
            exe.close()

    run_roles(roles, {**{f"server {e}": (lambda e=e: serve(e)) for e in where},
                      **{f"trainer {i}": (lambda i=i: train(i)) for i in range(count)}})  # fmt: skip
    return roles


def run_roles(roles: Roles, calls: dict[str, Callable[[], None]]) -> None:
    """Run roles on threads until all have ended."""

    def run(name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            roles.errors[name] = error

    runners = [threading.Thread(target=run, args=item, daemon=True) for item in calls.items()]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(JOIN_S)
    assert not any(runner.is_alive() for runner in runners), "a role waits for ever"
