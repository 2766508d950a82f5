"""The nodes of the Ray cluster that was joined, in the order in which places are numbered."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from itertools import chain, cycle, islice, repeat

import ray

NODE_LABEL = "ray.io/node-id"


@dataclass(frozen=True)
class Node:
    """A node: its id and address, and the CPUs and GPUs it offers."""

    id: str
    address: str
    cpus: int
    gpus: int


def nodes() -> list[Node]:
    """Return the living nodes by address, then id: the same order whoever asks, and whoever joined first."""
    found = [
        Node(
            entry["NodeID"],
            entry["NodeManagerAddress"],
            int(entry["Resources"].get("CPU", 0)),
            int(entry["Resources"].get("GPU", 0)),
        )
        for entry in ray.nodes()
        if entry["Alive"]
    ]
    return sorted(found, key=lambda node: (_sortable(node.address), node.id))


def homes(places: int, found: list[Node], cpus_each: float = 1.0) -> list[Node]:
    """Return the node of each CPU place: nodes are filled in order, and once all are full, one more each.

    ``cpus_each``: CPUs that a place takes (0: as if 1).
    """
    each = cpus_each or 1.0
    full = chain.from_iterable(repeat(node, int(node.cpus / each)) for node in found)
    able = [node for node in found if node.cpus] or found
    return list(islice(chain(full, cycle(able)), places))


def gpu_total() -> int:
    """Return the GPUs of all nodes; 0 while no Ray is initialised."""
    return sum(node.gpus for node in nodes()) if ray.is_initialized() else 0


def _sortable(address: str) -> tuple[int, int, str]:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return (9, 0, address)
    return (parsed.version, int(parsed), "")
