"""``fluid.transpiler``."""

from __future__ import annotations

from ...graph.transpiler.config import DistributeTranspilerConfig
from ...graph.transpiler.dispatch import HashName, PSDispatcher, RoundRobin
from ...graph.transpiler.distribute import DistributeTranspiler
from ...graph.transpiler.memory_optimize import memory_optimize, release_memory
from ...names import listing, missing
from . import details, distribute_transpiler, geo_sgd_transpiler, ps_dispatcher

__all__ = [
    "DistributeTranspiler",
    "DistributeTranspilerConfig",
    "HashName",
    "PSDispatcher",
    "RoundRobin",
    "details",
    "distribute_transpiler",
    "geo_sgd_transpiler",
    "memory_optimize",
    "ps_dispatcher",
    "release_memory",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
