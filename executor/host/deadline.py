"""Deadlines of waits, by a clock that stands still while this process is stopped.

Where a terminal's Ctrl-Z, a frozen container or a paused machine stops a process, it stops its peers, too. They
are not late when all go on.
"""

from __future__ import annotations

import time

_LOOK_S = 5.0  # no wait lasts longer without a look at its deadline
_SLICE_S = 1.0  # of a wait that has no other cause to look


def longest_look(within: float) -> float:
    """Return the seconds that one look may count of a wait of ``within``: a pause leaves half of it."""
    return min(_LOOK_S, within / 2)


class Stopwatch:
    """Counts seconds from look to look, each time at most ``longest``: more is a pause of this process.

    ``seconds`` are those until the last look.
    """

    def __init__(self, longest: float = _LOOK_S) -> None:
        self.seconds, self.longest, self._looked = 0.0, longest, time.monotonic()

    def look(self) -> float:
        """Return the seconds until now."""
        now = time.monotonic()
        self.seconds += min(now - self._looked, self.longest)
        self._looked = now
        return self.seconds


class Deadline(Stopwatch):
    """The end of a wait of ``within`` seconds, which are counted from when it is made."""

    def __init__(self, within: float) -> None:
        super().__init__(longest_look(within))
        self.within = within

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(self.within - self.look(), 0.0)

    @property
    def over(self) -> bool:
        """Whether none are left."""
        return self.look() >= self.within

    @property
    def slice_s(self) -> float:
        """Seconds that a wait may last until the next look."""
        return min(self.left, self.longest, _SLICE_S)
