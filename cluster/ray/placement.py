"""Place replicas on nodes: plan from what the cluster offers, then reserve it with Ray."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from itertools import islice
from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from ...strategies.cluster import ClusterConfig
from ...strategies.errors import PlacementError, nearest
from ...strategies.log import log
from ..primitives.ray_private import free_per_node
from .nodes import NODE_LABEL, Node, assign_gpu_nodes, assign_nodes, nodes

_LOOK_S = 0.25
_BUSY_S = 1.0  # after this long, what is not free is looked for on other nodes
_REPLICA_BYTES = 100 << 20  # of a node's memory, before a replica has any value: 109 MiB measured
_NAMED_NODES = 12  # in a message; the rest is counted


def reserve(
    size: int, config: ClusterConfig, without: Container[str] = (), gpus: Sequence[int] = ()
) -> Any:
    """Return a placement group with one bundle per replica, on the nodes that :func:`plan` chooses.

    If others hold what was planned with, nodes that have it free are taken instead; else it is waited for.
    ``without``: ids of nodes that are not to be used. ``gpus``: the numbers of the GPUs for the first replicas.

    Raises:
        PlacementError: the cluster has not what was asked for, or it is not free within
            ``config.start_deadline_s``.
    """
    deadline = time.monotonic() + config.start_deadline_s
    cluster_nodes, waiting = _usable(without), False
    where = _assign(size, cluster_nodes, config, gpus)
    while True:
        group = _hold(where, needs(config))
        try:
            state = _settled(group, min(deadline, time.monotonic() + _BUSY_S))
        except BaseException:
            remove_placement_group(group)
            raise
        if state == "CREATED":
            return group
        remove_placement_group(group)
        living = _usable(without)
        if living != cluster_nodes:  # one that was planned with has died, and Ray noticed only now
            cluster_nodes, where = living, _assign(size, living, config, gpus)
        elif state == "INFEASIBLE" or time.monotonic() > deadline:
            raise PlacementError(_not_free(size, cluster_nodes, config, state))
        else:
            free = None if gpus else _plan_free(size, cluster_nodes, config)
            if free is None and not waiting:
                waiting = True
                amounts = _amounts({name: much * size for name, much in needs(config).items()})
                log.warning(
                    "waiting for %s, up to %g s: %s",
                    amounts,
                    config.start_deadline_s,
                    _free(cluster_nodes, config),
                )
            where = free or where


def _assign(
    size: int, cluster_nodes: Sequence[Node], config: ClusterConfig, gpus: Sequence[int]
) -> list[Node]:
    """Return the node of each replica; one on a numbered GPU is where that is."""
    if not gpus:
        return plan(size, cluster_nodes, config)
    eligible = choose(cluster_nodes, config)
    others = (gpu for gpu in range(sum(node.gpus for node in eligible)) if gpu not in gpus)
    return assign_gpu_nodes([*gpus, *islice(others, size - len(gpus))], eligible)


def reserve_another(
    nodes_in_use: Sequence[str], size: int, config: ClusterConfig, without: Container[str]
) -> Any:
    """Return a placement group for one of ``size`` replicas, on a node that the others leave room on.

    ``nodes_in_use``: the node id of each of the others. ``without``: ids of nodes that are not to be used.

    Raises:
        PlacementError: as :func:`reserve`.
    """
    where = [node.id for node in plan(size, _usable(without), config)]
    for node in nodes_in_use:
        if node in where:
            where.remove(node)
    there = {"nodes": where[:1], "node_labels": None, "replicas_per_node": None}
    return reserve(1, config.model_copy(update=there), without)


def _usable(without: Container[str]) -> list[Node]:
    return [node for node in nodes() if node.id not in without]


def _plan_free(
    size: int, cluster_nodes: Sequence[Node], config: ClusterConfig
) -> list[Node] | None:
    """Return the node of each replica by what is free now; None if that is not enough, or not known.

    Of what replicas do not need, others may hold all: a slow reservation moves no replica that needs nothing.
    """
    free = free_per_node()
    if free is None:
        return None
    free_nodes = []
    for node in cluster_nodes:
        left = free.get(node.id, {})
        needed = {name: left.get(name, 0.0) for name in needs(config)}
        free_nodes.append(Node(node.id, node.address, {**node.resources, **needed}, node.labels))
    try:
        return plan(size, free_nodes, config)
    except PlacementError:
        return None


def needs(config: ClusterConfig) -> dict[str, float]:
    """Return what Ray reserves for each replica, by resource."""
    cpus = config.num_cpus_per_replica
    return {**({"CPU": cpus} if cpus else {}), **config.resources_per_replica}


def plan(size: int, cluster_nodes: Sequence[Node], config: ClusterConfig) -> list[Node]:
    """Return the node of each replica. ``cluster_nodes``: all nodes, in the order in which places are numbered.

    Raises:
        PlacementError: a node, label or resource that the cluster has not, or no room for all replicas.
    """
    nodes = choose(cluster_nodes, config)
    need = needs(config)
    _check_offered(need, nodes)
    eligible = [node for node in nodes if node.room(need) >= 1]
    most = config.replicas_per_node
    where = assign_nodes(size, eligible, need, most, config.packing)
    if eligible and most is not None:
        _check_per_node(where, eligible, size, config)
    if len(where) < size:
        total = _amounts({name: much * size for name, much in need.items()})
        raise PlacementError(
            f"{_wanted(size, config)} need {total}; {_whole(config)} has {_offers(nodes, need)}: room for "
            f"{len(where)}. Ask for fewer places, or for less each (0 CPUs reserves none)."
        )
    _check_processes(where, size)
    return where


def choose(cluster_nodes: Sequence[Node], config: ClusterConfig) -> list[Node]:
    """Return the nodes that may be used, in the order in which they are.

    Raises:
        PlacementError: there is no node at all, or none with a name or labels that were asked for.
    """
    if not cluster_nodes:
        raise PlacementError(
            "no node is left for replicas: each that lives is cut off from the driver, or unfit. Start another "
            "(ray start --address)."
        )
    if config.nodes is None and config.node_labels is None:
        return [node for node in cluster_nodes if node.cpus] or list(cluster_nodes)
    nodes = list(cluster_nodes) if config.nodes is None else _named(cluster_nodes, config.nodes)
    if config.node_labels is None:
        return nodes
    labels = config.node_labels.items()
    labelled = [node for node in nodes if labels <= node.labels.items()]
    if labelled:
        return labelled
    request = ", ".join(f"{name}={value}" for name, value in labels)
    there = _listed([f"{node.address} has {_labels(node)}" for node in nodes])
    raise PlacementError(
        f"ClusterConfig.node_labels asks for nodes with {request}; there is none: {there}. Ask for labels that "
        f"a node has, or start one with them (ray start --labels)."
    )


def _named(cluster_nodes: Sequence[Node], names: Sequence[str]) -> list[Node]:
    nodes: list[Node] = []
    for name in names:
        matching = [node for node in cluster_nodes if name in (node.address, node.id)]
        if not matching:
            there = _listed([f"{node.address} (id {node.id})" for node in cluster_nodes])
            raise PlacementError(
                f"ClusterConfig.nodes asks for {name!r}; the cluster has {there}. Name its nodes by address or "
                f"id.{nearest(name, [node.address for node in cluster_nodes])}"
            )
        nodes += [node for node in matching if node not in nodes]
    return nodes


def _check_offered(need: Mapping[str, float], nodes: Sequence[Node]) -> None:
    offered = {name for node in nodes for name in node.resources}
    names = sorted(name for name in offered if ":" not in name)  # node:<address> says nothing new
    for name in need:
        if name not in offered and name != "CPU":
            raise PlacementError(
                f"ClusterConfig.resources_per_replica asks for {need[name]:g} {name!r}; no node that may be "
                f"used offers it. They offer {', '.join(names)}.{nearest(name, names)} Start one with it "
                f"(ray start --resources), or leave it out."
            )


def _check_processes(where: Sequence[Node], size: int) -> None:
    """Refuse more processes on a node than its memory can hold, where places reserve nothing."""
    for node, count in Counter(where).items():
        room = node.room({"memory": _REPLICA_BYTES})
        if "memory" in node.resources and count > max(room, node.cpus):
            raise PlacementError(
                f"{size} places put {count} replicas on {node.address}, a process each: it has "
                f"{_amounts({'CPU': node.cpus})} and memory for {room:g}. Ask for fewer places (CPU_NUM, "
                f"cpu_places(n)), or add nodes."
            )


def _check_per_node(
    where: Sequence[Node], eligible: Sequence[Node], size: int, config: ClusterConfig
) -> None:
    most, need = config.replicas_per_node, needs(config)
    for node in eligible:
        if (many := where.count(node)) > node.room(need):
            raise PlacementError(
                f"ClusterConfig.replicas_per_node={most} puts {_wanted(many, config)} on {node.address}, which "
                f"offers {_offers([node], need)}: room for {node.room(need)}. Lower it, or choose other nodes "
                f"(ClusterConfig.nodes, node_labels)."
            )
    if len(where) < size:
        raise PlacementError(
            f"{size} places, {most} on each node (ClusterConfig.replicas_per_node), need "
            f"{-(-size // (most or 1))} nodes; {len(eligible)} can hold replicas: "
            f"{_listed([node.address for node in eligible])}. Ask for at most {len(where)} "
            f"place{'s' * (len(where) != 1)}, raise "
            f"replicas_per_node, or add nodes."
        )


def _hold(where: Sequence[Node], need: Mapping[str, float]) -> Any:
    return placement_group(
        [dict(need) or {"memory": 1}] * len(where),  # a bundle must hold something
        strategy="PACK",
        bundle_label_selector=[{NODE_LABEL: node.id} for node in where],
    )


def _settled(group: Any, deadline: float) -> str:
    """Return CREATED, INFEASIBLE, or the state that lasts until the deadline."""
    while not group.wait(_LOOK_S):
        state: str = placement_group_table(group)["stats"]["scheduling_state"]
        if state == "INFEASIBLE" or time.monotonic() > deadline:
            return state
    return "CREATED"


def _free(cluster_nodes: Sequence[Node], config: ClusterConfig) -> str:
    free = ray.available_resources()
    parts = []
    for name in needs(config) or ("CPU",):
        total = sum(node.resources.get(name, 0) for node in cluster_nodes)
        parts.append(f"{free.get(name, 0):g} of its {_amounts({name: total})}")
    return f"{', '.join(parts)} are free"


def _not_free(size: int, cluster_nodes: Sequence[Node], config: ClusterConfig, state: str) -> str:
    return (
        f"Ray cannot place {_wanted(size, config)}: {state.lower().replace('_', ' ')}. "
        f"{_free(cluster_nodes, config)}. Waited up to {config.start_deadline_s:g} s "
        f"(ClusterConfig.start_deadline_s): end what holds the rest, ask for fewer places, or wait longer."
    )


def _wanted(size: int, config: ClusterConfig) -> str:
    cpus, others = config.num_cpus_per_replica, config.resources_per_replica
    parts = [f"{_amounts({'CPU': cpus})} each (ClusterConfig.num_cpus_per_replica)"]
    if others:
        parts.append(f"{_amounts(others)} each (ClusterConfig.resources_per_replica)")
    return f"{size} replicas with {' and '.join(parts)}"


def _whole(config: ClusterConfig) -> str:
    limited = config.nodes is not None or config.node_labels is not None
    return "what ClusterConfig.nodes and node_labels leave" if limited else "the cluster"


def _offers(cluster_nodes: Sequence[Node], need: Mapping[str, float]) -> str:
    def of(node: Node) -> str:
        return _amounts({name: node.resources.get(name, 0) for name in need})

    return _listed([f"{of(node)} ({node.address})" for node in cluster_nodes])


def _amounts(resources: Mapping[str, float]) -> str:
    def of(name: str, much: float) -> str:
        if name == "CPU":
            return f"{much:g} CPU{'s' * (much != 1)}"
        return f"{much:.12g} bytes of memory" if name == "memory" else f"{much:g} {name}"

    return ", ".join(of(name, much) for name, much in resources.items())


def _labels(node: Node) -> str:
    own = [f"{k}={v}" for k, v in sorted(node.labels.items()) if not k.startswith("ray.io/")]
    return ", ".join(own) or "none of its own"


def _listed(parts: Sequence[str]) -> str:
    rest = len(parts) - _NAMED_NODES
    return ", ".join(parts[:_NAMED_NODES]) + (f" and {rest} more" if rest > 0 else "")
