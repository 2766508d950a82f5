"""``fluid.incubate.fleet.collective``: workers that share gradients, without servers."""

from __future__ import annotations

from typing import Any

from .....cluster.fleet.collective import Collective, CollectiveOptimizer, TrainStatus, fleet
from .....names import listing, missing

__all__ = ["Collective", "CollectiveOptimizer", "DistributedStrategy", "TrainStatus", "fleet"]
__dir__ = listing(__name__)
_missing = missing(__name__)


def __getattr__(name: str) -> Any:
    if name == "DistributedStrategy":  # it imports Pydantic
        from .....strategies.fleet import DistributedStrategy

        return DistributedStrategy
    return _missing(name)
