"""Find the gang for a list of places, or start it with the launcher that the configuration names.

The front door registers launchers, so that nothing here knows Ray.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from ...strategies.current import current_config
from ...strategies.errors import InvalidArgument, PlacementError, RowlockError
from ..device.place import NO_PLACES, CUDAPlace, Place
from .gang import Gang
from .single import single_at
from .trainers import Trainers, launcher_of

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig

Launcher = Callable[[Sequence[Place], "ClusterConfig"], Gang]
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
    """Make ``ClusterConfig(launcher=name)`` start gangs with ``launcher``."""
    _launchers[name] = launcher


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
                config = launcher_of(config.launcher).home(config)
            _gangs[key] = _launchers[config.launcher](places, config)
        _standing.discard(key)
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
        gang = gang_for([place])
        _standing.add((config, (place,), None))
        return gang


_standing: set[tuple[Any, ...]] = set()  # gangs of one that leave when their GPU is wanted


def _in_use(gang: Gang) -> bool:
    return not gang.delivery.broken and any(user.users for user in (gang, *gang.singles.values()))


def _shared(gang: Gang, places: Sequence[Place], gpus: Sequence[CUDAPlace]) -> list[int]:
    """Return the numbers of the GPUs that hold a replica of a gang that was started on ``places``."""
    left = gang.left_of(places)
    return sorted(place.device_id for place in gpus if place in left)


def _make_room(places: Sequence[Place]) -> None:
    """Free the GPUs of a new gang: close gangs there that are unused, or configured otherwise.

    Raises:
        PlacementError: a GPU is asked for twice, or a gang in use holds it.
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
        if key in _standing or other_config or not _in_use(_gangs[key]):
            _close(key)
            _standing.discard(key)
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
