"""Where a step of Rowlock goes: ops by family, communication, the driver, and what the executor itself costs.

    OMP_NUM_THREADS=1 python benchmarks/breakdown.py --models mlp resnet18

Two Ray replicas of one core each. Families are the files of kernels. "exposed" is communication while nothing
else runs on that replica, with what of it is waiting for the peer. "empty calls" is a step in which every
kernel's calls are made with their operands and do nothing (executor/plan/null.py): what plan and Python cost.

    python benchmarks/breakdown.py --device gpu

What the host spends on a replayed step of a GPU, on a GPU that does nothing (executor/simulated/null.py), so
that it needs none: the calls to CUDA are counted, not made. Also for ResNet-50 and GPT-2.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_worker_niceness", "0")

import rowlock
import rowlock.fluid as fluid
from benchmarks import large_models, sizes
from benchmarks.models import MODELS, build
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.registry import KERNELS
from rowlock.executor.plan.null import null_gpu_plan, null_plan
from rowlock.executor.simulated.null import NullRuntime
from rowlock.graph.compile import compile_program
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.graph.ops.registry import OPS
from rowlock.graph.passes.target import Target

LIMIT_US = 1.5  # of an instruction, by itself
GPU_LIMIT_US = 50.0  # of a replayed step, without copying what is fed
STEPS_TRACED = 8


class Training:
    """A model under way on two places."""

    def __init__(self, name, switches=None):
        main, startup, self.loss, self.feed = build(fluid, name)
        self.exe, self.scope = fluid.Executor(), fluid.Scope()
        self.exe.run(startup, scope=self.scope)
        strategy = fluid.BuildStrategy()
        for switch, value in (switches or {}).items():
            setattr(strategy, switch, value)
        self.program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=self.loss.name, build_strategy=strategy, places=fluid.cpu_places(2)
        )

    def step(self):
        """Run one step and return its loss by place."""
        return self.exe.run(self.program, self.feed, [self.loss], scope=self.scope)[0]

    def median_ms(self, steps):
        """Return the median milliseconds of some steps."""
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        return 1e3 * float(np.median(times))

    def replica_program(self):
        """Return what a replica runs."""
        return self.program._parallel.last.program


def family_of(op):
    """Return the name of the file that an op's kernel is in."""
    if op in COLLECTIVES:
        return "communication"
    kernel = KERNELS.get((op, "numpy"))
    if kernel is None and op not in OPS:
        return op  # an instruction of the plan itself
    function = kernel.function if kernel else OPS[op].scalar
    return function.__module__.rpartition(".")[2]


def union(spans):
    """Return spans of time joined where they overlap."""
    result = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1][1] = max(result[-1][1], end)
        else:
            result.append([begin, end])
    return result


def length(spans):
    """Return how long spans last together."""
    return sum(end - begin for begin, end in union(spans))


def exposed(events):
    """Return the seconds in which collectives ran and nothing else did."""
    talks = [(e.began, e.ended) for e in events if e.op in COLLECTIVES]
    others = [(e.began, e.ended) for e in events if e.op not in COLLECTIVES]
    return length([*talks, *others]) - length(others)


def traced(training):
    """Return (seconds, events by place) of traced steps, and the driver's seconds by what it does."""
    training.program.trace(True)
    steps = []
    for _ in range(STEPS_TRACED):
        start = time.perf_counter()
        training.step()
        took = time.perf_counter() - start
        steps.append((took, training.program.executed()))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "trace.json")
        training.program.timeline(path)
        events = json.loads(Path(path).read_text())["traceEvents"]
    training.program.trace(False)
    driver = defaultdict(list)
    for event in events:
        if event["pid"] == 0 and event.get("ph") == "X":
            driver[event["name"]].append(1e-6 * event["dur"])
    return steps, driver


def empty_calls(training):
    """Return (instructions, calls, seconds) of a step whose calls do nothing; the least of some steps."""
    program = training.replica_program()
    halves = [training.feed[program.values[i].name] for i in program.feeds]
    feeds = [np.array_split(array, 2)[0] for array in halves]
    plan = null_plan(program, feeds)
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        plan.run(feeds)
        seconds.append(time.perf_counter() - start)
    return len(plan.instructions), sum(plan.device.calls.values()), min(seconds)


