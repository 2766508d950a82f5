"""Gang: replicas in lockstep that load programs and hold values. Made of threads or Ray actors.

``ParallelExecutor`` and ``CompiledProgram`` see only this file. How steps run: ``lockstep.py``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ..kernels.capabilities import common
from ..replica import orders
from ..replica.options import RunOptions
from .delivery import Delivery, GangChanged
from .libraries import warn_of_differences
from .lockstep import Lockstep
from .trainers import Card, Table, Trainers
from .worlds import World, Worlds

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig
    from ..device.place import Place
    from ..replica.replica import Replica


class Gang(Lockstep):
    """Replicas that programs can be loaded on. Several programs share one gang and its device scopes."""

    here: Replica | None = None
    """The only replica, if it runs on the driver's thread and on the driver's tensors."""
    singles: dict[Place, Gang]
    alone = False
    """Whether programs run on a replica that does not wait for its peers."""

    def __init__(self, delivery: Delivery, config: ClusterConfig) -> None:
        super().__init__(delivery, config)
        self._started_with = delivery.size
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()  # what may run on it again
        # of these, what named no places: any replica on its place will do
        self.guests: weakref.WeakSet[Any] = weakref.WeakSet()
        self._leaving: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._unwanted: dict[str, list[int]] = {"programs": [], "scopes": []}
        self._memory: dict[int, int] = {}  # program -> what its replicas had when it was loaded
        self.worlds = Worlds(self)

    def left_of(self, places: Sequence[Place]) -> list[Place]:
        """Return the places without those that the gang has lost, if it was started on as many."""
        left = list(places)
        if len(left) == self._started_with:
            for ranks in self.shrunk:
                left = [left[rank] for rank in ranks]
        return left

    def libraries(self) -> frozenset[str]:
        """Return the libraries that all replicas have in one version; one that joins later needs it, too."""
        if self.ledger.libraries is None:
            reports = self._versions()
            warn_of_differences(reports, self.delivery.where)
            self.ledger.libraries = common(reports)
        return frozenset(self.ledger.libraries)

    def _versions(self) -> list[dict[str, str]]:
        return [orders.Versions(**answer.head).versions for answer in self.all(orders.Libraries())]

    # -- other trainers -----------------------------------------------------------------------------

    @property
    def meets_trainers(self) -> bool:
        return bool(self.worlds)

    def world(self, trainers: Trainers, device: str, table: Callable[[], Table]) -> World:
        """Return the group of trainers; they meet first, at a table, if they have not, or if it has ended.

        Raises:
            InvalidValue: trainers disagree about who they are.
            TrainerLost: one does not come within ``ClusterConfig.start_deadline_s``.
            CollectiveError: their replicas cannot form a group.
        """
        with self.turn:
            known = self.worlds.of(trainers)
            if known is not None:
                return known
            shared, backend = common(self._versions()), self.config.collectives
            card = Card(trainers.trainer, trainers.endpoints, self.size, device, shared, backend)
            return self.worlds.enter(trainers, card, table(), self.each)

    # -- programs and values ------------------------------------------------------------------------

    def load(
        self,
        program: ReplicaProgram | str,
        scope: int,
        options: RunOptions | None = None,
        functions: Sequence[int] = (),
    ) -> int:
        """Load a compiled program (or its JSON) on every replica, and return its number there.

        ``options`` (None: of a program without strategies); ``functions``: numbers of the Python functions that
        it calls, which the delivery brings to replicas of other processes.
        """
        number = self.new_id()
        options = options or RunOptions.sequential()
        if self.alone:
            options = replace(options, alone=True)
        load = orders.Load(number, program, scope, options, list(functions))
        with self.turn:
            self._unload()
            answers = self.all(load) if self.here is None else [self.here.on_load(load)]
            self._memory[number] = min(
                orders.ProgramMemory(**answer.head).memory for answer in answers
            )
            self.ledger.programs[number] = load
        return number

    def memory(self, number: int) -> tuple[int, str]:
        """Return the bytes that a loaded program may take on each replica, and whose limit that is."""
        limit = self.config.memory_per_replica_bytes
        if limit is not None:
            return limit, "ClusterConfig.memory_per_replica_bytes allows"
        return self._memory[number], "a place has"

    def forget(self, kind: str, number: int) -> None:
        """Unload a program or a scope (``kind`` "programs" or "scopes") before the next program is loaded."""
        self._unwanted[kind].append(number)

    def _unload(self) -> None:
        if any(self._unwanted.values()) and not self.delivery.broken:
            unwanted = {kind: list(numbers) for kind, numbers in self._unwanted.items()}
            self.all(orders.Unload(unwanted["programs"], unwanted["scopes"]))
            for number in unwanted["programs"]:
                self.ledger.programs.pop(number, None)
                self._memory.pop(number, None)
            for number in unwanted["scopes"]:
                self.ledger.owners.pop(number, None)
                self.ledger.place_values.forget(number)
            for kind, numbers in unwanted.items():  # others may have come meanwhile
                for number in numbers:
                    self._unwanted[kind].remove(number)

    def write(
        self,
        scope: int,
        names: Sequence[str],
        arrays: Sequence[np.ndarray],
        owners: Mapping[str, int] | None = None,
    ) -> None:
        """Write persistables to a device scope of all replicas; one with an owner, on that rank alone."""
        messages, owners = [], owners or {}
        for rank in range(self.size):
            values = [
                (name, array)
                for name, array in zip(names, arrays, strict=True)
                if owners.get(name, rank) == rank
            ]
            write = orders.Write(scope, [name for name, _ in values])
            messages.append(orders.pack(write, [array for _, array in values]))
        with self.turn:
            self.each(messages)
            known = self.ledger.owners.setdefault(scope, {})
            self.ledger.place_values.forget(scope, names)
            for name in names:
                known.pop(name, None)
                if name in owners:
                    known[name] = owners[name]

    def read(self, scope: int, name: str, rank: int = 0) -> np.ndarray:
        """Return a persistable from one replica's device scope; ``rank`` is its number now."""
        ask, idle = orders.pack(orders.Read(scope, [name])), orders.pack(orders.Read(scope, []))
        with self.turn:
            changes = len(self.shrunk)
            while True:
                for ranks in self.shrunk[changes:]:  # a rank that owns its values was not lost
                    rank = ranks.index(rank) if rank in ranks else 0
                changes = len(self.shrunk)
                try:
                    answers = self.each([ask if i == rank else idle for i in range(self.size)])
                except GangChanged:
                    continue
                return answers[rank].arrays[0]

    # -- the end ------------------------------------------------------------------------------------

    def before_close(self, call: Callable[[], None]) -> None:
        """Call a method when the gang is closed in good health, while replicas still answer.

        The gang keeps no reference to its object.
        """
        self._leaving.append(weakref.WeakMethod(call))

    def close(self) -> None:
        """End the replicas; a forked process leaves them to its parent."""
        if not self.owned:
            return
        with self.turn:
            try:
                if not self.delivery.broken:
                    self.drain()
                    for reference in self._leaving:
                        call = reference()
                        if call is not None:
                            call()
            except Exception:  # a replica may be found dead only now
                self._leaving.clear()
                self.worlds.close()
                self.delivery.close()
                raise
            # An interrupt before this leaves the gang, which alone has the newest values, to be closed.
            self._leaving.clear()
            self.worlds.close()
            self.delivery.close()
