"""Which gang there is for a list of places: launchers by name, the configuration in force, the gangs that run.

The front door registers launchers, so that nothing here knows Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..strategies.errors import InvalidArgument
from .gang import Gang
from .place import Place

if TYPE_CHECKING:
    from ..strategies.cluster import ClusterConfig

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
