"""``name_scope``: a readable path stamped on the ops built inside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..strategies.errors import InvalidArgument


class _NameScope:
    """One level of the path. Siblings of the same prefix are numbered for the whole process."""

    def __init__(self, name: str = "", parent: _NameScope | None = None) -> None:
        self.name = name
        self.parent = parent
        self._children: dict[str, int] = {}

    def child(self, prefix: str) -> _NameScope:
        number = self._children.get(prefix, 0)
        self._children[prefix] = number + 1
        return _NameScope(prefix if number == 0 else f"{prefix}_{number}", self)

    @property
    def path(self) -> str:
        return "/" if self.parent is None else f"{self.parent.path}{self.name}/"


_current = _NameScope()


def current_name_scope() -> str:
    """Return the path of the scope in force, such as ``/`` or ``/optimizer_1/``."""
    return _current.path


@contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Stamp ops built inside with a path that ends in ``prefix`` (numbered if used before).

    Raises:
        InvalidArgument: ``prefix`` is empty.
    """
    global _current
    if not prefix:
        raise InvalidArgument("name_scope needs a prefix that is not empty.")
    _current = _current.child(prefix)
    try:
        yield
    finally:
        assert _current.parent is not None
        _current = _current.parent
