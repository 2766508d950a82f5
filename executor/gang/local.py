"""LocalGang: one replica on the driver's own thread, which works on the driver's own tensors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...strategies.current import current_config
from ..device.place import CPUPlace, Place
from .gang import Gang
from .launchers import launcher_of
from .threads import ThreadDelivery

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig
    from ..replica.replica import Replica


class LocalGang(Gang):
    """One replica, :attr:`here`, which the driver calls for steps while none is in flight."""

    here: Replica

    def __init__(self, place: Place, config: ClusterConfig | None = None) -> None:
        config = config or current_config()
        delivery = ThreadDelivery([place], config)
        super().__init__(delivery, config)
        self.here = replica = delivery.replicas[0]
        replica.openmp = 0  # it has the process to itself
        replica.in_driver = True
        replica.form = lambda *rank: launcher_of(config).form(*rank)

    def disown(self) -> None:
        """Go on in a process that was forked: the replica was copied with it, less the threads of its plans."""
        self.turn = threading.RLock()  # another thread of the parent may have the old one
        for loaded in self.here.programs.values():
            loaded.plans.disown()


def launch_threads(places: Sequence[Place], config: ClusterConfig) -> Gang:
    """Start a gang in this process: one CPU's replica on the driver's thread, several on a thread each."""
    if len(places) == 1 and isinstance(places[0], CPUPlace):
        return LocalGang(places[0], config)
    return Gang(ThreadDelivery(places, config), config)
