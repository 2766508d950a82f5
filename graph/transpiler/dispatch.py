"""Which server has which part of a parameter."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidType


class PSDispatcher:
    """Base class: deals variables to the servers at some endpoints (``ip:port``)."""

    def __init__(self, pserver_endpoints: Sequence[str]) -> None:
        self._eps = list(pserver_endpoints)
        self._step = 0

    @property
    def eps(self) -> list[str]:
        """The endpoints of the servers."""
        return self._eps

    def reset(self) -> None:
        """Begin with the first server again."""
        self._step = 0

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """Return an endpoint for each variable; what a derived class must say."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it deals variables")


class RoundRobin(PSDispatcher):
    """Deals variables to one server after the other, over all calls."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """Return an endpoint for each variable."""
        count = len(self._eps)
        endpoints = [self._eps[(self._step + k) % count] for k in range(len(varlist))]
        self._step = (self._step + len(varlist)) % count
        return endpoints


class HashName(PSDispatcher):
    """Deals variables by their names: a name is at the same server in every process and every program."""

    def dispatch(self, varlist: Sequence[Any]) -> list[str]:
        """Return an endpoint for each variable, or name of one."""
        return [self._eps[zlib.crc32(_name(v).encode()) % len(self._eps)] for v in varlist]


def _name(variable: Any) -> str:
    name = getattr(variable, "name", variable)
    name = name() if callable(name) else name
    if not isinstance(name, str):
        raise InvalidType(f"HashName deals variables and their names, got {variable!r}.")
    return name
