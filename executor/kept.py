"""What each place has for itself, kept by the driver: persistables that differ by place, after the last step.

A replica that takes the place of a lost one is given them (see ``recovery.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

ByRank = Sequence[Sequence[np.ndarray]]


class Kept:
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
        returned = self._returned.setdefault(scope, {})
        last = returned.pop(program, None)  # the newest stands last
        returned[program] = names, by_rank
        if last is None or last[0] is not names:
            self._names.setdefault(scope, set()).update(names)

    def put(self, scope: int, rank: int, values: Mapping[str, np.ndarray]) -> None:
        """Keep one rank's values, which are its newest."""
        self._by_rank(scope).setdefault(rank, {}).update(values)
        self._names.setdefault(scope, set()).update(values)

    def of(self, scope: int, rank: int) -> Mapping[str, np.ndarray]:
        """Return one rank's values by name."""
        return self._by_rank(scope).get(rank, {})

    def names(self, scope: int) -> list[str]:
        """Return the names for which a scope's values are kept."""
        held = self._by_rank(scope).values()
        return list(dict.fromkeys(name for values in held for name in values))

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
        for values in self._by_rank(scope).values():
            for name in list(values) if names is None else names:
                values.pop(name, None)

    def follow(self, kept: Sequence[int]) -> None:
        """Number ranks anew: ``kept`` are those that they had before."""
        for scope in self.scopes():
            held = self._by_rank(scope)
            self._values[scope] = {new: held[old] for new, old in enumerate(kept) if old in held}
        self.old = {kept.index(rank) for rank in self.old if rank in kept}

    def _by_rank(self, scope: int) -> dict[int, dict[str, np.ndarray]]:
        held = self._values.setdefault(scope, {})
        for names, by_rank in self._returned.pop(scope, {}).values():
            for rank, arrays in enumerate(by_rank):
                held.setdefault(rank, {}).update(zip(names, arrays, strict=True))
        return held
