"""PlanCache: a segment's plans by the shapes that were fed, as many as their memory budget allows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from ..plan.instruction import SharedPart

PLANS_KEPT = 16  # of a segment at least: one for each combination of feed shapes met lately
BYTES_KEPT = 256 << 20  # of more plans than that: 200 lengths of a decoder, 35 plans each
KEYS_KEPT = 1 << 14  # where shapes follow from elements, many keys come to the same shapes


class Keepable(Protocol):
    """A bound plan."""

    @property
    def size(self) -> int:
        """The bytes that it takes beside its parts, and memory that all plans share."""

    @property
    def parts(self) -> Sequence[SharedPart]:
        """What other plans may have as well."""

    def close(self) -> None:
        """Let go of what it holds."""


Bound = TypeVar("Bound", bound=Keepable)


class PlanBudget(Generic[Bound]):
    """The bytes that plans of all segments of a program may take together.

    The plan that was used least lately goes first, of segments that have more than a few. What several plans
    have counts once. ``most``: how many bytes they may take in all.
    """

    def __init__(self, most: int = BYTES_KEPT) -> None:
        self.most, self._size = most, 0
        self._caches: OrderedDict[Bound, tuple[PlanCache[Bound], Sequence[SharedPart]]] = (
            OrderedDict()
        )
        self._users: dict[SharedPart, int] = {}  # how many of the plans have a part

    def use(self, bound: Bound) -> None:
        """Note that a plan is used."""
        self._caches.move_to_end(bound)

    def add(self, bound: Bound, cache: PlanCache[Bound]) -> None:
        """Count a plan of a segment, and let go of what is too much then."""
        parts, users = bound.parts, self._users
        self._caches[bound] = cache, parts
        self._size += bound.size
        for part in parts:
            others = users.get(part, 0)
            users[part] = others + 1
            if not others:
                self._size += part.nbytes
        while self._size > self.most:
            pairs = self._caches.items()
            oldest = next((plan for plan, (of, _) in pairs if len(of) > PLANS_KEPT), None)
            if oldest is None:
                return
            self._caches[oldest][0].forget(oldest)

    def remove(self, bound: Bound) -> None:
        """Count a plan no longer; an interrupt may have kept some of it from being counted."""
        entry = self._caches.pop(bound, None)
        if entry is None:
            return
        self._size -= bound.size
        for part in entry[1]:
            others = self._users.pop(part, 1) - 1
            if others:
                self._users[part] = others
            else:
                self._size -= part.nbytes


class PlanCache(Generic[Bound]):
    """Keeps plans under keys, which tell what was fed; several keys may come to the shapes of one plan.

    ``budget``: how many bytes they may take, with those of other segments (None: alone). An interrupt at any
    bytecode leaves a plan that was being kept, or forgotten, without a key: it is closed with the others.
    """

    def __init__(self, budget: PlanBudget[Bound] | None = None) -> None:
        self._budget = budget or PlanBudget[Bound]()
        self._by_key: OrderedDict[Hashable, Bound] = OrderedDict()
        self._by_shapes: dict[Hashable, Bound] = {}
        # Of each plan: its shapes, and the keys under which it is kept
        self._plans: dict[Bound, tuple[Hashable, set[Hashable]]] = {}

    def __len__(self) -> int:
        return len(self._plans)

    def __iter__(self) -> Iterator[Bound]:
        """Return the plans."""
        return iter(list(self._plans))

    def get(self, key: Hashable) -> Bound | None:
        """Return the plan kept under a key, if there is one."""
        bound = self._by_key.get(key)
        if bound is not None:
            self._budget.use(bound)
        return bound

    def alike(self, shapes: Hashable) -> Bound | None:
        """Return a plan that was bound for values of these shapes, whatever elements they followed from."""
        return self._by_shapes.get(shapes)

    def keep(self, key: Hashable, shapes: Hashable, bound: Bound) -> None:
        """Keep a plan under a key, for some shapes (None: for its key alone)."""
        if bound in self._plans:
            self._budget.use(bound)
        else:
            self._plans[bound] = shapes, set()
            self._budget.add(bound, self)
        self._plans[bound][1].add(key)
        if shapes is not None:
            self._by_shapes[shapes] = bound
        self._by_key[key] = bound
        while len(self._by_key) > KEYS_KEPT:
            oldest, plan = self._by_key.popitem(last=False)
            self._plans[plan][1].discard(oldest)

    def forget(self, bound: Bound) -> None:
        """Let go of one plan."""
        shapes, keys = self._plans[bound]
        for key in keys:
            if self._by_key.get(key) is bound:
                del self._by_key[key]
        if self._by_shapes.get(shapes) is bound:
            del self._by_shapes[shapes]
        self._budget.remove(bound)
        bound.close()
        del self._plans[bound]

    def clear(self) -> None:
        """Let go of every plan."""
        for bound in self._plans:
            bound.close()
        self.disown()

    def disown(self) -> None:
        """Forget every plan, but leave what it holds as it is: another process has it."""
        for bound in self._plans:
            self._budget.remove(bound)
        self._by_key.clear()
        self._by_shapes.clear()
        self._plans.clear()
