"""The transport by actor calls, beside what every gang does (``tests/executor/test_gang_contract.py``)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from rowlock.cluster.ray.calls import ActorCalls
from rowlock.executor.replica.message import Message
from rowlock.strategies.errors import CollectiveError


class Actor:
    """Each call has a reference of its own."""

    answer = SimpleNamespace(remote=lambda *message: object())


@pytest.mark.parametrize("place", ["wait", "get"])
def test_an_interrupt_within_rays_own_code_is_one(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's compiled code may return a result beside what a signal's handler raised."""
    struck = False

    def strike() -> None:
        nonlocal struck
        if not struck:
            struck = True
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as interrupt:
                raise SystemError(f"CoreWorker.{place} returned a result") from interrupt

    def wait(references: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
        if place == "wait":
            strike()
        return references[:1], references[1:]

    def get(reference: Any) -> Message:
        if place == "get":
            strike()
        return Message("ok", {})

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", get)
    lost = CollectiveError("lost")
    calls = ActorCalls(lambda rank: lost, lambda ranks, within: lost)
    calls.use({0: Actor()})
    number = calls.start({0: Message("ok", {})}, 10.0)
    with pytest.raises(KeyboardInterrupt):
        calls.finish(number, 10.0)
    assert calls.finish(number, 10.0)[0].kind == "ok"


def test_a_fault_of_the_interpreter_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(references: list[Any], **options: Any) -> None:
        raise SystemError("bad argument to internal function")

    monkeypatch.setattr(ray, "wait", wait)
    lost = CollectiveError("lost")
    calls = ActorCalls(lambda rank: lost, lambda ranks, within: lost)
    calls.use({0: Actor()})
    number = calls.start({0: Message("ok", {})}, 10.0)
    with pytest.raises(SystemError, match="internal function"):
        calls.finish(number, 10.0)
