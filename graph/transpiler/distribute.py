"""DistributeTranspiler: writes the programs of trainers and parameter servers from a training program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...strategies.errors import (
    InvalidArgument,
    InvalidState,
    NotFound,
    Unsupported,
    nearest,
    require_type,
)
from ..program.clone import copy_program
from ..program.program import Program, default_main_program, default_startup_program
from ..program.role import ROLE, OpRole
from ..program.where import warn_user
from . import collective, geo
from .config import DistributeTranspilerConfig, check_config
from .placement import BY_NORM, Trained, place, trained_parameters, trainer_side
from .plan import Distribution, Plan
from .ports import wait_server_ready
from .rewriting import copy_variable
from .server import ServerWriter, counters
from .server_startup import write_server_startup
from .state import served_state
from .table import distributed_table, look_up
from .topology import COUNTER, Topology, check_topology
from .trainer import TrainerRewriter, drop_updates, look_up_remotely, write_startup

_ASYNC_ONLY = {
    "runtime_split_send_recv": "cuts gradients while they are sent, which only asynchronous training does",
    "half_async": "has a trainer wait for servers alone, and in synchronous training it waits for all",
    "enable_dc_asgd": "corrects gradients that come late, and in synchronous training none does",
    "geo_sgd_mode": "lets every trainer go its own way, so that none waits for another",
}


class DistributeTranspiler:
    """Rewrites a program for trainers and parameter servers, or for trainers alone.

    ``transpile`` changes the program and its startup program in place; the getters then give out the program of
    each role. Every trainer and every server calls ``transpile`` with the same arguments but ``trainer_id``.

    Args:
        config: a :class:`DistributeTranspilerConfig` (None: the defaults).

    Raises:
        InvalidType, InvalidArgument, InvalidValue: settings that cannot work.
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        self.config = check_config(config)
        self._plan: Plan | None = None
        self._trainer_program: Program | None = None

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: Any = 1,
        sync_mode: bool = True,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """Give trainers and servers their parts, and rewrite the program for a trainer, in place.

        Args:
            trainer_id: the number of this trainer, from 0.
            program: what to train, with an optimizer; the default program if None.
            pservers: endpoints of the servers, "host:port,host:port".
            trainers: how many trainers there are; in the modes without servers, their endpoints.
            sync_mode: servers wait for all trainers before they update.
            startup_program: what initializes ``program``; the default one if None.
            current_endpoint: this trainer's own endpoint, in the modes without servers.

        Raises:
            InvalidType, InvalidValue: an argument that cannot work.
            InvalidState: the program was rewritten before.
            Unsupported: servers update, and the trainer's script steps the learning rate.
        """
        main = _program("program", program, default_main_program)
        startup = _program("startup_program", startup_program, default_startup_program)
        _check_fresh(main)
        if self.config.mode == "pserver":
            _check_rate(main)
            checked = check_topology(trainer_id, trainers, pservers, sync_mode)
            topology = self._topology(checked, sync_mode)
            write = geo.rewrite if self.config.geo_sgd_mode else _rewrite
            self._plan = write(self.config, main, startup, topology)
            if not self._plan.trained and self._plan.table is None:
                warn_user(
                    "transpile: no optimizer updates a parameter of the program, so servers hold none, and "
                    "trainers learn nothing. Call minimize before transpile."
                )
        else:
            meet = collective.write_nccl2 if self.config.mode == "nccl2" else collective.rewrite
            meet(self.config, main, startup, trainer_id, trainers, current_endpoint)
        main._is_distributed, main._is_chief = True, trainer_id == 0
        main._ps_endpoint = current_endpoint
        self._trainer_program = main
        if self.config.print_log and self._plan is not None:
            print("\n".join(_lines(self._plan.topology, self._plan.trained)))

    def _topology(self, checked: tuple[int, int, list[str]], sync_mode: bool) -> Topology:
        config = self.config
        for setting, reason in _ASYNC_ONLY.items():
            if sync_mode and getattr(config, setting):
                raise InvalidArgument(
                    f"transpile: config.{setting} {reason}. Pass sync_mode=False (and set config.sync_mode "
                    f"= False)."
                )
        if config.completely_not_async and not sync_mode:
            raise InvalidArgument(
                "transpile: config.completely_not_async has servers wait for all trainers: pass sync_mode=True."
            )
        return Topology(
            *checked,
            sync_mode=sync_mode,
            split_late=config.runtime_split_send_recv,
            half_async=config.half_async,
            push_every=config.geo_sgd_need_push_nums if config.geo_sgd_mode else 0,
        )

    # -- programs ---------------------------------------------------------------------------------

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """Return the trainer's program, which ``transpile`` was given.

        With ``wait_port`` (and ``config.wait_port``) all servers listen when it returns.

        Raises:
            InvalidState: before ``transpile``.
            ServerLost: a server does not listen within the deadline.
        """
        if self._trainer_program is None:
            raise _too_early("get_trainer_program")
        plan = self._plan
        if plan is not None and not plan.topology.push_every and not plan.updates_dropped:
            tables = [entry for entry in plan.trained if entry.table]
            tables += [] if plan.table is None else [plan.table.trained]
            drop_updates(plan.main, plan.startup, tables)
            plan.updates_dropped = True
        if plan is not None and wait_port and self.config.wait_port:
            wait_server_ready(plan.topology.endpoints)
        return self._trainer_program

    def get_pserver_program(self, endpoint: str) -> Program:
        """Return the program of the server at an endpoint: run it, and it serves until all trainers are done.

        Raises:
            InvalidState: before ``transpile``, or in a mode without servers.
            NotFound: no server has that endpoint.
        """
        return self.get_pserver_programs(endpoint)[0]

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """Return the program of the server at an endpoint, and its startup program."""
        plan = self._serving("get_pserver_programs")
        endpoints = plan.topology.endpoints
        if endpoint not in endpoints:
            raise NotFound(
                f"no server has the endpoint {endpoint!r}.{nearest(str(endpoint), endpoints)} transpile was "
                f"told of: {', '.join(endpoints)}."
            )
        if endpoint not in plan.servers:
            write = geo.write_server if plan.topology.push_every else self._write_server
            plan.servers[endpoint] = write(plan, endpoint)
            for program in plan.servers[endpoint]:
                program._is_distributed, program._ps_endpoint = True, endpoint
                program.distribution = plan.main.distribution
        return plan.servers[endpoint]

    def _write_server(self, plan: Plan, endpoint: str) -> tuple[Program, Program]:
        served = any(s.endpoint == endpoint for entry in plan.trained for s in entry.shards)
        if not served and plan.table is None:
            warn_user(
                f"the server at {endpoint} has no parameter: there are fewer parts than servers. Take fewer "
                f"servers, or a smaller config.min_block_size."
            )
        delay = self.config.enable_dc_asgd
        server = ServerWriter(plan, endpoint, delay).run()
        return server, write_server_startup(server, plan, endpoint)

    def get_startup_program(
        self,
        endpoint: str,
        pserver_program: Program | None = None,
        startup_program: Program | None = None,
    ) -> Program:
        """Return the startup program of the server at an endpoint.

        ``pserver_program`` and ``startup_program`` may be left out: both follow from ``transpile``.
        """
        _, startup = self.get_pserver_programs(endpoint)
        loops = [] if pserver_program is None else pserver_program.global_block().ops
        for op in loops:
            if op.type == "listen_and_serv" and op.attr("endpoint") != endpoint:
                raise InvalidArgument(
                    f"get_startup_program: pserver_program serves at {op.attr('endpoint')}, not at {endpoint}. "
                    f"Leave it out."
                )
        return startup

    def _serving(self, caller: str) -> Plan:
        if self._trainer_program is None:
            raise _too_early(caller)
        if self._plan is None:
            raise InvalidState(
                f'{caller}: config.mode is {self.config.mode!r}, in which there are no servers. Take "pserver".'
            )
        return self._plan

    def __repr__(self) -> str:
        state = "\n".join(_lines(self._plan.topology, self._plan.trained)) if self._plan else ""
        return f"DistributeTranspiler({self.config!r})" + (f"\n{state}" if state else "")