def report(name, steps):
    """Measure a model and print where its step goes; return whether the executor keeps its limit."""
    training = Training(name)
    training.median_ms(6)
    wall = training.median_ms(steps)
    runs, driver = traced(training)
    families = defaultdict(lambda: [0.0] * len(runs))
    for k, (_, places) in enumerate(runs):
        for event in places[0]:
            families[family_of(event.op)][k] += 1e3 * (event.ended - event.began)
    medians = {family: float(np.median(times)) for family, times in families.items()}
    first = [places[0] for _, places in runs]
    busy = 1e3 * np.median([max(e.ended for e in events) for events in first])
    alone = 1e3 * np.median([exposed(events) for events in first])
    waited = 1e3 * np.median([sum(e.waited for e in events) for events in first])
    print("\n{}: {:.3f} ms a step, not traced".format(name, wall))
    print("  replica 0, traced: {:.3f} ms".format(busy))
    for family in sorted(medians, key=medians.get, reverse=True):
        share = 100 * medians[family] / busy
        print("    {:16} {:9.3f} ms {:5.1f} %".format(family, medians[family], share))
    line = "    communication exposed {:.3f} ms, of it waiting for the peer {:.3f} ms"
    print(line.format(alone, min(waited, alone)))
    beside = [took - max(e.ended for place in p for e in place) for took, p in runs]
    line = "  driver and transport: {:.3f} ms of a traced step beside the longest replica"
    print(line.format(1e3 * np.median(beside)))
    for span, seconds in driver.items():
        print("    {:16} {:9.3f} ms".format(span, 1e3 * np.median(seconds)))
    instructions, calls, seconds = empty_calls(training)
    each = 1e6 * seconds / instructions
    line = "  empty calls: {} instructions, {} calls, {:.3f} ms: {:.2f} us an instruction, {:.3f} us a call"
    print(line.format(instructions, calls, 1e3 * seconds, each, 1e6 * seconds / max(calls, 1)))
    return each <= LIMIT_US


def gpu_program(name):
    """Return (program, loss, feed, switches) of a model; of a large one with few rows."""
    if name in MODELS:
        main, _, loss, feed = build(fluid, name)
        return main, loss, feed, {}
    size = replace(sizes.SIZES[name], rows=2)
    net = large_models.build(name, size, "bfloat16")
    return net.main, net.loss, sizes.feed(name, size), large_models.SWITCHES[name]


def gpu_report(name):
    """Print what the host spends on a step that is replayed; return whether it keeps the limit."""
    runtime = NullRuntime()
    main, loss, feed, switches = gpu_program(name)
    strategy = fluid.BuildStrategy()
    for switch, value in switches.items():
        setattr(strategy, switch, value)
    able = capabilities(frozenset(runtime.versions()))
    target = Target(strategy=strategy)
    program = compile_program(main, list(feed), [loss.name], target, able, "cupy").program
    feeds = [feed[program.values[i].name] for i in program.feeds]
    plan = null_gpu_plan(program, feeds, runtime)
    for _ in range(3):
        plan.run(feeds)
    runtime.call_counts.clear()
    took, pinned = [], [np.empty_like(array) for array in feeds]
    for _ in range(300):
        start = time.perf_counter()
        plan.run(feeds)
        plan.fetched().wait()
        submitted = time.perf_counter()
        for target, array in zip(pinned, feeds, strict=True):
            np.copyto(target, array)
        took.append((submitted - start, time.perf_counter() - submitted))
    whole, copying = 1e6 * np.median(took, axis=0)
    print("{}: {:.1f} us a step, {:.1f} of them to copy what is fed".format(name, whole, copying))
    counts = ", ".join("{} {:.0f}".format(k, n / 300) for k, n in runtime.call_counts.items())
    print("  calls a step: {}".format(counts))
    print("  " + plan.described()[0])
    return whole - copying <= GPU_LIMIT_US


def run():
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = [*MODELS, *sizes.SIZES]
    parser.add_argument("--models", nargs="+", choices=every)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--launcher", default="ray", choices=("ray", "threads"))
    parser.add_argument("--device", default="cpu", choices=("cpu", "gpu"))
    options = parser.parse_args()
    if options.device == "gpu":
        slow = [name for name in options.models or every if not gpu_report(name)]
        if slow:
            print("more than {} us a step: {}".format(GPU_LIMIT_US, ", ".join(slow)))
        return
    options.models = options.models or list(MODELS)
    with rowlock.cluster(launcher=options.launcher):
        slow = [name for name in options.models if not report(name, options.steps)]
    if slow:
        print("\nmore than {} us an instruction: {}".format(LIMIT_US, ", ".join(slow)))


if __name__ == "__main__":
    run()
