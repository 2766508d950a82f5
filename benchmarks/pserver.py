"""Parameter servers: steps a second of a dense net of 51 MB, and what pushing some rows of a table costs.

``python benchmarks/pserver.py [--paddle PYTHON] [--steps N] [--table MB]``. ``--paddle``: a Python that has
Paddle 1.8.5, whose own servers then run the same script on the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from rowlock import fluid
from rowlock.cluster.pserver.hosting import HostedServer, RayDirectory
from rowlock.cluster.pserver.launcher import job_of
from rowlock.cluster.pserver.wire import SocketWire
from rowlock.cluster.ray.session import leave_ray
from rowlock.executor.rpc.messages import Barrier, Goodbye, Hello, Push, Together
from rowlock.executor.servers.server import ParameterServer
from rowlock.strategies.cluster import ClusterConfig

ROLE = Path(__file__).parent / "workers" / "pserver_role.py"
MODEL_BYTES = 5 * 1600 * 1600 * 4
TRAINERS, SERVERS = 2, 2
WIDTH = 64
REPEATS = 5
JOIN_S = 300


def copies() -> float:
    """Return the steps a second that copying alone allows.

    Each trainer's gradients go to servers and parameters come back. Data leaves one process's memory and enters
    another's by two copies: into the kernel, or memory that both share, and out of it.
    """
    source, target = np.ones(MODEL_BYTES, "u1"), np.zeros(MODEL_BYTES, "u1")
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - began)
    moved = TRAINERS * 2 * 2
    cores = min(len(os.sched_getaffinity(0)), TRAINERS + SERVERS)
    return cores / (moved * float(np.median(times)))


def dense(library: str, python: str, steps: int, port: int) -> list[float]:
    """Return the steps a second of each trainer."""
    endpoints = ",".join(f"127.0.0.1:{port + i}" for i in range(SERVERS))

    def start(role: str, number: int) -> subprocess.Popen[str]:
        words = [
            python,
            str(ROLE),
            library,
            role,
            str(number),
            endpoints,
            str(TRAINERS),
            str(steps),
        ]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    servers = [start("server", i) for i in range(SERVERS)]
    trainers = [start("trainer", i) for i in range(TRAINERS)]
    try:
        said = [trainer.communicate(timeout=JOIN_S)[0] for trainer in trainers]
        return [float(text.partition("steps/s ")[2].split()[0]) for text in said]
    finally:
        for process in (*trainers, *servers):
            process.kill()
            process.wait()


def rows(megabytes: int) -> dict[str, float]:
    """Return the seconds of a step that pushes one in a hundred rows of a table, and of one that pushes all."""
    height = megabytes * (1 << 20) // (4 * WIDTH)
    endpoint, config = "127.0.0.1:7990", ClusterConfig()
    server = _table(endpoint, height, config)
    name = next(iter(server.state.parts.by_pushed))
    hosted = HostedServer(job_of(server), config)
    hosted.start()
    wire = SocketWire(RayDirectory(config))
    wire.call(endpoint, Hello(0, 1, ""), 60)
    number, seconds = 0, {}
    for label, count in (("1 %", height // 100), ("all", height)):
        ids = np.random.default_rng(0).permutation(height)[:count]
        values = np.ones((count, WIDTH), "f4")
        times = []
        for _ in range(REPEATS):
            number += 1
            push = Push(0, number, name, values, ids, height)
            began = time.perf_counter()
            wire.call(endpoint, Together((push, Barrier(0, number, "send"))), 300)
            times.append(time.perf_counter() - began)
        seconds[label] = min(times)
    wire.call(endpoint, Goodbye(0), 60)
    hosted.wait(10)
    hosted.kill()
    wire.close()
    leave_ray()
    return seconds


def _table(endpoint: str, height: int, config: ClusterConfig) -> ParameterServer:
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        ids = fluid.data("ids", [None, 1], "int64")
        table = fluid.layers.embedding(ids, [height, WIDTH], is_sparse=True)
        loss = fluid.layers.mean(table)
        fluid.optimizer.SGD(0.1).minimize(loss)
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, main, endpoint, 1, startup_program=startup)
    program, initial = transpiler.get_pserver_programs(endpoint)
    fluid.Executor().run(initial, scope=scope)
    return ParameterServer(program, scope, config)


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__)
    line.add_argument("--paddle", help="a Python that has Paddle 1.8.5")
    line.add_argument("--steps", type=int, default=20)
    line.add_argument("--table", type=int, default=256, help="megabytes")
    arguments = line.parse_args()
    result: dict[str, Any] = {"copies allow": copies()}
    result["rowlock"] = dense("rowlock", sys.executable, arguments.steps, 7960)
    if arguments.paddle:
        result["paddle 1.8.5"] = dense("paddle", arguments.paddle, arguments.steps, 7970)
    result["seconds to push rows"] = rows(arguments.table)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
