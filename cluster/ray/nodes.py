"""The nodes of the Ray cluster that was joined, in the order in which places are numbered."""

from __future__ import annotations

import contextlib
import ipaddress
import math
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice, repeat

import ray

from ...strategies.cluster import ClusterConfig
from ...strategies.errors import PlacementError

NODE_LABEL = "ray.io/node-id"
GPU = "GPU"  # Ray's name of the resource
_ROUNDING = 1e-6  # 0.3 / 0.1 is a little less than 3


@dataclass(frozen=True)
class Node:
    """A node: id, address, resources by name ("CPU", "GPU", "memory" in bytes), and labels."""

    id: str
    address: str
    resources: Mapping[str, float] = field(default_factory=dict, compare=False)
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def cpus(self) -> int:
        """Whole CPUs."""
        return int(self.resources.get("CPU", 0))

    @property
    def gpus(self) -> int:
        """Whole GPUs."""
        return int(self.resources.get("GPU", 0))

    def room(self, need: Mapping[str, float]) -> float:
        """Return how many replicas the node can hold that need this much each (inf: nothing is needed)."""
        fits = [self.resources.get(name, 0) / much for name, much in need.items()]
        return math.floor(min(fits) + _ROUNDING) if fits else math.inf


def nodes() -> list[Node]:
    """Return the living nodes by address, then id: the same order in every process, whichever joined first."""
    cluster_nodes = [
        Node(
            entry["NodeID"],
            entry["NodeManagerAddress"],
            dict(entry["Resources"]),
            dict(entry.get("Labels") or {}),
        )
        for entry in ray.nodes()
        if entry["Alive"]
    ]
    return sorted(cluster_nodes, key=lambda node: (_sortable(node.address), node.id))


def reachable(node: str, within: float) -> bool:
    """Tell whether a node lives and takes connections, as a kernel does however busy its host is."""
    for entry in ray.nodes():
        if entry["NodeID"] == node and entry["Alive"]:
            address = entry["NodeManagerAddress"], entry["NodeManagerPort"]
            with contextlib.suppress(OSError), socket.create_connection(address, within):
                return True
    return False


def assign_nodes(
    places: int,
    cluster_nodes: Sequence[Node],
    need: Mapping[str, float] | None = None,
    per_node: int | None = None,
    packing: str = "fill",
) -> list[Node]:
    """Return the node of each CPU place; fewer than ``places`` if the nodes have no room for more.

    "fill" takes one node after the other, "spread" goes round them. A node is full with ``per_node`` places;
    without it, when its CPUs are taken (as if a place took 1, if it needs none). Once all are full, each
    takes one more in turn while it has what a place needs.
    """
    need = need or {}
    each = need.get("CPU") or 1.0
    if per_node is not None:
        full: list[float] = [per_node] * len(cluster_nodes)
        more: list[float] = [0.0] * len(cluster_nodes)
    else:
        room = [node.room(need) for node in cluster_nodes]
        full = [
            min(fits, node.room({"CPU": each}))
            for node, fits in zip(cluster_nodes, room, strict=True)
        ]
        more = [fits - slots for fits, slots in zip(room, full, strict=True)]
    first = _in_turn(cluster_nodes, full) if packing == "spread" else _in_order(cluster_nodes, full)
    return list(islice(chain(first, _in_turn(cluster_nodes, more)), places))


def assign_gpu_nodes(gpus: Sequence[int], cluster_nodes: Sequence[Node]) -> list[Node]:
    """Return the node of each GPU by its number: they are counted node by node.

    Raises:
        PlacementError: there is no such GPU.
    """
    owners = [node for node in cluster_nodes for _ in range(node.gpus)]
    missing = [gpu for gpu in gpus if gpu >= len(owners)]
    if missing:
        there = ", ".join(f"{node.gpus} on {node.address}" for node in cluster_nodes)
        raise PlacementError(
            f"GPU {missing[0]} is asked for; the cluster has {len(owners)} ({there})."
        )
    return [owners[gpu] for gpu in gpus]


def _in_order(cluster_nodes: Sequence[Node], slots: Sequence[float]) -> Iterator[Node]:
    pairs = zip(cluster_nodes, slots, strict=True)
    return chain.from_iterable(repeat(node, int(many)) for node, many in pairs)


def _in_turn(cluster_nodes: Sequence[Node], slots: Sequence[float]) -> Iterator[Node]:
    """Yield one node after the other, round and round, each as often as it has slots."""
    for turn in count():
        eligible = [node for node, many in zip(cluster_nodes, slots, strict=True) if turn < many]
        if not eligible:
            return
        yield from eligible


def gpu_total() -> int:
    """Return the GPUs of all nodes; 0 while no Ray is initialised."""
    return sum(node.gpus for node in nodes()) if ray.is_initialized() else 0


def _sortable(address: str) -> tuple[int, int, str]:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return (9, 0, address)
    return (parsed.version, int(parsed), "")


def at_home(config: ClusterConfig) -> ClusterConfig:
    """Return the configuration that has replicas on this driver's host, unless it names nodes."""
    address = ray.util.get_node_ip_address()
    is_placed = config.nodes is not None or config.node_labels is not None
    if is_placed or address not in {node.address for node in nodes()}:
        return config
    return config.model_copy(update={"nodes": [address]})
