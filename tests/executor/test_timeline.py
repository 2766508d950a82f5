"""The timeline: a well-formed trace in which the events of all replicas lie on the driver's time axis."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.driver.timeline import Offset, Span, chrome_trace, offsets
from rowlock.executor.plan.run import Event
from rowlock.executor.plan.traced import STEPS_KEPT, TracedStep
from rowlock.executor.replica.message import Message
from rowlock.executor.replica.replica import Replica
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.strategies.errors import InvalidState
from tests.conftest import lasting
from tests.contract.nets import Net, feed

STEPS = 4
ROUNDING_S = 1e-4


@pytest.fixture(params=["threads", "ray"])
def gang(request: pytest.FixtureRequest) -> Any:
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    with lasting(request.param, bucket_bytes=16):
        yield request.param


def slices(trace: dict[str, Any], pid: int) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == pid]


def traced(path: Path, steps: int = STEPS) -> tuple[Any, dict[str, Any]]:
    net = Net(layers=3)
    program = net.compiled(2)
    net.run(program, feed(6), [net.loss])
    program.trace()
    for step in range(steps):
        net.run(program, feed(6, step), [net.loss])
    program.timeline(str(path))
    return program, json.loads(path.read_text())


def end(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def test_replicas_lie_on_the_drivers_time_axis(gang: str, tmp_path: Path) -> None:
    _, trace = traced(tmp_path / "trace.json")
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names[0] == "driver" and len(names) == 3
    assert all(name.startswith(f"replica {rank}") for rank, name in enumerate(names[1:]))
    assert {e["name"] for e in slices(trace, 0)} == {"split", "prepare", "send", "wait", "join"}
    spans: dict[int, list[float]] = defaultdict(list)
    for event in slices(trace, 0):
        spans[event["args"]["step"]] += [event["ts"], end(event)]
    assert len(spans) == STEPS
    # Clocks of one host may seem to differ by what the comparison says of its error.
    doubt = 1e6 * sum(c["error_s"] + ROUNDING_S for c in trace["otherData"]["clocks"])
    for rank in range(2):
        for event in slices(trace, rank + 1):
            within = spans[event["args"]["step"]]
            assert min(within) - doubt < event["ts"]
            assert end(event) < max(within) + doubt
    first, second = (
        {
            (e["args"]["step"], tuple(e["args"]["writes"])): e
            for e in slices(trace, rank)
            if e["name"] in COLLECTIVES
        }
        for rank in (1, 2)
    )
    assert set(first) == set(second) and len(first) >= 4 * STEPS
    for key, here in first.items():
        there = second[key]
        late = max(here["ts"], there["ts"]) - min(end(here), end(there))
        assert late < doubt, "no rank leaves a collective before the last has come"


def test_clocks_of_one_host_are_found_to_agree(gang: str, tmp_path: Path) -> None:
    program, trace = traced(tmp_path / "trace.json", 1)
    for clock in (*offsets(program._parallel.gang), *map(_clock, trace["otherData"]["clocks"])):
        assert abs(clock.seconds) < clock.error + ROUNDING_S, "CLOCK_MONOTONIC is the same for all"


def _clock(clock: dict[str, float]) -> Offset:
    return Offset(clock["ahead_s"], clock["error_s"])


def test_slices_of_a_thread_are_nested_or_apart(gang: str, tmp_path: Path) -> None:
    _, trace = traced(tmp_path / "trace.json")
    threads: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for event in trace["traceEvents"]:
        assert event["ph"] in "XMbe" and isinstance(event["pid"], int)
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0 and event["cat"] and event["name"]
            threads[event["pid"], event["tid"]].append(event)
    for events in threads.values():
        open_until: list[float] = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= event["ts"] + 1e-3:
                open_until.pop()
            assert not open_until or end(event) <= open_until[-1] + 1e-3, event
            open_until.append(end(event))
    assert any(e["name"] == "waiting for peers" for events in threads.values() for e in events)
    lines = {e["args"]["built at"] for e in slices(trace, 1) if e["cat"] == "compute"}
    assert any("nets.py" in where for where in lines)


def test_only_the_last_steps_are_kept(tmp_path: Path) -> None:
    with rowlock.cluster(launcher="threads"):
        _, trace = traced(tmp_path / "trace.json", STEPS_KEPT + 3)
    steps = {e["args"]["step"] for e in slices(trace, 1)}
    assert len(steps) == STEPS_KEPT and max(steps) == STEPS_KEPT + 3


def test_steps_begun_ahead(gang: str, tmp_path: Path) -> None:
    net = Net(layers=3)
    program = net.compiled(2)
    program.trace()
    begun = [
        net.exe.run_async(program, feed(6, k), [net.loss], scope=net.scope) for k in range(STEPS)
    ]
    for one in begun:
        one.result()
    program.timeline(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert {e["args"]["step"] for e in slices(trace, 2)} == set(range(STEPS))


def test_parallel_executor_has_it_too(tmp_path: Path) -> None:
    with rowlock.cluster(launcher="threads"):
        net = Net()
        trainer = fluid.ParallelExecutor(
            False, loss_name=net.loss.name, main_program=net.main, scope=net.scope
        )
        with pytest.raises(InvalidState, match="call trace"):
            trainer.timeline(str(tmp_path / "none.json"))
        trainer.trace()
        with pytest.raises(InvalidState, match="then run"):
            trainer.timeline(str(tmp_path / "none.json"))
        trainer.run([net.loss.name], feed=feed(4))
        trainer.timeline(str(tmp_path / "trace.json"))
        assert len(trainer.executed()) == trainer.device_count
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert slices(trace, 1) and not (tmp_path / "none.json").exists()


def test_how_far_a_clock_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    tell = Replica.on_clock

    def ahead(self: Replica, *args: Any) -> Message:
        now = tell(self, *args).head["now"]
        return Message("clock", {"now": now + 1000.0 * self.rank})

    monkeypatch.setattr(Replica, "on_clock", ahead)
    with rowlock.cluster(launcher="threads"):
        net = Net()
        program = net.compiled(2)
        net.run(program, feed(6), [net.loss])
        here, there = offsets(program._parallel.gang)
    assert abs(here.seconds) < here.error + ROUNDING_S
    assert abs(there.seconds - 1000.0) < there.error + ROUNDING_S
    assert there.error > 0


def test_clocks_that_differ_are_set_right() -> None:
    """A replica whose clock is 1000 s ahead; its lane for communication waits for the other, then for peers."""
    events = [
        Event("mul_grad", ("w@GRAD",), 0, 0.001, 0.003, "train.py:7", 0.0, 0.002),
        Event("fused_all_reduce", ("w@GRAD",), 1, 0.003, 0.006, "train.py:7", 0.002, 0.0005),
    ]
    steps = [[TracedStep(3, 1010.0, 1, events)]]
    spans = [Span("send", 3, 9.999, 10.0), Span("wait", 3, 10.0, 10.010)]
    trace = chrome_trace(spans, steps, [Offset(1000.0, 1e-5)], ["replica 0"])
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert names == {"steps", "compute", "communication"}
    by_name = {e["name"]: e for e in slices(trace, 1)}
    product, meeting = by_name["mul_grad"], by_name["fused_all_reduce"]
    assert product["ts"] == pytest.approx(2000) and product["dur"] == pytest.approx(2000)
    assert (product["cat"], meeting["cat"]) == ("compute", "communication")
    assert product["args"]["built at"] == "train.py:7" and product["args"]["writes"] == ["w@GRAD"]
    assert by_name["waiting for peers"]["ts"] == pytest.approx(meeting["ts"])
    assert by_name["waiting for peers"]["dur"] == pytest.approx(2000)
    assert by_name["waiting for peers"]["cat"] == by_name["waiting for a lane"]["cat"] == "waiting"
    began, ended = (e for e in trace["traceEvents"] if e.get("cat") == "step")
    assert (began["ph"], ended["ph"]) == ("b", "e")
    assert ended["ts"] - began["ts"] == pytest.approx(11000)
