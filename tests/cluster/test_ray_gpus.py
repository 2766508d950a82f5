"""Two actors on simulated GPUs that meet by NCCL, through ``ray.util.collective``; a driver of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
import json, os, signal
import numpy as np
import rowlock, rowlock.fluid as fluid
from rowlock.strategies.cluster import ClusterConfig

def trained(places, launcher):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 6]), fluid.data("y", [None, 1])
        ids = fluid.data("ids", [None, 2], "int64")
        looked_up = fluid.layers.reduce_sum(fluid.embedding(ids, [9, 6], is_sparse=True), 1)
        hidden = fluid.layers.fc(x + looked_up, 6, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        test = main.clone(for_test=True)
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    build = fluid.BuildStrategy()
    build.nccl_comm_num = 2
    losses, tested = [], []
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(ClusterConfig(launcher=launcher)):
        exe, *others = map(fluid.Executor, places)
        rng = np.random.default_rng(1)
        exe.run(startup)
        scope, names = fluid.global_scope(), [p.name for p in main.all_parameters()]
        for p in main.all_parameters():
            value = rng.standard_normal(p.shape).astype("f4")
            scope.find_var(p.name).get_tensor().set(value, places[0])
        run = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, build_strategy=build, places=places)
        for number in range(4):
            if launcher == "ray" and number == 2:
                os.kill(run._parallel.gang.delivery.where[1]["pid"], signal.SIGKILL)
            x = rng.standard_normal((8, 6)).astype("f4")
            feed = {"x": x, "y": x.sum(1, keepdims=True), "ids": rng.integers(0, 9, (8, 2))}
            losses += [float(v) for v in exe.run(run, feed, [loss])[0]]
            if launcher == "ray" and number == 3:  # the test program finds it lost, and goes on
                os.kill(run._parallel.gang.delivery.where[1]["pid"], signal.SIGKILL)
            tested += [float(one.run(test, feed, [loss])[0][0]) for one in (exe, *others)]
        told = str(run.explain())
        values = {name: np.array(scope.find_var(name).get_tensor()).tolist() for name in names}
    return losses + tested, values, told

on_gpus = trained(fluid.cuda_places([0, 1]), "ray")
on_cpus = trained(fluid.cpu_places(2), "threads")
print("RESULT" + json.dumps([on_gpus, on_cpus]))
"""


@pytest.mark.ray
@pytest.mark.slow
def test_actors_on_gpus_learn_what_threads_on_cpus_learn_though_some_are_replaced() -> None:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "ROWLOCK_SIMULATED_GPUS": "2", "PYTHONPATH": root}
    process = subprocess.run(
        [sys.executable, "-c", DRIVER],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        cwd=root,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    (line,) = [row for row in process.stdout.splitlines() if row.startswith("RESULT")]
    (losses, values, report), (expected, known, on_cpus) = json.loads(line.removeprefix("RESULT"))
    assert len(losses) == 8 + 8  # of each step on each place, then of a test program there
    for loss, wanted in zip(losses, expected, strict=True):
        assert abs(loss - wanted) <= 1e-5 * abs(wanted)
    for name, value in values.items():
        flat = [abs(a - b) for a, b in zip(_flat(value), _flat(known[name]), strict=True)]
        assert max(flat) <= 1e-5
    assert all("nccl_comm_num" in text for text in (report, on_cpus))


def _flat(value: list[float] | list[list[float]]) -> list[float]:
    return [x for row in value for x in (row if isinstance(row, list) else [row])]
