"""GLOO, which Ray brings through PyTorch; arrays of a GPU go by way of the host."""

from __future__ import annotations

from ....executor.cuda.runtime import Runtime
from ....executor.gang.staged import StagedGroup
from ....executor.plan.group import CollectiveGroup
from ..forming import Terms
from ..ray_groups import RayGroup


def form(name: str, rank: int, size: int, runtime: Runtime | None, terms: Terms) -> CollectiveGroup:
    """Join a group (see :mod:`~.backends`)."""
    group = RayGroup(name, rank, size, "gloo", terms.forming_s)
    return group if runtime is None else StagedGroup(group, runtime)
