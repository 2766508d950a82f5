"""Persistables on the replicas, and the driver's scope as a view of them."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence, Set

import numpy as np

from ...graph.ir.graph import EVERYWHERE
from ...graph.ops.registry import Spec
from ...strategies.errors import InvalidState, ValuesLost, first_of
from ..device.device_scope import SharedScope
from ..device.tensor import Storage, Tensor
from ..feed.scope import Scope
from ..gang.assign import Change, assign
from ..gang.delivery import VALUES_GONE, GangChanged
from ..gang.gang import Gang
from ..gang.turns import Lock, NeedsTurn
from ..host.arena import spec_of
from ..host.memory import available_memory


class Values:
    """The persistables of a program, and of programs that share them, as its replicas hold them.

    ``version`` counts the steps that wrote; ``written``: names that programs write; ``owners``: the rank of
    each persistable that one replica alone holds; ``own``: names of those that differ by replica.
    """

    def __init__(self, gang: Gang, scope: Scope) -> None:
        self.gang = gang
        self.scope = scope
        self.id = gang.new_id()
        self.version = 0
        self.written: set[str] = set()
        self.owners: dict[str, int] = {}
        self.own: set[str] = set()
        weakref.finalize(self, gang.forget, "scopes", self.id)

    def spec(self, name: str) -> Spec | None:
        """Return shape and type of the driver's tensor of a name; None if it holds no value."""
        tensor = self.scope.find_tensor(name)
        return spec_of(tensor.memory(newest=False)) if tensor and tensor.initialized else None

    def note_own(self, names: Collection[str], by_driver: Collection[str]) -> None:
        """Note persistables that differ by place, and those of them that the driver keeps (``by_driver``)."""

    def check_reachable(self, names: Iterable[str]) -> None:
        """Refuse a step that needs values which were lost with their replicas."""

    def adopt(self, names: Sequence[str], owners: Mapping[str, int], needed: Set[str]) -> None:
        """Before a step: make the replicas hold the newest values of ``needed``."""

    def flush(self) -> None:
        """Send the values that the user wrote since the last step; called before each step."""

    def stepped(self, written: Iterable[str]) -> None:
        """Note the values that a step on the driver's thread wrote."""

    def fill(self) -> None:
        """After a step: fetch values that the driver's scope lacks."""

    def follow(self, shrunk: Sequence[Sequence[int]]) -> None:
        """Go on with the replicas that are there now; ``shrunk``: each time, the ranks they had before."""


class SharedValues(Values):
    """Values of a replica on the driver's thread: it works on the tensors of the driver's scope themselves."""

    def __init__(self, gang: Gang, scope: Scope) -> None:
        super().__init__(gang, scope)
        assert gang.here is not None
        self._here = gang.here
        # It must not hold these values, which take their scope with them when they go.
        self.shared = SharedScope(lambda name: scope.home(name).get_tensor(), scope.find_tensor)
        self.moves = 0  # how often tensors were found to have other memory
        self._here.scopes[self.id] = self.shared

    def tensors(self, names: Iterable[str]) -> list[Tensor]:
        """Return the tensors of these names."""
        return [self.scope.home(name).get_tensor() for name in names]

    def room(self, number: int, names: Iterable[str]) -> int:
        """Return the bytes that a loaded program may take, with those of its persistables there already."""
        there = [t.memory(newest=False).nbytes for t in self.tensors(names) if t.initialized]
        return available_memory() + sum(there) + self._here.programs[number].memory.taken

    def adopt(self, names: Sequence[str], owners: Mapping[str, int], needed: Set[str]) -> None:
        """Fetch what other replicas made newer; bind anew what reads memory that a tensor has no more."""
        tensors = self.tensors(name for name in names if name in needed)
        for tensor in tensors:
            if tensor.link is not None:
                tensor.memory()
        if self.shared.generation != Storage.generation:
            self.rebind()
        for tensor in tensors:
            self.shared.arrays.setdefault(tensor.name, tensor.memory(newest=False))

    def rebind(self) -> None:
        """Forget plans that read memory which tensors have no more."""
        generation = Storage.generation
        # An interrupt leaves the generation behind, so that this is done again.
        if self.shared.moved:
            self.moves += 1
            self._here.forget_plans(self.id)
            self.shared.arrays.clear()
        self.shared.generation = generation

    def stepped(self, written: Iterable[str]) -> None:
        """Have other replicas that use these persistables get them before their next step."""
        for tensor in self.tensors(written):
            if tensor.link is not None:
                tensor.written()


