"""What the logger ``rowlock`` says of places, waiting and compiling: each thing once."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ray.exceptions import RayError

import rowlock
import rowlock.fluid as fluid
from rowlock.cluster.ray import session
from rowlock.cluster.ray.replica_handle import why
from rowlock.executor.gang import launchers
from rowlock.strategies.current import current_config
from rowlock.strategies.errors import PlacementError, ValuesLost
from tests.programs import on_places, own_programs


def test_places_waiting_and_compiling_are_said_once(
    ray_cluster: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="rowlock")
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 2])
        loss = fluid.layers.mean(fluid.layers.fc(x, 1))
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones((4, 2), np.float32)}
    with (
        fluid.scope_guard(fluid.Scope()),
        rowlock.cluster(launcher="ray", num_cpus_per_replica=2),
    ):
        exe.run(startup)
        one, other = (on_places(main, 2) for _ in range(2))
        for _ in range(3):
            exe.run(one, feed=feed, fetch_list=[loss])
        said = [record.getMessage() for record in caplog.records]
        assert sum(text.startswith("placed 2 replica(s): 0, 1 on ") for text in said) == 1
        assert sum(text.startswith("compiled a step of ") for text in said) == 1
        with (
            rowlock.cluster(launcher="ray", num_cpus_per_replica=2, start_deadline_s=2),
            pytest.raises(PlacementError),
        ):
            exe.run(other, feed=feed, fetch_list=[loss])
    (waiting,) = (
        r for r in caplog.records if r.getMessage().startswith("waiting for 4 CPUs, up to 2 s")
    )
    assert waiting.levelno == logging.WARNING and "0 of its 4 CPUs are free" in waiting.getMessage()


def test_an_error_of_a_block_is_raised_before_those_of_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def close_gangs(_: object) -> None:
        raise ValuesLost("no replica is left.")

    monkeypatch.setattr(launchers, "close_gangs", close_gangs)
    caplog.set_level(logging.WARNING, logger="rowlock")
    before = current_config()
    with pytest.raises(PlacementError), rowlock.cluster(launcher="threads"):
        raise PlacementError("there is no room.")
    assert "at the end of the block of rowlock.cluster: no replica is left." in caplog.messages
    with pytest.raises(ValuesLost), rowlock.cluster(launcher="threads"):
        pass
    assert current_config() is before


def test_a_head_that_was_not_joined_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.7:6379")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(session, "_knock", lambda address: None)
    monkeypatch.setattr(session, "_ours", ["this one"])
    assert "runs on this host at 10.0.0.7:6379 and was not joined: name it in RAY_ADDRESS" in (
        session.unjoined()
    )
    monkeypatch.setattr(session, "_ours", [])
    assert session.unjoined() == ""


def test_the_environment_shows_what_goes_well() -> None:
    script = "import rowlock.strategies.log as log; log.log.info('a'); log.log.warning('b')"
    for level, shown in (("", "b\n"), ("info", "rowlock: a\nrowlock: b\n")):
        process = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            env={**os.environ, "ROWLOCK_LOG": level},
        )
        assert process.stderr == shown


def test_a_cluster_that_lets_nobody_in_is_named_with_its_token() -> None:
    assert "give it the cluster's token (RAY_AUTH_MODE=token" in session._cure(
        ConnectionError("no")
    )


def test_why_an_actor_died_is_told_in_short() -> None:
    long = (
        "The actor died unexpectedly before finishing this task.\n"
        "The actor is dead because its worker process has died. Worker exit detail: End of file. Some common "
        "causes include: (1) the process was killed by the OOM killer, (2) ray stop --force was called."
    )
    assert why(RayError(long)) == (
        "The actor is dead because its worker process has died. Worker exit detail: End of file. Out of "
        "memory, a kill and a crash are common causes."
    )
