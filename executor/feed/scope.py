"""Scopes: trees of named values. The driver's scope is the user's view of a program's persistables."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ...strategies.errors import InvalidType, first_of
from ..device.tensor import Storage, Tensor


class ScopeVariable:
    """A name in a scope; its value is a tensor."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tensor = Tensor(name)

    def __repr__(self) -> str:
        return f"ScopeVariable({self._tensor!r})"

    def get_tensor(self) -> Tensor:
        """Return the tensor."""
        return self._tensor


class Ring(NamedTuple):
    """Trainers that meet by collectives of their programs: the endpoint of each, and this one's rank."""

    endpoints: tuple[str, ...]
    rank: int


class Scope:
    """Names and their values; a name not found here is looked up in the parent."""

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self._variables: dict[str, ScopeVariable] = {}
        self._kids: list[Scope] = []
        self.rings: dict[int, Ring] = {}  # by number, as startup programs made them
        # For programs that run on its values in several threads: they take turns.
        self.turn: threading.RLock = parent.turn if parent is not None else threading.RLock()

    def __repr__(self) -> str:
        of = ", child of another" if self.parent is not None else ""
        return f"<Scope: {len(self._variables)} variables{of}: {first_of(self._variables, 4)}>"

    def var(self, name: str) -> ScopeVariable:
        """Return the variable of this scope, created if missing."""
        if name not in self._variables:
            self._variables[name] = ScopeVariable(name)
        return self._variables[name]

    def find_var(self, name: str) -> ScopeVariable | None:
        """Return the variable from this scope or an ancestor, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope._variables:
                return scope._variables[name]
            scope = scope.parent
        return None

    def find_tensor(self, name: str) -> Tensor | None:
        """Return the tensor of a variable from this scope or an ancestor, or None."""
        variable = self.find_var(name)
        return None if variable is None else variable.get_tensor()

    def find_ring(self, number: int) -> Ring | None:
        """Return a ring from this scope or an ancestor, or None."""
        scope: Scope | None = self
        while scope is not None:
            if number in scope.rings:
                return scope.rings[number]
            scope = scope.parent
        return None

    def erase(self, names: Sequence[str]) -> None:
        """Forget variables of this scope; names that it does not hold are passed over."""
        for name in names:
            self._variables.pop(name, None)
        Storage.generation += 1

    def new_scope(self) -> Scope:
        """Return a new child."""
        kid = Scope(self)
        self._kids.append(kid)
        return kid

    def drop_kids(self) -> None:
        """Forget every child."""
        self._kids.clear()

    def local_var_names(self) -> list[str]:
        """Names held by this scope itself."""
        return list(self._variables)

    def home(self, name: str) -> ScopeVariable:
        """Return the variable that holds a persistable; without one, create it in the root."""
        variable = self.find_var(name)
        if variable is not None:
            return variable
        root = self
        while root.parent is not None:
            root = root.parent
        return root.var(name)


_current = Scope()


def global_scope() -> Scope:
    """Return the scope that ``Executor.run`` uses by default."""
    return _current


@contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Make ``scope`` the global one inside the block.

    Raises:
        InvalidType: ``scope`` is no Scope.
    """
    global _current
    if not isinstance(scope, Scope):
        raise InvalidType(f"scope_guard takes a Scope, got {type(scope).__name__}.")
    old, _current = _current, scope
    try:
        yield
    finally:
        _current = old
