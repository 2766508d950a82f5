"""Everything that crosses a process: Ray actors, their step channel, collectives.

Start at ``launch.py`` ``cluster``, which users call as ``with rowlock.cluster(launcher="threads"):``, or at
``gang.py`` ``RayDelivery``.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..strategies.cluster import ClusterConfig


class _CallablePackage(ModuleType):
    """The package ``rowlock.cluster``, which users also call.

    A function of that name could not stay: importing any module of the package binds the package there.
    """

    def __call__(
        self, config: ClusterConfig | None = None, **settings: Any
    ) -> AbstractContextManager[ClusterConfig]:
        """Return :func:`~.launch.cluster` of these settings."""
        from .launch import cluster

        return cluster(config, **settings)


sys.modules[__name__].__class__ = _CallablePackage
