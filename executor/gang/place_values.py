"""PlaceValues: the driver's copies of persistables that differ by place, as they are after the last step.

A replica that takes the place of a lost one is given them (see ``recovery.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from .assign import Change

ByRank = Sequence[Sequence[np.ndarray]]


class PlaceValues:
    """The newest values by device scope, rank and name. ``old`` are the ranks that have made steps since."""

    def __init__(self) -> None:
        self.old: set[int] = set()
        self.too_large: dict[int, set[str]] = {}  # by scope: what differs by place and is not kept
        self._values: dict[int, dict[int, dict[str, np.ndarray]]] = {}  # scope -> rank -> name
        # As a program's last step returned it: scope -> program -> names and arrays.
        self._returned: dict[int, dict[int, tuple[Sequence[str], ByRank]]] = {}
        self._names: dict[int, set[str]] = {}

    def note(self, scope: int, program: int, names: Sequence[str], by_rank: ByRank) -> None:
        """Keep what a program's last step returned for these names; every step calls this."""
        returned = self._returned.get(scope, {})
        last = returned.get(program)
        if last is None or last[0] is not names:
            self._names.setdefault(scope, set()).update(names)
        newest = {number: values for number, values in returned.items() if number != program}
        newest[program] = names, by_rank  # stands last
        self._returned[scope] = newest

    def put(self, scope: int, rank: int, values: Mapping[str, np.ndarray]) -> None:
        """Keep one rank's values, which are its newest."""
        self._names.setdefault(scope, set()).update(values)
        self._by_rank(scope).setdefault(rank, {}).update(values)

    def of(self, scope: int, rank: int) -> Mapping[str, np.ndarray]:
        """Return one rank's values by name."""
        return self._by_rank(scope).get(rank, {})

    def names(self, scope: int) -> list[str]:
        """Return the names for which a scope's values are kept."""
        by_rank = self._by_rank(scope).values()
        return list(dict.fromkeys(name for values in by_rank for name in values))

    def scopes(self) -> list[int]:
        """Return the scopes of which something is kept."""
        return sorted({*self._values, *self._returned})

    def aged(self, ranks: Iterable[int]) -> None:
        """Note that these ranks have made steps whose values did not arrive."""
        self.old.update(ranks if self.scopes() else ())

    def forget(self, scope: int, names: Collection[str] | None = None) -> None:
        """Keep these names (None: all) of a scope no longer: all replicas have them alike now."""
        if names is not None and self._names.get(scope, set()).isdisjoint(names):
            return
        if names is None:
            for by_scope in (self._returned, self._values, self._names, self.too_large):
                by_scope.pop(scope, None)
            return
        for values in self._by_rank(scope).values():
            for name in names:
                values.pop(name, None)

    def renumbered(self, before: Sequence[int]) -> list[Change]:
        """Return what changes when ranks are numbered anew; ``before`` are those that they had."""
        values: dict[int, dict[int, dict[str, np.ndarray]]] = {}
        for scope in self.scopes():
            by_rank = self._by_rank(scope)
            values[scope] = {new: by_rank[old] for new, old in enumerate(before) if old in by_rank}
        old = {before.index(rank) for rank in self.old if rank in before}
        return [(self, "_values", values), (self, "old", old)]

    def _by_rank(self, scope: int) -> dict[int, dict[str, np.ndarray]]:
        """Return a scope's values, those that steps returned among them; an interrupt loses none."""
        newest = self._values.setdefault(scope, {})
        returned = self._returned.get(scope)
        if returned:
            newest = {rank: dict(values) for rank, values in newest.items()}
            for names, by_rank in returned.values():
                for rank, arrays in enumerate(by_rank):
                    newest.setdefault(rank, {}).update(zip(names, arrays, strict=True))
            self._values[scope] = newest
            del self._returned[scope]
        return newest
