"""Backends of collectives: a module for each, called what ``ClusterConfig.collectives`` calls it.

Each has a function ``form(name, rank, size, runtime, terms)`` that returns a ``CollectiveGroup``
(``executor/plan/group.py``): rank ``rank`` of ``size`` in the group ``name``, whose arrays lie on the GPU
``runtime`` (None: on the host). ``terms`` say how long others are waited for, and whether the driver still
wants the group; a backend that cannot form it raises CollectiveError or CollectiveAborted.
"""

from __future__ import annotations

import importlib
import pkgutil

from ....executor.cuda.runtime import Runtime
from ....executor.plan.group import CollectiveGroup
from ....strategies.errors import CollectiveError
from ..forming import Terms


def form_group(
    name: str,
    rank: int,
    size: int,
    backend: str = "rowlock",
    runtime: Runtime | None = None,
    terms: Terms | None = None,
) -> CollectiveGroup:
    """Join the group ``name`` as ``rank``; called inside each actor.

    Raises:
        CollectiveError: a rank does not come, or the backend is not known or cannot work here.
        CollectiveAborted: the driver, or another rank, gave the group up.
    """
    backends = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if backend not in backends:
        raise CollectiveError(
            f"collective backend {backend!r} is not one of {', '.join(backends)}."
        )
    module = importlib.import_module(f".{backend}", __name__)
    group: CollectiveGroup = module.form(name, rank, size, runtime, terms or Terms())
    return group
