"""Every instruction of a training step on a GPU by itself: milliseconds, and bytes beside what a copy moves.

    python benchmarks/gpu_kernels.py --models gpt2/bfloat16 resnet50/bfloat16

An instruction is captured many times in one graph, so that launching costs nothing, on the memory and with the
operands that it has in the plan. Bytes are those of what it reads and writes, each array once: less than the
copy's share is work beside memory, or memory that is read twice. The copy is measured in the same run.
``--simulated`` tries it with tiny sizes, on the host.
"""

import argparse
import os
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import rowlock.fluid as fluid
from benchmarks import large_models
from benchmarks.sizes import SIZES, TINY, feed
from benchmarks.work import Work
from rowlock.executor.cuda.memory import DeviceMemory
from rowlock.executor.cuda.runtime import graph_can_hold
from rowlock.executor.cuda.transfers import device_array, upload
from rowlock.executor.device.device import Device
from rowlock.executor.device.gpus import open_gpu
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.bind import Binder
from rowlock.executor.plan.buckets import Buckets
from rowlock.executor.plan.cuda_plan import CudaPlan
from rowlock.executor.plan.shapes import infer_specs
from rowlock.executor.simulated.simulated import COUNT
from rowlock.graph.compile import compile_program
from rowlock.graph.passes.target import Target
from rowlock.strategies.types import to_numpy

LEAST_S = 5e-3  # of one measurement


@dataclass
class Measured:
    """What instructions of one op and library took."""

    count: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    operations: float = 0.0

    def add(self, seconds, nbytes, operations):
        """Count one more."""
        self.count += 1
        self.seconds += seconds
        self.nbytes += nbytes
        self.operations += operations


class Bound:
    """A model's step on a GPU, with random parameters."""

    def __init__(self, model, runtime, tiny):
        name, _, precision = model.partition("/")
        size = (TINY if tiny else SIZES)[name]
        kind = "bfloat16" if precision == "bfloat16" else "float32"
        net = large_models.build(name, size, kind)
        strategy = fluid.BuildStrategy()
        for switch, value in large_models.SWITCHES[name].items():
            setattr(strategy, switch, value)
        if precision == "tf32":
            strategy.gpu_math = "tf32"
        batch = feed(name, size)
        able = capabilities(frozenset(runtime.versions()))
        target = Target(strategy=strategy)
        names = [net.loss.name]
        self.program = compile_program(net.main, list(batch), names, target, able, "cupy").program
        self.feeds = [batch[self.program.values[i].name] for i in self.program.feeds]
        self.specs = infer_specs(self.program, [spec_of(a) for a in self.feeds], lambda name: None)
        self.work = Work(self.specs, padded=True)
        self.runtime, self._state = runtime, {}
        self._rng = np.random.default_rng(0)
        memory = DeviceMemory(runtime)
        device = Device(seed=1, math=self.program.math, memory=memory, runtime=runtime)
        buckets = Buckets(self.program, None)
        binder = Binder(self.program, device, self.specs, self._made, buckets, make=CudaPlan)
        self.plan = binder.plan()

    def _made(self, name, spec):
        if name not in self._state:
            array = device_array(self.runtime, spec.shape, to_numpy(spec.dtype))
            fill(self.runtime, array, self._rng)
            self._state[name] = array
        return self._state[name]


def fill(runtime, array, rng):
    """Write small random numbers into an array of a GPU's."""
    values = 0.02 * rng.random(array.shape, "float32")
    upload(runtime, array, values.astype(array.dtype))


def seconds_of(runtime, steps):
    """Return the seconds of some calls, from a graph that holds them many times."""
    runtime.execute(steps)
    runtime.synchronize()
    repeats, took = 1, 0.0
    while took < LEAST_S and repeats < 4096:
        repeats *= 4
        graph = runtime.capture(list(steps) * repeats)
        graph()
        runtime.synchronize()
        began = time.perf_counter()
        graph()
        runtime.synchronize()
        took = time.perf_counter() - began
    return took / repeats


def copy_rate(runtime, nbytes):
    """Return the bytes a second that a copy within the device reads and writes."""
    step = runtime.copying(runtime.empty(nbytes), runtime.empty(nbytes))
    return 2 * nbytes / seconds_of(runtime, [step])


def report(model, runtime, rate, tiny):
    """Measure a model's instructions and print them by op."""
    net = Bound(model, runtime, tiny)
    for _ in range(3):
        net.plan.run(net.feeds)
    runtime.synchronize()
    rows = defaultdict(Measured)
    for node, one in zip(net.program.nodes, net.plan.instructions, strict=True):
        steps = [call for call in one.calls if graph_can_hold(call, runtime.xp)]
        if steps and len(steps) == len(one.calls):
            took = seconds_of(runtime, steps)
            entry = rows[node.op, node.kernel or "cupy"]
            work = net.work
            entry.add(took, work.nbytes(node), 2 * work.multiply_adds(node))
    whole = sum(one.seconds for one in rows.values())
    print("\n{}: {:.3f} ms in {} instructions".format(model, 1e3 * whole, len(net.program.nodes)))
    print("  {:34} {:9} {:>5} {:>9} {:>6} {:>8} {:>6} {:>8}".format(
        "op", "library", "times", "ms", "%", "GB/s", "copy", "TFLOP/s"))  # fmt: skip
    for (op, library), one in sorted(rows.items(), key=lambda item: -item[1].seconds):
        speed = one.nbytes / one.seconds
        line = "  {:34} {:9} {:5} {:9.3f} {:6.1f} {:8.0f} {:6.2f}"
        share = 100 * one.seconds / whole
        text = line.format(
            op, library, one.count, 1e3 * one.seconds, share, speed / 1e9, speed / rate
        )
        reached = one.operations / one.seconds / 1e12
        print(text + (" {:8.2f}".format(reached) if one.operations else ""))


def run():
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = [
        "{}/{}".format(name, kind) for name in SIZES for kind in ("bfloat16", "tf32", "float32")
    ]
    parser.add_argument("--models", nargs="+", choices=every, default=[every[0], every[3]])
    parser.add_argument("--simulated", action="store_true")
    options = parser.parse_args()
    if options.simulated:
        os.environ[COUNT] = "1"
    runtime = open_gpu(0)
    runtime.use()
    rate = copy_rate(runtime, (1 << 22) if options.simulated else (1 << 30))
    print("{}: a copy moves {:.0f} GB/s".format(runtime.properties.name, rate / 1e9))
    for model in options.models:
        report(model, runtime, rate, options.simulated)


if __name__ == "__main__":
    run()
