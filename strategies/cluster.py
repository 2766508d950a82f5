"""ClusterConfig: where replicas run, and how long anything may take."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import field_validator

from .base import Strategy, effect

_OWN_FIELDS = {"CPU": "use num_cpus_per_replica", "GPU": "a place on a GPU reserves one"}
_LEAST_AMOUNT = 0.0001  # Ray counts resources in these

CPU_BUCKET_BYTES = 2 << 20
# NCCL reaches a link's rate with some megabytes, and each launch takes microseconds
GPU_BUCKET_BYTES = 25 << 20


class ClusterConfig(Strategy):
    """Where replicas run, how they talk to each other, and what happens when one is lost.

    Launching:
        launcher: "ray" (actors) or "threads" (of this process; fields about nodes have no effect).
        address: the Ray cluster to join if none is initialised; None: start a local one.
        start_deadline_s: seconds until actors that did not start, or trainers that did not come, are an error.

    Placing:
        nodes: addresses or node ids, in the order in which they are used (an address stands for all nodes that
            have it). node_labels: labels that a node must have, all of them. Neither: all nodes with a CPU.
        num_cpus_per_replica, resources_per_replica: what Ray reserves for each replica: CPUs (0: none), and
            other resources by name ("memory" in bytes). Nodes that lack them are passed over.
        packing: "fill" fills one node after the other, "spread" goes round them.
        replicas_per_node: so many on each node, fewer on the last; None: as many as the node has CPUs for (a
            replica that reserves none counts for one), and one more each once all nodes are full.

    On a host:
        threads_per_replica: threads of the array library.
        pin_replicas: each keeps to its share of the host's cores while no other process needs them.
        memory_per_replica_bytes: a step that needs more is refused before it runs; None: the memory that the
            host has available, divided by its replicas.

    Talking:
        transport: how steps reach replicas: "socket", or "actor" (ordinary actor calls, slower, where nodes
            cannot connect to the driver).
        steps_in_flight: how many steps of ``Executor.run_async`` may wait for their results.
        collectives: "rowlock" (ours), or those of ``ray.util.collective``: "gloo" (needs PyTorch), "nccl".
        bucket_bytes: gradient bytes in one all-reduce; None: 2 MiB among CPUs, 25 MiB among GPUs.

    Failures:
        heartbeat_deadline_s: seconds without a heartbeat until a replica that the driver waits for is probed;
            it is lost if its process does not run.
        step_deadline_s, collective_deadline_s: seconds until a replica that does not answer, or a rank that
            does not come to a collective, is given up.
        on_failure: "replace" puts a spare or a new actor in a lost replica's place, "shrink" goes on with
            fewer, "raise" reports it and replaces it at the next run.
        spares: actors that stand by.
        max_failures: after so many losses in a row, without a step in between, the failure is raised.

    Parameter servers:
        staleness_bound: how many steps of others may be applied between what a trainer computes on and its own
            gradients; None: any number. A trainer that would make others' staler waits.
        lost_trainer: "stop" ends the servers when a trainer is lost, and names it; "continue" goes on without.
        trainer_deadline_s: seconds until a trainer whose connections ended, or that is silent, is lost; one
            that comes again before goes on behind the last step that all servers have.
        server_snapshot_folder: where servers write snapshots, from which a lost one is restored (None: none);
            every node that may host a server must see it. server_snapshot_steps: one in so many steps; trainers
            store the gradients of the steps since, and send them again.
    """

    launcher: Literal["ray", "threads"] = effect("ray")
    address: str | None = effect(None)
    threads_per_replica: int = effect(1, ge=1)
    pin_replicas: bool = effect(True)
    num_cpus_per_replica: float = effect(0.0, ge=0, strict=False, allow_inf_nan=False)
    resources_per_replica: dict[str, float] = effect({})
    nodes: list[str] | None = effect(None, min_length=1)
    node_labels: dict[str, str] | None = effect(None, min_length=1)
    replicas_per_node: int | None = effect(None, ge=1)
    packing: Literal["fill", "spread"] = effect("fill")
    start_deadline_s: float = effect(60.0, gt=0, strict=False)
    step_deadline_s: float = effect(300.0, gt=0, strict=False)
    collective_deadline_s: float = effect(300.0, gt=0, strict=False)
    heartbeat_deadline_s: float = effect(0.75, gt=0, strict=False)
    bucket_bytes: int | None = effect(None, ge=1)
    memory_per_replica_bytes: int | None = effect(None, ge=1)
    collectives: Literal["rowlock", "gloo", "nccl"] = effect("rowlock")
    transport: Literal["socket", "actor"] = effect("socket")
    steps_in_flight: int = effect(2, ge=1)
    on_failure: Literal["replace", "shrink", "raise"] = effect("replace")
    spares: int = effect(0, ge=0)
    max_failures: int = effect(3, ge=0)
    staleness_bound: int | None = effect(None, ge=0)
    lost_trainer: Literal["stop", "continue"] = effect("stop")
    server_snapshot_folder: str | None = effect(None, min_length=1)
    server_snapshot_steps: int = effect(10, ge=1)
    trainer_deadline_s: float = effect(30.0, gt=0, strict=False)

    @field_validator("resources_per_replica")
    @classmethod
    def _amounts(cls, resources: dict[str, float]) -> dict[str, float]:
        for name, amount in resources.items():
            if name in _OWN_FIELDS:
                raise ValueError(f"{name!r} cannot be listed here ({_OWN_FIELDS[name]})")
            if not math.isfinite(amount) or amount < _LEAST_AMOUNT:
                raise ValueError(f"{name!r} must be a number from {_LEAST_AMOUNT} up")
        return resources

    @field_validator("nodes")
    @classmethod
    def _once_each(cls, nodes: list[str] | None) -> list[str] | None:
        twice = sorted({name for name in nodes or [] if (nodes or []).count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} is listed twice")
        return nodes
