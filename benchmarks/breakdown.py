"""Where a step of Rowlock goes: ops by family, communication, the driver, and what the executor itself costs.

    OMP_NUM_THREADS=1 python benchmarks/breakdown.py --models mlp resnet18

Two Ray replicas of one core each. Families are the files of kernels. "exposed" is communication while nothing
else runs on that replica, with what of it is waiting for the peer. "empty calls" is a step in which every
kernel's calls are made with their operands and do nothing (executor/plan/null.py): what plan and Python cost.

    python benchmarks/breakdown.py --device gpu

What the host spends on a replayed step of a GPU, on a GPU that does nothing (executor/simulated/null.py), so
that it needs none: the calls to CUDA are counted, not made. Also for ResNet-50 and GPT-2.

    OMP_NUM_THREADS=1 python benchmarks/breakdown.py --floor --models gpt resnet18

How far a step of one place is from its arithmetic, on one core, to which the process is pinned. The floor are
the multiply-adds of the program as its user wrote it (benchmarks/work.py: products and convolutions, their
gradients, taps on padding left out) at the rate of the core's best product of 2,048 x 2,048. Products, copies
of 256 MiB and steps take turns, and processor time counts. An instruction's own floor are its multiply-adds at
that rate, or its bytes at the copy's where these take longer; instructions are sorted by their time above it.
What lies in a cache moves faster than the copy, and Winograd's convolutions multiply less: they fall below.
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
from benchmarks.work import Work
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.executor.plan.null import null_gpu_plan, null_plan
from rowlock.executor.plan.shapes import infer_specs
from rowlock.executor.simulated.null import NullRuntime
from rowlock.graph.compile import compile_program
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.graph.ops.registry import OPS
from rowlock.graph.passes.target import Target

LIMIT_US = 1.5  # of an instruction, by itself
GPU_LIMIT_US = 50.0  # of a replayed step, without copying what is fed
STEPS_TRACED = 8
SIDE = 2048  # of the matrices whose product is the core's peak
SHOWN = 24  # kinds of instructions
COPIED = 1 << 28  # bytes that are read, and as many written: more than caches hold


class Training:
    """A model under way, on two places or on this thread alone."""

    def __init__(self, name, switches=(), places=2):
        self.main, startup, self.loss, self.feed = build(fluid, name)
        self.exe, self.scope = fluid.Executor(), fluid.Scope()
        self.exe.run(startup, scope=self.scope)
        strategy = fluid.BuildStrategy()
        for switch in switches:
            setattr(strategy, switch, True)
        self.program = fluid.CompiledProgram(self.main, build_strategy=strategy)
        if places > 1:
            self.program.with_data_parallel(
                loss_name=self.loss.name, build_strategy=strategy, places=fluid.cpu_places(places)
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


def report(name, steps, switches):
    """Measure a model and print where its step goes; return whether the executor keeps its limit."""
    training = Training(name, switches)
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


def worked(program, feed):
    """Return the nodes of a program, and their multiply-adds and bytes when it is fed so."""
    specs = infer_specs(
        program, [spec_of(feed[program.values[i].name]) for i in program.feeds], lambda name: None
    )
    return program.nodes, Work(specs)


def products():
    """Return calls that multiply matrices of 2,048 x 2,048 on one core, by library, and a copy of memory."""
    x = np.random.default_rng(0).random((SIDE, SIDE), "float32")
    out, (source, copy) = np.empty_like(x), np.zeros((2, COPIED), "uint8")
    calls = {"copy": [lambda: np.copyto(copy, source)]}
    for library in ("numpy", "onednn"):
        if ("matmul", library) in KERNELS:
            calls[library] = bind(
                "matmul", {"X": [x], "Y": [x]}, {"Out": [out]}, {}, Device(), library
            )
    return calls


def processor_seconds(calls):
    """Return the processor's seconds of some calls."""
    began = time.process_time()
    for call in calls:
        call()
    return time.process_time() - began


def floor_report(name, steps, switches):
    """Print how far a model's step is from its multiply-adds, and which instructions are farthest."""
    training = Training(name, switches, places=1)
    for _ in range(6):
        training.step()
    calls, times, events = products(), defaultdict(list), []
    for _ in range(steps):
        for what, made in {**calls, "step": [training.step]}.items():
            times[what].append(processor_seconds(made))
        training.program.trace(True)
        training.step()
        events.append(training.program.executed()[0])
        training.program.trace(False)
    seconds = {what: float(np.median(taken)) for what, taken in times.items()}
    best = min((what for what in seconds if what in ("numpy", "onednn")), key=seconds.get)
    peak, copied = SIDE**3 / seconds[best], 2 * COPIED / seconds["copy"]
    fetches = [training.loss.name]
    written = compile_program(training.main, list(training.feed), fetches, Target(), capabilities())
    nodes, work = worked(written.program, training.feed)
    needed = sum(work.multiply_adds(node) for node in nodes)
    step, least = 1e3 * seconds["step"], 1e3 * needed / peak
    line = "\n{}: {:.1f} ms a step, floor {:.1f} ms: {:.3f}"
    print(line.format(name, step, least, step / least))
    line = "  {:.2f} G multiply-adds at {:.1f} G a second ({}); a copy moves {:.1f} GB/s"
    print(line.format(needed / 1e9, peak / 1e9, best, copied / 1e9))
    nodes, work = worked(training.replica_program(), training.feed)
    taken = 1e3 * np.median([[event.busy for event in one] for one in events], axis=0)
    rows = defaultdict(lambda: np.zeros(3))
    for node, ms in zip(nodes, taken, strict=True):
        floor = 1e3 * max(work.multiply_adds(node) / peak, work.nbytes(node) / copied)
        rows[node.op, node.kernel, work.described(node)] += 1, ms, floor
    print("  {:>8} {:>8} {:>8} {:>5}".format("above", "ms", "floor", "times"))
    for about, (count, ms, floor) in sorted(rows.items(), key=lambda row: row[1][2] - row[1][1])[
        :SHOWN
    ]:
        line = "  {:8.2f} {:8.2f} {:8.2f} {:5.0f}  {} ({}) {}"
        print(line.format(ms - floor, ms, floor, count, *about))


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
    parser.add_argument("--floor", action="store_true", help="one place beside its arithmetic")
    parser.add_argument("--switches", nargs="+", default=[], help="of BuildStrategy, to be on")
    options = parser.parse_args()
    if options.device == "gpu":
        slow = [name for name in options.models or every if not gpu_report(name)]
        if slow:
            print("more than {} us a step: {}".format(GPU_LIMIT_US, ", ".join(slow)))
        return
    options.models = options.models or list(MODELS)
    if options.floor:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        for name in options.models:
            floor_report(name, options.steps, options.switches)
        return
    with rowlock.cluster(launcher=options.launcher):
        slow = [
            name for name in options.models if not report(name, options.steps, options.switches)
        ]
    if slow:
        print("\nmore than {} us an instruction: {}".format(LIMIT_US, ", ".join(slow)))


if __name__ == "__main__":
    run()
