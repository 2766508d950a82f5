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
from ..executor.gang.gang import Gang
from ..executor.gang.threads import launch_threads
from ..strategies.current import current_config, pop_config, push_config

if TYPE_CHECKING:
    from ..strategies.cluster import ClusterConfig


def _launch_ray(places: Sequence[Place], config: ClusterConfig) -> Gang:
    from .gang import launch_ray  # Ray is imported at the first parallel run, not before

    gang = launch_ray(places, config)
    atexit.unregister(shutdown)
    atexit.register(shutdown)  # handlers run last in, first out: gangs must end before Ray does
    return gang


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


register_gpu_counter(_cluster_gpus)
launchers.register_launcher("threads", launch_threads)
launchers.register_launcher("ray", _launch_ray)


def configure(config: ClusterConfig | None = None, **settings: Any) -> ClusterConfig:
    """Choose how the next parallel programs are launched; returns the configuration now in force.

    ``configure(launcher="threads")`` is short for ``configure(ClusterConfig(launcher="threads"))``.
    """
    from ..strategies.cluster import ClusterConfig

    config = config if config is not None else ClusterConfig(**settings)
    push_config(config)
    return config


@contextmanager
def cluster(config: ClusterConfig | None = None, **settings: Any) -> Iterator[ClusterConfig]:
    """Like :func:`configure`, for the length of a ``with`` block; gangs started inside end with it."""
    in_force = configure(config, **settings)
    try:
        yield in_force
    finally:
        try:
            launchers.close_gangs(in_force)
        finally:
            pop_config(in_force)
            _leave_ray()


def shutdown() -> None:
    """End every gang (and the local Ray, if one was started for them)."""
    try:
        launchers.close_gangs()
    finally:
        _leave_ray()


def _leave_ray() -> None:
    """End a local Ray that was started for gangs, if no gang is left."""
    module = sys.modules.get(f"{__package__}.gang")
    if module is not None and not launchers.any_gang():
        module.leave_ray()


atexit.register(shutdown)