def _rewrite(
    config: DistributeTranspilerConfig, main: Program, startup: Program, topology: Topology
) -> Plan:
    source = copy_program(main)
    _leave_clips(source)
    trained = trained_parameters(source)
    table = distributed_table(source, trained)
    if table is not None:
        trained = [entry for entry in trained if entry is not table.trained]
    dealt = place(trained, config, topology.endpoints, main.random_seed)
    _warn_of_norms(trained)
    # What can be refused was: from here on the programs change.
    _leave_clips(main)
    first_step = 0.0 if topology.sync_mode else _count_steps(main, startup, topology.trainers)
    startup_source = copy_program(startup)
    programs = (main, startup, source, startup_source)
    plan = Plan(topology, trained, dealt, *programs, table=table, first_step=first_step)
    look_up_remotely(main, topology, trained)
    if table is not None:
        look_up(main.global_block(), table, topology)
        main._distributed_lookup_table = table.name
    TrainerRewriter(main, topology, trained, dealt, table).run()
    write_startup(startup, topology, [entry for entry in trained if not entry.table])
    main._endpoints = topology.endpoints
    state = served_state(source, trained, topology)
    main.distribution = startup.distribution = Distribution.of(topology, trained, table, state)
    return plan


def _leave_clips(program: Program) -> None:
    for op in trainer_side(program):
        op.attrs[ROLE] = int(OpRole.Backward)


