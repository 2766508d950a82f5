"""Place the trainers of one Ray cluster on the nodes of their drivers, and form their group."""

from __future__ import annotations

import ray

from ...executor.plan.group import CollectiveGroup
from ...strategies.cluster import ClusterConfig
from ..collective.backends.rowlock import RowlockBackend
from ..collective.forming import Terms
from .nodes import nodes


def at_home(config: ClusterConfig) -> ClusterConfig:
    """Return the configuration that has replicas on this driver's host, unless it names nodes."""
    address = ray.util.get_node_ip_address()
    is_placed = config.nodes is not None or config.node_labels is not None
    if is_placed or address not in {node.address for node in nodes()}:
        return config
    return config.model_copy(update={"nodes": [address]})


def form_here(name: str, rank: int, size: int, within: float, later: float) -> CollectiveGroup:
    """Join a group from a driver, which ``ray.util.collective`` lets no driver do.

    Raises:
        CollectiveError: a rank does not come within so many seconds.
        CollectiveAborted: another rank gave up.
    """
    RowlockBackend.terms[name] = Terms(within, later)
    return RowlockBackend(size, rank, name).group
