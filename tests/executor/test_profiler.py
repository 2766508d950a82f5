"""``fluid.profiler``: a table of ops, and a timeline, of plain and of parallel programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.device.place import gpu_count
from rowlock.strategies.errors import InvalidValue, NotSaved, Unsupported
from tests.programs import on_places, own_programs


def test_plain_and_parallel_steps_are_in_table_and_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with own_programs() as (main, startup):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe, path = fluid.Executor(fluid.CPUPlace()), tmp_path / "profile"
    feed = {"x": np.ones((4, 3), np.float32)}
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(launcher="threads"):
        exe.run(startup)
        program = on_places(main, 2, loss)
        exe.run(program, feed=feed)
        with fluid.profiler.profiler("CPU", "calls", str(path)):
            for _ in range(3):
                exe.run(main, feed=feed)
            for _ in range(21):  # more than replicas keep
                exe.run(program, feed=feed)
        exe.run(program, feed=feed)
        program.trace()  # still the user's
        exe.run(program, feed=feed)
        assert program.executed()
    text = capsys.readouterr().out
    rows = {}
    for line in text.splitlines():
        words = line.split()
        if words and words[0] in ("this", "replica"):
            place = " ".join(words[:2]).rstrip(",")
        elif len(words) == 7 and words[1].isdigit():
            rows[place, words[0]] = int(words[1])
            total, least, most, mean = map(float, words[2:6])
            assert least <= mean <= most <= total * 1.001
    assert rows["this process", "mul"] == 3
    assert rows["replica 0", "mul"] == rows["replica 1", "mul"] == 21
    events = json.loads(path.read_text())["traceEvents"]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert named == ["driver", "this process", "replica 0", "replica 1"]
    assert sum(event["name"] == "mul" for event in events) == 3 + 2 * 21


def test_steps_before_it_and_before_a_reset_do_not_count(
    threads: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with own_programs() as (main, startup):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((4, 3), np.float32)}
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        program = on_places(main, 2, loss)
        program.trace()
        for count in (3, 2):
            exe.run(program, feed=feed)
            with fluid.profiler.profiler("All", profile_path=str(tmp_path / "profile")):
                for _ in range(2 * count):
                    exe.run(main, feed=feed)
                    exe.run(program, feed=feed)
                fluid.profiler.reset_profiler()
                for _ in range(count):
                    exe.run(main, feed=feed)
                    exe.run(program, feed=feed)
            text = capsys.readouterr().out
            calls = [line.split()[1] for line in text.splitlines() if line.startswith("mul ")]
            assert calls == [str(count)] * 3
            spans = json.loads((tmp_path / "profile").read_text())["traceEvents"]
            assert sum(span["name"] == "split" for span in spans) == count
        assert all(program.executed())  # the user's trace goes on


def test_what_is_no_state_or_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="state must be one of"):
        fluid.profiler.start_profiler("TPU")
    with pytest.raises(InvalidValue, match="sorted_key"), fluid.profiler.profiler("CPU", "best"):
        pass
    fluid.profiler.stop_profiler()  # it is off
    fluid.profiler.reset_profiler()


def test_a_timeline_that_cannot_be_written_costs_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        y = fluid.layers.exp(fluid.data("x", [None, 2]))
        absent = str(tmp_path / "absent" / "timeline")
        with (
            pytest.raises(NotSaved, match=r"timeline cannot be written to .*absent.*a folder that"),
            fluid.profiler.profiler("CPU", "total", absent),
        ):
            fluid.Executor().run(feed={"x": np.ones((1, 2), np.float32)}, fetch_list=[y])
    assert "exp" in capsys.readouterr().out


def test_cuda_profiler_refuses_as_paddle_without_a_gpu() -> None:
    with (
        pytest.raises(ValueError, match="must be one of"),
        fluid.profiler.cuda_profiler("out", "x"),
    ):
        pass
    if not gpu_count():
        with pytest.raises(Unsupported, match="no GPU here"), fluid.profiler.cuda_profiler("out"):
            pass
