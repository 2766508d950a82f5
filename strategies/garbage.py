"""Pause Python's garbage collector."""

from __future__ import annotations

import gc
from types import TracebackType


class gc_paused:
    """A context in which Python does not look for garbage.

    What is imported or bound lasts, and a search goes through all there is: searches would be a quarter of the
    time of an import. And memory of a GPU that garbage gives back while a stream is captured ends the capture.
    """

    def __enter__(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._enabled:
            gc.enable()
