"""Runnable: the interface of compiled programs, which ``Executor.run`` takes beside plain ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from ..device.place import Place
from ..feed.fetches import Fetches
from ..feed.scope import Scope


class Future(Protocol):
    """A step that was begun."""

    def result(self) -> list[Any]:
        """Return what it fetches, or raise what went wrong."""

    def done(self) -> bool:
        """Tell whether :meth:`result` returns at once."""


class Steps(Protocol):
    """What runs a program's steps; see ``parallel.py`` ``ParallelRun``."""

    def run(self, feed: Any, fetches: Fetches) -> list[Any]:
        """Run a step; return what it fetches."""

    def start(self, feed: Any, fetches: Fetches, ahead: bool = False) -> Future:
        """Begin a step."""


class Runnable(ABC):
    """A program that knows how it is run, on one place or data-parallel on many."""

    @abstractmethod
    def _prepared(self, place: Place, scope: Scope) -> Steps:
        """Return what runs this program, prepared for an executor's place and a scope the first time."""

    @abstractmethod
    def _place_count(self, own: Place) -> int:
        """Return on how many places an executor of place ``own`` runs it."""

    @property
    @abstractmethod
    def trains(self) -> bool:
        """Whether its ops update parameters."""
