"""Pause Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Do not look for garbage meanwhile.

    What is imported or bound lasts, and a search goes through all there is: searches would be a quarter of the
    time of an import. And memory of a GPU that garbage gives back while a stream is captured ends the capture.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
