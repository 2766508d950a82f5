"""NCCL as Ray drives it, for GPUs; Rowlock's own use of NCCL is the backend "rowlock"."""

from __future__ import annotations

from ....executor.cuda.runtime import Runtime
from ....executor.plan.group import CollectiveGroup
from ..forming import Terms
from ..ray_groups import RayGroup


def form(name: str, rank: int, size: int, runtime: Runtime | None, terms: Terms) -> CollectiveGroup:
    """Join a group (see :mod:`~.backends`)."""
    return RayGroup(name, rank, size, "nccl", terms.forming_s)
