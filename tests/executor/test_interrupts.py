"""Interrupts that Python's waits report as something else."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

import pytest

from rowlock.executor.gang.thread_group import ThreadRendezvous
from rowlock.executor.host.interrupts import interruptible


def strike(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def test_an_interrupt_before_a_wait_has_its_lock_again_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meeting = ThreadRendezvous(2)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(meeting.turn, "_acquire_restore", strike)
        meeting.wait(0, 0.01, ("a sum", 1))
    with pytest.raises(KeyboardInterrupt), interruptible:
        done = threading.Event()
        monkeypatch.setattr(done._cond, "_acquire_restore", strike)  # type: ignore[attr-defined]
        done.wait(0.01)


def test_an_error_that_hides_no_interrupt_stays_one() -> None:
    with pytest.raises(RuntimeError, match="unlocked"), interruptible:
        threading.Lock().release()
