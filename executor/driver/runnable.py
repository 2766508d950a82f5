"""Runnable: what ``Executor.run`` takes beside plain programs."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..device.place import Place
from ..feed.scope import Scope
from .parallel import ParallelRun


class Runnable(ABC):
    """A program that knows how it is run, on one place or data-parallel on many."""

    @abstractmethod
    def _prepared(self, place: Place, scope: Scope) -> ParallelRun:
        """Return the run of this program, prepared for an executor's place and a scope the first time."""
