"""The cluster configuration in force: the one put in force last, else the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cluster import ClusterConfig

_configs: list[ClusterConfig] = []


def current_config() -> ClusterConfig:
    """Return the configuration in force."""
    if not _configs:
        from .cluster import ClusterConfig

        _configs.append(ClusterConfig())
    return _configs[-1]


def push_config(config: ClusterConfig) -> None:
    """Put a configuration in force."""
    _configs.append(config)


def pop_config(config: ClusterConfig) -> None:
    """Put a configuration out of force: the one put in force last, of the others, is."""
    last = max(i for i, one in enumerate(_configs) if one is config)
    del _configs[last]
