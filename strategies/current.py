"""The cluster configuration in force: the last one that was pushed, else the default."""

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
    """Remove a configuration; the last one of the others is in force then."""
    last = max(i for i, other in enumerate(_configs) if other is config)
    del _configs[last]
