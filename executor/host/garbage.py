"""Python's search for garbage, and when it must not run."""

from __future__ import annotations

import gc
from types import TracebackType


class gc_paused:
    """A context in which Python does not look for garbage.

    What is bound lasts, and a search goes through all there is; and memory of a GPU that garbage gives back
    while a stream is captured ends the capture.
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
