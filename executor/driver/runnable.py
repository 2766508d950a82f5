"""Runnable: what ``Executor.run`` takes beside plain programs."""

from __future__ import annotations

from typing import Any

from ..device.place import Place
from ..feed.scope import Scope
from .future import StepFuture


class Runnable:
    """A program that knows how it is run, on one place or data-parallel on many; subclasses say how."""

    def _run(
        self,
        place: Place,
        feed: Any,
        fetch_names: tuple[str, ...],
        scope: Scope,
        return_numpy: bool,
        return_merged: bool,
    ) -> list[Any]:
        """Run a step for the executor of ``place``, and return what it fetches."""
        raise NotImplementedError

    def _begin(
        self,
        place: Place,
        feed: Any,
        fetch_names: tuple[str, ...],
        scope: Scope,
        return_numpy: bool,
        return_merged: bool,
    ) -> StepFuture:
        """Begin a step, which may stay under way beside others."""
        raise NotImplementedError
