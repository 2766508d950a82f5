"""WaitChoice: measure whether driver and replicas of a host wait faster awake (spinning) or asleep.

To wake a process that sleeps, on a core that sleeps, takes tens of microseconds: as long as a small step
computes. One that waits awake sees at once what it waits for, and gives its core to whatever else can run there
in between (``sched_yield``). What waits like it gives it back as soon; a process that computes keeps it for
milliseconds. Which is better depends on what else runs on the host, and where the system puts it: it is
measured, both ways, again and again.
"""

from __future__ import annotations

_BLOCK_S, _TRIAL_S = 0.05, 0.02  # of waits by which a way is judged, and the other in a trial
_FIRST_S, _LONGEST_S = 1.0, 16.0  # of waits between two trials of the other way
_BETTER, _WORSE = 0.9, 1.2  # times as long: the other way is changed to, is tried at once


class WaitChoice:
    """Chooses for all ends of a channel whether to wait ``awake``, by how long it takes to be answered.

    The other way is tried for a moment at first, then after times that double as long as it is not better, and
    at once where the present one has become worse than the other one was.
    """

    def __init__(self) -> None:
        self.awake = True
        self._seconds, self._waits = 0.0, 0  # of this block
        self._means = {True: 0.0, False: 0.0}  # seconds of a wait, as far as they were measured
        self._trial = False  # whether this block is one
        self._since, self._pause = 0.0, _FIRST_S  # the last trial, and until the next

    def note(self, seconds: float) -> None:
        """Note how long it took to send a message to all and to have their answers."""
        self._seconds += seconds
        self._waits += 1
        if self._seconds >= (_TRIAL_S if self._trial else _BLOCK_S):
            self._judge(self._seconds, self._seconds / self._waits)
            self._seconds, self._waits = 0.0, 0

    def _judge(self, seconds: float, mean: float) -> None:
        before, other = self._means[self.awake], self._means[not self.awake]
        if self._trial:
            better = mean < _BETTER * other
            self._means[self.awake] = mean
            self._pause = _FIRST_S if better else min(2 * self._pause, _LONGEST_S)
            self._trial, self._since = False, 0.0
            self.awake ^= not better
            return
        self._means[self.awake] = (before + mean) / 2 if before else mean
        self._since += seconds
        if self._since >= self._pause or self._means[self.awake] > _WORSE * other:
            self._trial, self.awake = True, not self.awake
