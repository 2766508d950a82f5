"""``fluid.incubate.fleet.collective``: workers that share gradients, without servers."""

from __future__ import annotations

from typing import Any

from .....cluster.fleet.collective import Collective, CollectiveOptimizer, TrainStatus, fleet
from .....names import missing, publish_listed

__all__ = ["Collective", "CollectiveOptimizer", "DistributedStrategy", "TrainStatus", "fleet"]
_missing = missing(__name__)


def __getattr__(name: str) -> Any:
    if name == "DistributedStrategy":  # it imports Pydantic
        from .....strategies.fleet import DistributedStrategy

        return DistributedStrategy
    return _missing(name)


publish_listed(__name__)
