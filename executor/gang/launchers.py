"""Launchers, and the gangs that they started: find the gang for a list of places, or start it.

The front door registers launchers, so that nothing here knows Ray.
"""

from __future__ import annotations

import gc
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from ...strategies.current import current_config
from ...strategies.errors import InvalidArgument, PlacementError, RowlockError
from ..device.place import NO_PLACES, CUDAPlace, Place
from .gang import Gang
from .single import single_at
from .trainers import Table, Trainers

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig
    from ..cuda.runtime import Runtime
    from ..plan.group import CollectiveGroup
    from ..rpc.messages import Service, Wire


class Launcher(ABC):
    """What ``ClusterConfig.launcher`` names: how gangs start, trainers meet, and servers are reached."""

    @abstractmethod
    def start(self, places: Sequence[Place], config: ClusterConfig) -> Gang:
        """Start a gang with a replica on each place.

        Raises:
            PlacementError: there is no room for one.
        """

    @abstractmethod
    def table(self) -> Table:
        """Return the table at which trainers meet."""

    @abstractmethod
    def form(
        self, name: str, rank: int, size: int, runtime: Runtime | None, within: float
    ) -> CollectiveGroup:
        """Join a group from this process.

        Raises:
            CollectiveError: a rank does not come within so many seconds.
        """

    def home(self, config: ClusterConfig) -> ClusterConfig:
        """Return the configuration that has a trainer's places on its own host, unless it names nodes."""
        return config

    @abstractmethod
    def serve(self, server: Service, config: ClusterConfig) -> None:
        """Make a parameter server reachable by its ``endpoint``; return once it ended.

        Raises:
            InvalidState: another server has this endpoint.
            ServerLost: it was lost, and could not be restored.
            TrainerLost: it ended because a trainer was lost.
        """

    @abstractmethod
    def wire(self, config: ClusterConfig) -> Wire:
        """Return what carries a trainer's messages to parameter servers."""


_launchers: dict[str, Launcher] = {}
_gangs: dict[tuple[Any, ...], Gang] = {}
_launching = [threading.RLock()]
_UNUSED_KEPT = 4  # gangs that no program uses: to start their replicas again would take seconds


def launching() -> threading.RLock:
    """Return the lock for starting and ending gangs: ``with launching():``. It is taken before any other."""
    return _launching[0]


def _after_fork() -> None:
    _launching[:] = [threading.RLock()]  # another thread of the parent may have the old one


os.register_at_fork(after_in_child=_after_fork)


def register_launcher(name: str, launcher: Launcher) -> None:
    """Make ``ClusterConfig(launcher=name)`` launch with ``launcher``."""
    _launchers[name] = launcher


def launcher_of(config: ClusterConfig) -> Launcher:
    """Return the launcher that a configuration names."""
    return _launchers[config.launcher]


def gang_for(places: Sequence[Place], trainers: Trainers | None = None) -> Gang:
    """Return the gang on these places, started if there is none yet under the configuration in force.

    Programs that name equal places, and the same ``trainers`` to meet, share replicas. A gang that starts ends
    others that no program uses (:func:`_end_unused`).

    Raises:
        InvalidArgument: the place list is empty, or has CPUs and GPUs.
        PlacementError: a GPU is asked for twice, or holds a replica of another gang.
    """
    if not places:
        raise InvalidArgument(NO_PLACES)
    if len({type(place) for place in places}) > 1:
        raise InvalidArgument(f"places {list(places)} are of several kinds: use CPUs or GPUs.")
    config = current_config()
    key = (config.model_dump_json(), tuple(places), trainers)
    with launching():
        if key in _gangs:
            _gangs[key].check_owner()
            if _gangs[key].delivery.broken:
                _gangs.pop(key).close()
        if key not in _gangs:
            _make_room(places)
            _end_unused()
            if trainers is not None:
                config = launcher_of(config).home(config)
            _gangs[key] = launcher_of(config).start(places, config)
        return _gangs[key]


def gang_at(place: Place) -> Gang:
    """Return a gang of one on ``place``: reuse a running replica there, else start one."""
    config = current_config().model_dump_json()
    with launching():
        for (of, places, _), gang in _gangs.items():
            if of == config and place in places and not gang.delivery.broken:
                single = gang if len(places) == 1 else single_at(gang, places, place)
                if single is not None:
                    return single
        return gang_for([place])


def _in_use(gang: Gang) -> bool:
    return not gang.delivery.broken and any(user.users for user in (gang, *gang.singles.values()))


def _wanted(gang: Gang) -> bool:
    """Tell whether a program that named the gang's places may run there again."""
    return not gang.delivery.broken and any(user not in gang.guests for user in gang.users)


def _shared(gang: Gang, places: Sequence[Place], gpus: Sequence[CUDAPlace]) -> list[int]:
    """Return the numbers of the GPUs that hold a replica of a gang that was started on ``places``."""
    left = gang.left_of(places)
    return sorted(place.device_id for place in gpus if place in left)


def _make_room(places: Sequence[Place]) -> None:
    """Free the GPUs of a new gang: close gangs there that are configured otherwise, or have guests alone.

    Raises:
        PlacementError: a GPU is asked for twice, or a program named the places of a gang that holds it.
    """
    gpus = [place for place in places if isinstance(place, CUDAPlace)]
    twice = sorted({place.device_id for place in gpus if gpus.count(place) > 1})
    if twice:
        raise PlacementError(
            f"places {list(places)} ask for two replicas on GPU {twice[0]}; a GPU holds one. "
            f"Name each GPU once."
        )
    for key in [key for key, gang in _gangs.items() if _shared(gang, key[1], gpus)]:
        other_config = key[0] != current_config().model_dump_json()
        if not other_config and _wanted(_gangs[key]):
            gc.collect()  # a program that is gone may be left in a circle, as of a caught error's traceback
        if other_config or not _wanted(_gangs[key]):
            _close(key)
            continue
        shared = _shared(_gangs[key], key[1], gpus)
        numbers = ", ".join(map(str, shared))
        holds = f"GPUs {numbers} hold replicas" if shared[1:] else f"GPU {numbers} holds a replica"
        raise PlacementError(
            f"{holds} of the gang on {list(key[1])}, and a GPU holds one. Use the same places, or end that "
            f"gang first (rowlock.shutdown())."
        )


def _end_unused() -> None:
    """End the gangs that no program uses, but for the latest few; those that hold CPUs or others of Ray, all.

    Values of scopes that are left come home; of those that turn out to be lost, a read tells.
    """
    unused = {key: gang.config for key, gang in _gangs.items() if not _in_use(gang)}
    for number, (key, config) in enumerate(unused.items(), 1):
        reserves = config.num_cpus_per_replica or config.resources_per_replica
        if reserves or number <= len(unused) - _UNUSED_KEPT:
            with suppress(RowlockError):
                _close(key)


def close_gangs(config: ClusterConfig | None = None) -> None:
    """End every gang, or those of one configuration; the next parallel run starts anew."""
    wanted = None if config is None else config.model_dump_json()
    with launching(), ExitStack() as ending:  # every one, also if the values of one are found lost
        for key in [key for key in _gangs if wanted in (None, key[0])]:
            ending.callback(_close, key)


def _close(key: tuple[Any, ...]) -> None:
    """End a gang; an interrupt before it is closed leaves it to be closed."""
    try:
        _gangs[key].close()
    finally:
        if not _gangs[key].owned or _gangs[key].delivery.broken:
            _gangs.pop(key)


def any_gang() -> bool:
    """Tell whether a gang is running."""
    return bool(_gangs)
