"""What an attack counts and finds: wrong values, waits that are too long, what is left behind."""

from __future__ import annotations

import contextlib
import glob
import itertools
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest import mock

import ray
from ray.util import placement_group_table

from rowlock.cluster.gang import RayDelivery
from rowlock.cluster.ray.actor_pool import ActorPool

DEADLINE_S = 20.0  # of steps and collectives: an attack that runs into it has found a stall
BOUND_S = 5.0  # promised for any operation, less what Ray and other processes on the host take
START_S = 45.0  # within which Ray starts actors on a busy machine; the deadline is 60 s
_END_S = 60.0
_SAMPLE_S = 0.5


class Told(logging.Handler):
    """Keeps what the logger ``rowlock`` tells, instead of showing it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a text."""
        self.texts.append(record.getMessage())

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen until the block ends."""
        logger = logging.getLogger("rowlock")
        shown, logger.propagate = logger.propagate, False
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.propagate = shown


@dataclass
class Report:
    """One attack: its seed, what it counted, what went wrong."""

    part: str
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    longest: tuple[float, str] = (0.0, "nothing")
    log: Told = field(default_factory=Told)

    def note(self, text: str) -> None:
        """Count something that went wrong, and say it at once: a later stall must not hide it."""
        self.wrong.append(text)
        print(f"[{self.part}] WRONG: {text}", flush=True)

    @contextlib.contextmanager
    def waiting(self, what: str, meant: float = 0.0) -> Iterator[None]:
        """Time an operation, less what starting actors and other processes take; note one that took too long.

        ``meant``: seconds that it takes by design.
        """
        began, starting = time.monotonic(), Starting.seconds
        try:
            yield
        finally:
            start = Starting.seconds - starting
            took = time.monotonic() - began - start - meant
            if took > BOUND_S:
                others = RunDelay.between(began, time.monotonic())
                self.counts["waits above 5 s on a busy host"] += 1
                took -= others
                if took > BOUND_S:
                    self.note(
                        f"{what} took {took:.1f} s, and {others:.1f} s of waiting for a processor"
                    )
            self.longest = max(self.longest, (took, what))
            self.counts["waits above 1 s"] += took > 1.0
            if start > START_S:
                self.note(f"{what} waited {start:.1f} s for actors to start")

    @contextlib.contextmanager
    def leaving_nothing(self) -> Iterator[None]:
        """Note what is left behind at the end of the block that was not there before."""
        before = set(_left())
        with Starting.watched(), RunDelay.sampled(), self.log.listening():
            yield
        deadline = time.monotonic() + _END_S
        while (left := set(_left()) - before) and time.monotonic() < deadline:
            time.sleep(0.1)
        if left:
            self.note(f"left behind: {sorted(left)}")

    def verdict(self) -> None:
        """Print the figures, and fail if anything was wrong."""
        print(self, flush=True)
        replay = f"python -m tests.attack --only {self.part} --seed {self.seed}"
        faults = "\n  ".join(self.wrong[:20])
        assert not self.wrong, f"{len(self.wrong)} found, replay with: {replay}\n  {faults}"

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {what}" for what, count in self.counts.items())
        longest = f"longest wait {self.longest[0]:.2f} s ({self.longest[1]})"
        return f"[{self.part}] {counted}; {len(self.wrong)} wrong; {longest}"


class Starting:
    """Counts the seconds in which the driver waits for actors to start, and the processes that were started."""

    seconds = 0.0
    pids: ClassVar[set[int]] = set()
    _began: ClassVar[list[float]] = []  # of each thread that waits
    _lock = threading.Lock()

    @classmethod
    @contextlib.contextmanager
    def watched(cls) -> Iterator[None]:
        """Time what launches actors, until the block ends."""

        def timed(call: Any) -> Any:
            def body(*args: Any, **kwargs: Any) -> Any:
                with cls._lock:
                    cls._began.append(time.monotonic())
                try:
                    return call(*args, **kwargs)
                finally:
                    with cls._lock:
                        first = cls._began.pop(0)  # several that wait at once wait together
                        now = time.monotonic()
                        cls._began[:] = [now] * len(cls._began)
                        cls.seconds += now - first
                    members = next((a for a in args if isinstance(a, dict)), {})
                    cls.pids |= {m.where["pid"] for m in members.values() if m.where}

            return body

        connect = RayDelivery._connect
        with (
            mock.patch.object(ActorPool, "describe", timed(ActorPool.describe)),
            mock.patch.object(RayDelivery, "_connect", timed(connect)),
        ):
            yield


class RunDelay:
    """Samples for how long threads of this process and of the replicas were ready, but had no processor.

    Samples that come late show a pause of the machine itself. A wait that nothing ends shows none of it:
    nothing is ready meanwhile, and samples are in time. So what is taken off for it hides no stall.
    """

    _samples: ClassVar[deque[tuple[float, dict[int, dict[str, int]]]]] = deque(maxlen=1200)
    _lock = threading.Lock()

    @classmethod
    @contextlib.contextmanager
    def sampled(cls) -> Iterator[None]:
        """Take samples until the block ends."""
        over = threading.Event()

        def body() -> None:
            while not over.wait(_SAMPLE_S):
                cls._sample()

        cls._sample()
        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @classmethod
    def _sample(cls) -> None:
        pids = [
            os.getpid(),
            *(pid for pid in list(Starting.pids) if os.path.exists(f"/proc/{pid}")),
        ]
        with cls._lock:
            cls._samples.append((time.monotonic(), {pid: _run_delays(pid) for pid in pids}))

    @classmethod
    def between(cls, began: float, ended: float) -> float:
        """Return seconds: those of the driver's thread that waited longest, and of the replicas' one."""
        cls._sample()
        with cls._lock:
            before = max(
                (s for s in cls._samples if s[0] <= began), default=cls._samples[0], key=_when
            )
            after = cls._samples[-1][1]
        waits = {
            pid: max(
                ((ns - before[1].get(pid, {}).get(t, 0)) for t, ns in threads.items()), default=0
            )
            for pid, threads in after.items()
        }
        own = waits.pop(os.getpid(), 0)
        with cls._lock:
            times = [when for when, _ in cls._samples if when >= before[0]]
        late = sum(max(b - a - 2 * _SAMPLE_S, 0) for a, b in itertools.pairwise(times))
        return min(max((own + max(waits.values(), default=0)) / 1e9, late), ended - began)


def _when(sample: tuple[float, Any]) -> float:
    return sample[0]


def _run_delays(pid: int) -> dict[str, int]:
    """Return the nanoseconds that each thread of a process waited for a processor, so far."""
    delays = {}
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with (
                contextlib.suppress(OSError, IndexError),
                open(f"/proc/{pid}/task/{task}/schedstat") as f,
            ):
                delays[task] = int(f.read().split()[1])
    return delays


def _left() -> list[str]:
    """Return what there is of gangs: processes, sockets, shared memory, bundles, actors."""
    rest = [f"process {pid}" for pid in Starting.pids if _is_replica(pid)]
    rest += glob.glob("/dev/shm/rowlock-*")
    mine = set()
    for name in _own_descriptors():
        with contextlib.suppress(FileNotFoundError):  # another thread closed it meanwhile
            mine.add(os.readlink(f"/proc/self/fd/{name}"))
    with open("/proc/net/unix") as sockets:
        ours = [line.split() for line in sockets if "@rowlock-" in line]
    rest += [words[-1] for words in ours if f"socket:[{words[-2]}]" in mine]
    if ray.is_initialized():
        groups = placement_group_table().values()
        rest += [f"bundles {g['placement_group_id']}" for g in groups if g["state"] != "REMOVED"]
        rest += [f"actor {a['ActorID']}" for a in _actors() if a["State"] not in ("DEAD",)]
    return rest


def _actors() -> list[dict[str, Any]]:
    from ray._private.state import actors  # the public one needs the dashboard

    return [a for a in actors().values() if "Replica" in a.get("ActorClassName", "")]


def _is_replica(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"ReplicaActor" in file.read()
    except OSError:
        return False


def own_descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(_own_descriptors())


def _own_descriptors() -> list[str]:
    return [name for name in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{name}")]
