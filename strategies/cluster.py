"""ClusterConfig: where replicas run, and how long anything may take."""

from __future__ import annotations

from typing import Literal

from .base import Strategy, effect


class ClusterConfig(Strategy):
    """How gangs are launched.

    ``launcher``: "ray" (actors) or "threads" (of this process). ``address``: the Ray cluster to join if none
    is initialised (None: start a local one). ``threads_per_replica``: threads of the array library.
    ``num_cpus_per_replica``: CPUs that Ray reserves for each replica (0: none).
    ``*_deadline_s``: seconds. ``bucket_bytes``: gradient bytes that travel in one all-reduce.
    """

    launcher: Literal["ray", "threads"] = effect("ray")
    address: str | None = effect(None)
    threads_per_replica: int = effect(1, ge=1)
    num_cpus_per_replica: float = effect(0.0, ge=0, strict=False)
    start_deadline_s: float = effect(60.0, gt=0, strict=False)
    step_deadline_s: float = effect(300.0, gt=0, strict=False)
    collective_deadline_s: float = effect(60.0, gt=0, strict=False)
    bucket_bytes: int = effect(4 << 20, ge=1)
