"""Keep a replica on cores of its own while they are its own: pinned on a calm host, free on a busy one.

On a calm host a pinned replica is faster: of a driver and two replicas that wait awake on two cores, two
compute at a time, which the system cannot know; it leaves these two on one core for long. Beside a busy
process a pinned replica cannot move away, and is many times slower. So a thread looks a few times a second at
how busy the cores are with what is none of the gang's, while the gang is at work.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

_LOOK_S, _FIRST_LOOK_S = 0.3, 0.1  # of steps, between two looks
_SLICE_S = 0.02  # of which a look is put together, where the gang pauses between steps
_GAP_S, _STEADY = 0.005, 0.25  # as long is a pause; a slice may have so much of them
_MISSES = 25  # slices in a row with more: the gang always pauses, and is judged so
_CROWDED = 0.25  # of a replica's cores are used by others: they may keep it waiting
_WAITING = 0.25  # of the time in which a replica could run it waits: they do
_CALM = 0.1  # of all cores are used by others, and no more: system services and the like
_CALM_S = 0.25  # for so long before a replica is pinned; twice as long after each time that it was a mistake
_LONGEST_CALM_S = 60.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_IDLE, _IOWAIT, _STEAL = 4, 5, 8  # columns of /proc/stat
_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED of a process: what its threads ran


class Sample(NamedTuple):
    """What was seen in a time: cores that others used, and the share of it that the replica waited to run."""

    seconds: float
    foreign: float
    waiting: float


class PinPolicy:
    """Decides whether a replica keeps to its part (``own`` of ``total`` cores) of its host: it does at first.

    ``calm``: others left the cores to it lately, whether it keeps to its own already or not.
    """

    def __init__(self, own: int, total: int) -> None:
        self.pinned, self.calm = True, False
        self._own, self._total = own, total
        self._calm_s, self._wanted_s = 0.0, _CALM_S

    def see(self, sample: Sample) -> bool:
        """Take a sample in, and return whether the replica is to be pinned from now on."""
        if self.pinned:
            self._calm_s += sample.seconds
            if sample.foreign > _CROWDED * self._own and sample.waiting > _WAITING:
                if self._calm_s >= _LONGEST_CALM_S:
                    self._wanted_s = _CALM_S
                self._wanted_s = min(2 * self._wanted_s, _LONGEST_CALM_S)
                self.pinned, self.calm, self._calm_s = False, False, 0.0
            else:
                self.calm = True
        else:
            self.calm = sample.foreign <= _CALM * self._total
            self._calm_s = self._calm_s + sample.seconds if self.calm else 0.0
            if self._calm_s >= self._wanted_s:
                self.pinned, self._calm_s = True, 0.0
        return self.pinned


class Counters(NamedTuple):
    """Seconds that count up: the clock, idle time of all cores, processor time of the gang, and of a thread."""

    at: float
    idle: float
    gang: float
    ran: float
    waited: float

    def plus(self, before: Counters, after: Counters) -> Counters:
        """Return these with what was counted in a time added."""
        return Counters(*(a + c - b for a, b, c in zip(self, before, after, strict=True)))

    def sample(self, cores: int) -> Sample:
        """Return what was seen, if these began at zero, on so many cores."""
        seconds, idle, gang, ran, waited = self
        foreign = max(cores - (idle + gang) / seconds, 0.0)
        return Sample(seconds, foreign, waited / (ran + waited) if ran + waited > 0 else 0.0)


_ZERO = Counters(0.0, 0.0, 0.0, 0.0, 0.0)


def idle_seconds(cores: Sequence[int]) -> float:
    """Return for how long cores did nothing that the system knows of, all together.

    What a hypervisor takes is counted as idle: no other core would have been better.
    """
    names = {f"cpu{core}" for core in cores}
    with open("/proc/stat") as stat:
        lines = [line.split() for line in stat if line.startswith("cpu")]
    ticks = sum(
        int(line[column])
        for line in lines
        if line[0] in names
        for column in (_IDLE, _IOWAIT, _STEAL)
    )
    return ticks * _TICK_S


def processor_seconds(pid: int) -> float:
    """Return for how long a process of this host ran; 0: there is none.

    Its clock counts nanoseconds; ``/proc`` tells ticks, of which a look has few.
    """
    try:
        return time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        return 0.0


def run_times(thread: int) -> tuple[float, float]:
    """Return for how many seconds a thread of this process ran, and waited for a core."""
    with open(f"/proc/self/task/{thread}/schedstat") as schedstat:
        ran, waited, _ = schedstat.read().split()
    return int(ran) / 1e9, int(waited) / 1e9


class CoreKeeper(threading.Thread):
    """Pins this process to its part of the host's cores, one of ``count``, and frees it again.

    With fewer cores than parts it does nothing: the system deals cores out better than any pinning.
    ``gang``: the processes on this host that work together, the driver among them.
    """

    def __init__(self, index: int, count: int, gang: Sequence[int]) -> None:
        super().__init__(name="rowlock-cores", daemon=True)
        self._cores = _cores or sorted(os.sched_getaffinity(0))
        _cores[:] = self._cores
        each = max(len(self._cores) // count, 1)
        first = index * each % len(self._cores)
        self._own = self._cores[first : first + each]
        self._enough = len(self._cores) >= count
        self._gang = gang
        self._policy = PinPolicy(each, len(self._cores))
        self._thread = 0  # that runs steps
        self._ended, self._paused = time.monotonic(), 0.0  # the last step, and seconds of pauses
        self._at_work = False
        self._stepped = threading.Event()
        self._closed = threading.Event()

    @property
    def own_core(self) -> bool:
        """Whether the replica has a core to itself now."""
        return self._enough and self._policy.calm

    def step(self) -> None:
        """Note that the calling thread begins to run steps."""
        self._paused, self._at_work = self._pauses(), True
        if not self._stepped.is_set():
            self._thread = threading.get_native_id()
            self._stepped.set()

    def stepped(self) -> None:
        """Note that they ended."""
        self._ended, self._at_work = time.monotonic(), False

    def _pauses(self) -> float:
        """Return for how many seconds the gang paused between steps so far."""
        gap = time.monotonic() - self._ended
        return self._paused + (gap if gap > _GAP_S and not self._at_work else 0.0)

    def run(self) -> None:
        if not self._enough:
            return
        look_s, slice_s, misses, seen = _FIRST_LOOK_S, _SLICE_S, 0, _ZERO
        with contextlib.suppress(OSError, ValueError):  # no such files: it stays free
            self._stepped.wait()
            self._keep_to(self._own)
            while True:
                self._stepped.clear()
                if self._closed.is_set():
                    # looked at after the event is cleared, which close() sets last
                    return
                self._stepped.wait()  # without steps there is nothing to see
                before, paused = self._counters(), self._pauses()
                if self._closed.wait(slice_s):
                    return
                after = self._counters()
                steady = self._pauses() - paused <= _STEADY * (after.at - before.at)
                misses = 0 if steady else misses + 1
                slice_s = min(2 * slice_s, _LOOK_S) if steady else max(slice_s / 2, _SLICE_S)
                if not steady and misses < _MISSES:
                    continue
                seen = seen.plus(before, after)
                if seen.at < look_s:
                    continue
                sample, seen, look_s = seen.sample(len(self._cores)), _ZERO, _LOOK_S
                pinned = self._policy.pinned
                if self._policy.see(sample) != pinned:
                    self._keep_to(self._cores if pinned else self._own)
                    look_s = _FIRST_LOOK_S

    def _counters(self) -> Counters:
        gang = sum(map(processor_seconds, self._gang))
        times = run_times(self._thread)
        return Counters(time.monotonic(), idle_seconds(self._cores), gang, *times)

    def _keep_to(self, cores: Sequence[int]) -> None:
        """Have the threads of this process run on these cores; this one runs anywhere, to see what happens."""
        for thread in map(int, os.listdir("/proc/self/task")):
            if thread != self.native_id:
                with contextlib.suppress(OSError):  # it ended meanwhile
                    os.sched_setaffinity(thread, cores)

    def close(self) -> None:
        """End the thread, and let the process run on all cores again."""
        self._closed.set()
        self._stepped.set()
        if self.is_alive():
            self.join()
        self._keep_to(self._cores)


_cores: list[int] = []  # that the process had when it came
