"""Set several attributes at once: an interrupt (Ctrl-C) finds all of them changed, or none."""

from __future__ import annotations

from itertools import starmap
from typing import Any

Change = tuple[object, str, Any]  # an object, the name of its attribute, and the new value


def assign(*changes: Change) -> None:
    """Set attributes (object, name, value) all at once: an interrupt finds all of them set, or none.

    Python takes up signals between bytecodes, and there is none between these assignments.
    """
    any(starmap(setattr, changes))