def _count_steps(main: Program, startup: Program, trainers: int) -> float:
    """Have a learning-rate schedule count the steps of every trainer; return the number of the first step."""
    if not main.global_block().has_var(COUNTER):
        return 0.0
    counter = main.global_block().var(COUNTER)
    block = startup.global_block()
    for name in counters(trainers):
        for program in (main, startup):
            copy_variable(program.global_block(), counter, name=name)
        attrs = {"shape": [1], "dtype": int(counter.dtype or 0), "value": 1.0, ROLE: 0}
        block._prepend_op("fill_constant", {}, {"Out": name}, attrs)
    first_step = 0.0
    for op in block.ops:
        if COUNTER in op.output_arg_names:
            first_step = op.attrs["value"] + 1.0  # it is counted up before it is read
            op.set_attr("value", float(-trainers))
    return first_step


def _warn_of_norms(trained: list[Trained]) -> None:
    entries = [entry for entry in trained if entry.split and entry.update.type in BY_NORM]
    if entries:
        names = ", ".join(entry.parameter.name for entry in entries[:3])
        warn_user(
            f"{entries[0].update.type} steps by the norm of a parameter, and servers have parts of "
            f"{len(entries)} ({names}): each takes the norm of its part, as in Paddle, so training differs "
            f"from that on one machine. config.slice_var_up = False keeps parameters whole."
        )


def _program(argument: str, program: Any, default: Callable[[], Program]) -> Program:
    if program is None:
        return default()
    require_type(program, Program, f"transpile: {argument} must be a Program")
    return program


def _check_fresh(main: Program) -> None:
    if main._is_distributed:
        raise InvalidState(
            "transpile: this program was rewritten before. Build it again, or transpile a clone that was made "
            "before the first call."
        )


def _check_rate(main: Program) -> None:
    if main.lr_scheduler is not None:
        raise Unsupported(
            "transpile: the program's learning rate is stepped by the trainer's script (paddle.optimizer.lr), "
            "which servers do not see. Take a schedule of fluid.layers, such as exponential_decay."
        )


def _too_early(caller: str) -> InvalidState:
    return InvalidState(f"{caller}: no program was rewritten yet. Call transpile first.")


def _lines(topology: Topology, trained: list[Trained]) -> list[str]:
    """Return what is where, a line for each part."""
    how = "together" if topology.sync_mode else "each at its own pace"
    lines = [f"{topology.trainers} trainers, {how}; {len(topology.endpoints)} servers:"]
    for entry in trained:
        for shard in entry.shards:
            rows = f"rows {shard.begin} to {shard.begin + shard.rows - 1}"
            kind = "table, " if entry.table else ""
            lines.append(
                f"  {shard.endpoint}  {shard.parameter}  {kind}{rows}, {list(shard.shape)}"
            )
    return lines


class GeoSgdTranspiler(DistributeTranspiler):
    """The same with ``geo_sgd_mode``: trainers update on their own, and send changes every so often."""

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        config = DistributeTranspilerConfig() if config is None else check_config(config)
        config.geo_sgd_mode = True
        super().__init__(config)

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: Any = 1,
        sync_mode: bool = False,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """Rewrite a program, in place: see :meth:`DistributeTranspiler.transpile`."""
        super().transpile(
            trainer_id, program, pservers, trainers, sync_mode, startup_program, current_endpoint
        )
