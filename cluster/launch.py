"""Choose the gang that parallel programs run on: Ray actors by default."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..executor.device.place import Place, register_gpu_counter
from ..executor.gang import launchers
from ..executor.gang.launchers import Launcher
from ..executor.saving.files import save_arrays
from ..executor.servers.local import ThreadLauncher
from ..executor.servers.running import register_saver
from ..strategies.current import current_config, pop_config, push_config
from ..strategies.errors import InvalidType, RowlockError
from ..strategies.log import log

if TYPE_CHECKING:
    from ..executor.cuda.runtime import Runtime
    from ..executor.gang.gang import Gang
    from ..executor.gang.trainers import Table
    from ..executor.plan.group import CollectiveGroup
    from ..executor.rpc.messages import Service, Wire
    from ..strategies.cluster import ClusterConfig


def _cluster_gpus() -> int:
    config = current_config()
    address = config.address or os.environ.get("RAY_ADDRESS")
    if config.launcher != "ray" or ("ray" not in sys.modules and not address):
        return 0
    if address:
        from .ray.session import join_ray

        join_ray(config)
    from .ray.nodes import gpu_total

    return gpu_total()


class _RayLauncher(Launcher):
    """Gangs and servers are Ray actors. Ray is imported when they are first asked for, not before."""

    def start(self, places: Sequence[Place], config: ClusterConfig) -> Gang:
        from .gang import launch_ray

        gang = launch_ray(places, config)
        _at_exit()
        return gang

    def table(self) -> Table:
        from .primitives import ray_private

        _join_trainers(current_config())
        return ray_private

    def form(
        self, name: str, rank: int, size: int, runtime: Runtime | None, within: float
    ) -> CollectiveGroup:
        from .collective.backends.rowlock import form_here

        return form_here(name, rank, size, within, current_config().collective_deadline_s)

    def home(self, config: ClusterConfig) -> ClusterConfig:
        from .ray.nodes import at_home

        _join_trainers(config)
        return at_home(config)

    def serve(self, server: Service, config: ClusterConfig) -> None:
        from .pserver.launcher import host_server

        _at_exit()
        host_server(server, config)

    def wire(self, config: ClusterConfig) -> Wire:
        from .pserver.launcher import wire_to_servers

        _at_exit()
        return wire_to_servers(config)


def _join_trainers(config: ClusterConfig) -> None:
    """Join the Ray on which trainers meet: they must all find the same."""
    from .ray.session import join_ray

    join_ray(config, shared=True)


def _at_exit() -> None:
    atexit.unregister(shutdown)
    atexit.register(shutdown)  # handlers run last in, first out: gangs must end before Ray does


launchers.register_launcher("threads", ThreadLauncher())
launchers.register_launcher("ray", _RayLauncher())
register_gpu_counter(_cluster_gpus)
register_saver(save_arrays)


def configure(config: ClusterConfig | None = None, **settings: Any) -> ClusterConfig:
    """Choose how the next parallel programs are launched; returns the configuration now in force.

    ``configure(launcher="threads")`` is short for ``configure(ClusterConfig(launcher="threads"))``.

    Raises:
        InvalidType: neither a configuration alone nor fields by name.
        StrategyError: a field that does not exist, or cannot have this value.
    """
    from ..strategies.cluster import ClusterConfig

    if config is None:
        config = ClusterConfig(**settings)
    elif not isinstance(config, ClusterConfig) or settings:
        raise InvalidType(
            f"configure: a ClusterConfig or fields of one by name are needed, such as launcher='threads', "
            f"got {config!r}{' and ' + ', '.join(settings) if settings else ''}."
        )
    push_config(config)
    return config


@contextmanager
def cluster(config: ClusterConfig | None = None, **settings: Any) -> Iterator[ClusterConfig]:
    """Like :func:`configure`, for the length of a ``with`` block; gangs started inside end with it.

    What goes wrong as they end is logged where the block raised: its error tells the cause.
    """
    in_force = configure(config, **settings)
    try:
        yield in_force
    except BaseException as error:
        try:
            _end(in_force)
        except RowlockError as later:
            if str(later) != str(error):
                log.warning("at the end of the block of rowlock.cluster: %s", later)
        raise
    _end(in_force)


def _end(config: ClusterConfig) -> None:
    """End the gangs of a configuration, which is in force no more."""
    try:
        launchers.close_gangs(config)
    finally:
        pop_config(config)
        _leave_ray()


def shutdown() -> None:
    """End every gang (and the local Ray, if one was started for them)."""
    try:
        launchers.close_gangs()
    finally:
        _leave_ray()


def _leave_ray() -> None:
    """End a local Ray that was started for gangs, if no gang is left."""
    module = sys.modules.get(f"{__package__}.ray.session")
    if module is not None and not launchers.any_gang():
        module.leave_ray()


atexit.register(shutdown)
