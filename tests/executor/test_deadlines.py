"""Deadlines of waits: a process that was stopped, with its peers, takes none of them for late."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from rowlock.executor.gang.thread_group import ThreadRendezvous
from rowlock.executor.host import deadline
from rowlock.executor.host.deadline import Deadline, Stopwatch
from rowlock.strategies.errors import CollectiveError
from tests.pauses import paused


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the clock of deadlines back; look at it often."""
    monkeypatch.setattr(deadline, "time", time)
    monkeypatch.setattr(deadline, "_SLICE_S", 0.01)
    yield


class Hands:
    """A clock that a test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_of_a_pause_little_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()
    monkeypatch.setattr(deadline, "time", hands)
    end, watch, short = Deadline(60.0), Stopwatch(), Stopwatch(longest=0.5)
    hands.now += 4.0
    assert (end.left, end.slice_s, watch.look(), short.look()) == (56.0, 1.0, 4.0, 0.5)
    hands.now += 3600.0
    assert not end.over and end.left == 51.0 and watch.look() == 9.0 and watch.seconds == 9.0
    for _ in range(12):
        hands.now += 4.9
        end.over  # noqa: B018 - a look
    assert end.over and end.left == end.slice_s == 0.0
    assert Deadline(0.0).over


def test_of_a_short_deadline_a_pause_takes_half_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands()
    monkeypatch.setattr(deadline, "time", hands)
    end = Deadline(3.0)
    assert end.slice_s == 1.0 and Deadline(0.5).slice_s == 0.25
    hands.now += 3600.0
    assert not end.over and end.left == 1.5
    hands.now += 1.0
    assert end.left == end.slice_s == 0.5
    hands.now += 0.5
    assert end.over


@pytest.mark.parametrize("within", [60.0, 4.0])
def test_threads_that_were_stopped_together_meet(clock: None, within: float) -> None:
    meeting, goes_on = ThreadRendezvous(2), threading.Event()
    tag = ("barrier", 0)

    def late() -> None:
        assert goes_on.wait(60)
        meeting.wait(1, within, tag)

    thread = threading.Thread(target=late)
    thread.start()
    paused(goes_on.set)
    meeting.wait(0, within, tag)
    thread.join(60)
    assert meeting.reason is None


def test_one_that_does_not_come_is_missing() -> None:
    with pytest.raises(CollectiveError, match=r"ranks \[1\] are missing after 0.01 s"):
        ThreadRendezvous(2).wait(0, 0.01, ("barrier", 0))