class DeviceValues(Values):
    """A device scope on every replica: the persistables of one program and of those that share them.

    It is the :class:`Link` of the driver's tensors. The newest value of the driver's scope counts, whichever
    program made it. ``lost``: names whose newest value is gone with a replica that alone had it.
    """

    def __init__(self, gang: Gang, scope: Scope) -> None:
        super().__init__(gang, scope)
        self._stamps: dict[
            str, tuple[int, int]
        ] = {}  # of the values held when `version` was so many
        self._followed = len(gang.shrunk)
        self.dirty: set[str] = set()
        self.lost: set[str] = set()
        self._tensors: dict[str, Tensor] = {}
        self._adopted: Sequence[str] | None = None
        self._generation = -1  # of tensors' memory, when the names were adopted
        self._unfilled: list[Tensor] = []  # of the driver's, since the names were adopted
        gang.before_close(self.bring_home)

    def bring_home(self) -> None:
        """Fetch the newest values into the driver's scope, which from then on stands alone."""
        there = [tensor for tensor in self._tensors.values() if tensor.link is self]
        linked = [tensor for tensor in there if not _is_lost(tensor)]
        for tensor in linked:
            if tensor.initialized:
                tensor.memory()
        # What the user writes now is sent if an interrupt keeps the gang from being closed.
        self.dirty.update(tensor.name for tensor in linked if tensor.name not in self.own)
        assign(*((tensor, "link", None) for tensor in linked))

    def note_own(self, names: Collection[str], by_driver: Collection[str]) -> None:
        """Note the persistables of which each place may have a value of its own, and which the driver keeps."""
        self.own.update(names)
        large = self.gang.ledger.place_values.too_large
        large[self.id] = (large.get(self.id, set()) | set(names)) - set(by_driver)

    @property
    def turn(self) -> Lock:
        """The lock around reads, and around notes of writes."""
        self.gang.check_caller()
        return self.gang.turn

    @property
    def names(self) -> list[str]:
        """Names of the persistables held."""
        return list(self._tensors)

    def settle(self) -> None:
        """Have all steps happen that were begun, also those that became void as replicas were lost."""
        gang = self.gang
        voids = gang.config.on_failure == "shrink" or not gang.heals
        if voids and not gang.has_turn():
            gang.drain()
            while gang.voided:
                gang.go_on()
                gang.drain()

    def pull(self, name: str) -> np.ndarray:
        """Return the value of ``name`` at its owner, or on replica 0.

        Raises:
            ValuesLost: a replica alone had it, and is gone.
        """
        while True:
            self.follow(self.gang.shrunk)
            self._refuse_lost([name])
            try:
                return self.gang.read(self.id, name, self.owners.get(name, 0))
            except GangChanged:
                continue

    def _refuse_lost(self, names: Iterable[str]) -> None:
        """Raise if one of these names has no value any more, neither here nor from the user."""
        lost = self.lost.difference(self.dirty)
        if lost.isdisjoint(names):
            return
        raise ValuesLost(
            f"{len(lost)} persistables have no value ({first_of(sorted(lost))}): a program that ran on one "
            f"replica alone wrote them there, and that replica is gone. Set them again (run the startup "
            f"program, or load them)."
        )

    def check_reachable(self, names: Iterable[str]) -> None:
        """Refuse to begin without values that were lost with the replicas that held them.

        Raises:
            InvalidState: names them.
        """
        if not self.gang.delivery.broken:
            return
        tensors = [self._tensors[name] for name in names if name in self._tensors]
        lost = [t.name for t in tensors if t.link is self and t.newer_elsewhere]
        if lost:
            raise InvalidState(
                f"{len(lost)} persistables have no value ({first_of(lost)}): {VALUES_GONE}"
            )

    def adopt(self, names: Sequence[str], owners: Mapping[str, int], needed: Set[str]) -> None:
        """Let the driver's tensors of these names be views of this device scope, from the user's values.

        A name whose holders change (another program needs it elsewhere) is fetched and sent again. ``needed``:
        the names that are read before they are written; of the others, what lost replicas held is not missed.

        Raises:
            ValuesLost: a replica alone had some of the needed, and is gone.
        """
        if not self.gang.heals:
            self.follow(self.gang.shrunk)
        generation = Storage.generation
        if names is not self._adopted or generation != self._generation:
            self._take(names, owners)
            self._adopted, self._generation = names, generation
            self._unfilled = [t for t in self._tensors.values() if not t.initialized]
        for tensor in self._tensors.values():
            if tensor.link is not self:
                self._link(tensor, needed)
        if self.lost:
            self._refuse_lost(needed)
            # A step writes the others before it reads them.
            self.dirty.update(self.lost.intersection(names))
            self.lost.difference_update(names)

    def _link(self, tensor: Tensor, needed: Set[str]) -> None:
        """Let a tensor of the driver be a view of this device scope, from its newest value."""
        name = tensor.name
        if isinstance(tensor.link, DeviceValues):
            if not tensor.link.gang.has_turn():
                raise NeedsTurn(tensor.link.gang)
            tensor.link.hand_over(tensor)
        stamp, _ = self._stamps.get(name, (0, 0))
        if stamp != tensor.stamp or tensor.link is None:
            self.dirty.add(name)
        is_lost = name not in needed and _is_lost(tensor)
        if name in self.dirty and tensor.initialized and not is_lost:
            tensor.memory()  # what another program's replicas made of it, before the link changes
        tensor.link_version = -1  # first: an interrupt in between leaves nothing stale
        tensor.link = self

    def fill(self) -> None:
        """Fetch, after a step, values that the driver's scope lacks, such as a startup program's results."""
        for tensor in self._unfilled:
            if tensor.link is self and tensor.name not in self.dirty:
                tensor.memory()
        self._unfilled = []

    def hand_over(self, tensor: Tensor) -> None:
        """Tell a value that steps made here from those before, for another program's replicas to see."""
        self.follow(self.gang.shrunk)
        name = tensor.name
        before = self._stamps.get(name, (0, -1))[1]
        if name in self.written and name not in self.dirty and before != self.version:
            tensor.renew()
            self._stamps[name] = tensor.stamp, self.version

    def _take(self, names: Sequence[str], owners: Mapping[str, int]) -> None:
        for name in names:
            owner = owners.get(name, EVERYWHERE)
            tensor = self.scope.home(name).get_tensor()
            if self._tensors.get(name) is not tensor:
                self.dirty.add(name)  # first: an interrupt leaves no name that is never sent
                self._tensors[name] = tensor
            elif self.owners.get(name, EVERYWHERE) != owner:
                if tensor.link is self and tensor.initialized:
                    tensor.memory()
                self.dirty.add(name)
            if owner == EVERYWHERE:
                self.owners.pop(name, None)
            else:
                self.owners[name] = owner

    def follow(self, shrunk: Sequence[Sequence[int]]) -> None:
        """Number owners as the replicas are numbered now; ``shrunk``: each time, the ranks they had before.

        Where a replica came in that nobody could give the values, send those that the driver has once more, and
        note which it has not.
        """
        if self._followed == len(shrunk):
            return
        owners = self.owners
        for ranks in shrunk[self._followed :]:
            owners = {name: ranks.index(rank) for name, rank in owners.items()}
        changes: list[Change] = [(self, "owners", owners), (self, "_adopted", None)]
        if not self.gang.heals:
            there = [tensor for tensor in self._tensors.values() if tensor.link is self]
            lost = {tensor.name for tensor in there if tensor.newer_elsewhere}
            self.dirty.update(tensor.name for tensor in there if tensor.name not in lost)
            changes += [(self, "lost", self.lost | lost), (self, "_stamps", {})]
        assign(*changes, (self, "_followed", len(shrunk)))

    def flush(self) -> None:
        if not self.dirty:
            return
        dirty = sorted(self.dirty.intersection(self._tensors))
        names = [name for name in dirty if self._tensors[name].initialized]
        arrays = [self._tensors[name].memory() for name in names]
        self.gang.write(self.id, names, arrays, self.owners)
        self._stamps.update({name: (self._tensors[name].stamp, self.version) for name in names})
        for name in names:
            self._tensors[name].link_version = self.version
        self.lost.difference_update(names)
        self.dirty.difference_update(dirty)


def _is_lost(tensor: Tensor) -> bool:
    """Tell whether the newest value was on replicas that are gone."""
    link = tensor.link
    if not isinstance(link, DeviceValues) or not tensor.newer_elsewhere:
        return False
    return link.gang.delivery.broken or tensor.name in link.lost
