"""What travels between driver and replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

KEPT = "kept"  # the kind of message that posts a place's own values of a step that is not the last


class StepHead(dict[str, Any]):
    """The head of a step, or of several that are alike but for their numbers and what their arrays hold.

    ``text`` is what it is on the way, once it is known.
    """

    text = b""


class Message(NamedTuple):
    """What travels between driver and replica: a kind, a head of plain data, arrays, the number of a step.

    ``lasting``: the arrays are places that are filled anew for each such message.
    """

    kind: str
    head: Mapping[str, Any]
    arrays: Sequence[np.ndarray] = ()
    step: int = 0
    lasting: bool = False
