"""What an executor does with programs of parameter servers and of their trainers."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from ...graph.program.program import Program
from ...graph.transpiler.exchange import Exchange, exchange_of, exchanges
from ...graph.transpiler.ports import register_waiter
from ...graph.transpiler.server_program import serves
from ...strategies.current import current_config
from ...strategies.errors import ServerLost
from ..driver.parallel import ParallelRun
from ..driver.runnable import Steps
from ..feed.scope import Scope
from ..gang.launchers import launcher_of
from ..host.deadline import Deadline
from ..rpc.messages import Ask
from .server import ParameterServer
from .session import Session
from .state import Saver
from .trainer import TrainerRun

_savers: list[Saver] = []
_LEAST_S = 1.0  # for a server that is there, although another took all the time


def serve(program: Program, scope: Scope) -> None:
    """Run a server's program until its trainers have finished.

    Raises:
        NotInitialized: its startup program was not run in this scope.
        InvalidState: another server has its endpoint.
        TrainerLost: it ended because a trainer was lost.
    """
    config = current_config()
    server = ParameterServer(program, scope, config, _savers[0] if _savers else None)
    launcher_of(config).serve(server, config)


def wait_for_servers(endpoints: Sequence[str], within: float | None = None) -> None:
    """Return once a server answers at each endpoint.

    Raises:
        ServerLost: some do not within ``within`` seconds (None: ``ClusterConfig.start_deadline_s``).
    """
    config = current_config()
    within = config.start_deadline_s if within is None else within
    missing: dict[str, str] = {}
    wire = launcher_of(config).wire(config)
    deadline = Deadline(within)
    try:
        for endpoint in endpoints:
            remaining_s = max(deadline.left, min(within, _LEAST_S))
            try:
                wire.call(endpoint, Ask(), round(remaining_s, 3))
            except ServerLost as error:
                missing[endpoint] = str(error)
    finally:
        wire.close()
    if missing:
        first = next(iter(missing.values()))
        raise ServerLost(
            f"get_trainer_program waited for {', '.join(missing)}: {first} Pass wait_port=False if "
            f"servers start later."
        )


register_waiter(wait_for_servers)


def register_saver(save: Saver) -> None:
    """Let servers write what trainers ask them to save with ``save``."""
    _savers[:] = [save]


class TrainerRuns:
    """The trainers' programs that an executor ran, and their sessions, which end with it."""

    def __init__(self) -> None:
        # By program, as of a version: whether it is a server's, and what it exchanges with servers.
        self._roles: WeakKeyDictionary[Program, tuple[int, bool, Exchange | None]] = (
            WeakKeyDictionary()
        )
        self._runs: WeakKeyDictionary[ParallelRun, TrainerRun] = WeakKeyDictionary()
        self.sessions: dict[Session, None] = {}

    def role_of(self, program: Program) -> tuple[bool, Exchange | None]:
        """Return whether a program is a server's, and its exchange with servers (None: it has none)."""
        version, serving, exchange = self._roles.get(program, (-1, False, None))
        if version != program.version:
            serving = serves(program)
            exchange = exchange_of(program) if not serving and exchanges(program) else None
            self._roles[program] = (program.version, serving, exchange)
        return serving, exchange

    def run_of(self, exchange: Exchange, run: ParallelRun, scope: Scope) -> TrainerRun:
        """Return what runs a trainer's program on one place."""
        trainer_run = self._runs.get(run)
        if trainer_run is None or not trainer_run.session.open:
            trainer_run = self._runs[run] = TrainerRun(exchange, run, scope)
        self.note(trainer_run)
        return trainer_run

    def note(self, steps: Steps) -> None:
        """Note the session of what runs a trainer's program."""
        if isinstance(steps, TrainerRun):
            self.sessions[steps.session] = None

    def close(self) -> None:
        """Say goodbye to the servers."""
        for session in self.sessions:
            session.close()
        self.sessions.clear()
