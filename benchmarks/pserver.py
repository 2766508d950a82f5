"""Parameter servers: steps of a dense net of 51 MB, a trainer's memory, the price of rows of a table.

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
from concurrent.futures import ThreadPoolExecutor
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

WORKERS = Path(__file__).parent / "workers"
MODEL_BYTES = 5 * 1600 * 1600 * 4
TRAINERS, SERVERS = 2, 2
WIDTH = 64
HEIGHTS, MEMORY_STEPS = (10_000, 4_000_000), 20
REPEATS = 5
JOIN_S = 300


def copies() -> float:
    """Return the steps a second that copying alone allows, on all cores at once.

    Each trainer's gradients go to servers and parameters come back. Data leaves one process's memory and enters
    another's by two copies: into the kernel, or memory that both share, and out of it.
    """
    cores = min(len(os.sched_getaffinity(0)), TRAINERS + SERVERS)
    pairs = [(np.zeros(MODEL_BYTES, "u1"), np.ones(MODEL_BYTES, "u1")) for _ in range(cores)]
    rates = []
    with ThreadPoolExecutor(cores) as threads:
        for _ in range(REPEATS):
            began = time.perf_counter()
            list(threads.map(lambda pair: [np.copyto(*pair) for _ in range(4)], pairs))
            rates.append(4 * cores / (time.perf_counter() - began))
    return float(np.median(rates)) / (TRAINERS * 2 * 2)


def dense(library: str, python: str, steps: int, port: int) -> list[float]:
    """Return the steps a second of each trainer."""
    words = [python, str(WORKERS / "pserver_role.py"), library]
    return _trainers_say("steps/s ", words, TRAINERS, port, [str(TRAINERS), str(steps)])


def memory(height: int, port: int) -> float:
    """Return the most megabytes that a trainer had, whose table of ``height`` rows only servers have."""
    words = [sys.executable, str(WORKERS / "table_role.py")]
    return _trainers_say("MB ", words, 1, port, [str(height), str(MEMORY_STEPS)])[0]


def _trainers_say(
    label: str, words: list[str], count: int, port: int, rest: list[str]
) -> list[float]:
    """Run servers and ``count`` trainers as processes; return the number that each prints behind a label."""
    endpoints = ",".join(f"127.0.0.1:{port + i}" for i in range(SERVERS))

    def start(role: str, number: int) -> subprocess.Popen[str]:
        line = [*words, role, str(number), endpoints, *rest]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    servers = [start("server", i) for i in range(SERVERS)]
    trainers = [start("trainer", i) for i in range(count)]
    try:
        outputs = [trainer.communicate(timeout=JOIN_S)[0] for trainer in trainers]
        return [float(text.partition(label)[2].split()[0]) for text in outputs]
    finally:
        for process in (*trainers, *servers):
            process.kill()
            process.wait()


def rows(megabytes: int) -> dict[str, dict[str, float]]:
    """Return what a step costs that pushes one in a hundred rows of a table, and one that pushes all, in turn.

    Half of the table is at each of two servers. Seconds are medians: by the clock, and of the processor in this
    process and the servers'.
    """
    height = megabytes * (1 << 20) // (4 * WIDTH)
    endpoints, config = [f"127.0.0.1:{7990 + number}" for number in range(SERVERS)], ClusterConfig()
    directory, wire = RayDirectory(config), SocketWire(RayDirectory(config))
    hosted, names = [], {}
    for endpoint in endpoints:
        server = _table(endpoint, endpoints, height, config)
        names[endpoint] = next(iter(server.state.parts.by_pushed))
        hosted.append(HostedServer(job_of(server), config))
        hosted[-1].start()
        wire.call(endpoint, Hello(0, 1, ""), JOIN_S)
    addresses = [directory.find(endpoint, JOIN_S) for endpoint in endpoints]
    pids = [os.getpid(), *(address.pid for address in addresses if address is not None)]
    own = height // SERVERS
    counts, values = {"1 %": own // 100, "all": own}, np.ones((own, WIDTH), "f4")
    costs: dict[str, list[tuple[float, float]]] = {label: [] for label in counts}
    for repeat in range(REPEATS):
        draw = np.random.default_rng(repeat)
        for number, (label, count) in enumerate(counts.items(), len(counts) * repeat + 1):
            # as trainers send them: each row once, in order
            ids = np.sort(draw.permutation(own)[:count])
            began, worked = time.perf_counter(), sum(map(_processor, pids))
            for endpoint, name in names.items():
                push = Push(0, number, name, values[:count], ids, own)
                wire.call(endpoint, Together((push, Barrier(0, number, "send"))), JOIN_S)
            costs[label].append((time.perf_counter() - began, sum(map(_processor, pids)) - worked))
    for endpoint, host in zip(endpoints, hosted, strict=True):
        wire.call(endpoint, Goodbye(0), 60)
        host.wait(10)
        host.kill()
    wire.close()
    leave_ray()
    medians = {label: np.median(each, 0) for label, each in costs.items()}
    kinds = ("clock", "processor")
    result = {
        label: dict(zip(kinds, map(float, each), strict=True)) for label, each in medians.items()
    }
    shares = 100 * medians["1 %"] / medians["all"]
    return result | {"1 % of all, in %": dict(zip(kinds, map(float, shares), strict=True))}


def _processor(pid: int) -> float:
    """Return the processor's seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _table(
    endpoint: str, endpoints: list[str], height: int, config: ClusterConfig
) -> ParameterServer:
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup):
        ids = fluid.data("ids", [None, 1], "int64")
        table = fluid.layers.embedding(ids, [height, WIDTH], is_sparse=True)
        loss = fluid.layers.mean(table)
        fluid.optimizer.SGD(0.1).minimize(loss)
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, main, ",".join(endpoints), 1, startup_program=startup)
    program, initial = transpiler.get_pserver_programs(endpoint)
    fluid.Executor().run(initial, scope=scope)
    return ParameterServer(program, scope, config)


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__)
    line.add_argument("--paddle", help="a Python that has Paddle 1.8.5")
    line.add_argument("--steps", type=int, default=20, help="of the dense net; 0: rows alone")
    line.add_argument("--table", type=int, default=256, help="megabytes")
    arguments = line.parse_args()
    result: dict[str, Any] = {}
    if arguments.steps:
        result["copies allow"] = copies()
        result["rowlock"] = dense("rowlock", sys.executable, arguments.steps, 7960)
        if arguments.paddle:
            result["paddle 1.8.5"] = dense("paddle", arguments.paddle, arguments.steps, 7970)
    result["most MB of a trainer by rows of a table on servers"] = {
        height: memory(height, 7980 + SERVERS * k) for k, height in enumerate(HEIGHTS)
    }
    result[f"seconds to push rows of {arguments.table} MB"] = rows(arguments.table)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
