"""fuse_adamw: updates by AdamW become one op; each keeps its decay and its part of the learning rate."""

from __future__ import annotations

from ..ir.graph import Graph
from .fuse_optimizers import gather_updates
from .target import Pass, Target


def fuse_adamw(graph: Graph, target: Target) -> Graph:
    """Gather adamw updates, as ``fuse_all_optimizer_ops`` gathers updates of every rule."""
    return gather_updates(graph, ("adamw",), "fuse_adamw")


PASS = Pass(
    "fuse_adamw",
    fuse_adamw,
    lambda target: target.strategy is not None and target.strategy.fuse_adamw,
    "owners of updates are known; stands before the pass that gathers the other updates",
)
