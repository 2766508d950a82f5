"""Steps of real nets on two replicas, by bucket size, in order and with a lane for communication, in tables.

Run with OMP_NUM_THREADS=1, on a machine with two cores to spare, from a checkout. Without ``--hosts`` the
replicas are Ray actors of this host; ``--hosts RATE ...`` measures between two network namespaces whose cable
is as fast as told (``full``, ``1gbit``, ``200mbit``; Linux, root, iproute2). Times are lower quartiles in
milliseconds over rounds in which the variants take turns, so that a noisy neighbour disturbs them alike.
"predicted" is what the times of the instructions of a step in order promise, if each collective begins when
all that comes before it is done and runs beside what comes after; what it keeps a processor busy for is not
hidden.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import rowlock
import rowlock.fluid as fluid
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.strategies.execution import ExecutionStrategy
from tests.reference.models import conv_bn, residual_block

SIZES = [1 << 18, 1 << 19, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 32 << 20]
WARM_UP = 4
NOT_NICE = {"RAY_worker_niceness": "0"}  # or whatever else runs here goes first
MIB = 2**20


def mlp():
    """784-512-512-10 with Adam, 64 rows a replica: 2.6 MiB of gradients."""
    image, label = fluid.data("image", [None, 784]), fluid.data("label", [None, 1], dtype="int64")
    hidden = fluid.layers.fc(fluid.layers.fc(image, 512, act="relu"), 512, act="relu")
    fluid_loss(fluid.layers.fc(hidden, 10), label, fluid.optimizer.Adam(1e-3))
    return [128, 784]


def resnet():
    """Four stages of a residual block each, 32 to 256 channels, 8 rows a replica: 4.7 MiB of gradients."""
    image = fluid.data("image", [None, 3, 16, 16])
    label = fluid.data("label", [None, 1], dtype="int64")
    x = conv_bn(fluid, image, 32, 3, 1, "relu")
    for channels, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
        x = residual_block(fluid, x, channels, stride)
    pooled = fluid.layers.pool2d(input=x, pool_type="avg", global_pooling=True)
    fluid_loss(fluid.layers.fc(pooled, 10), label, fluid.optimizer.Momentum(0.01, 0.9))
    return [16, 3, 16, 16]


def fluid_loss(logits, label, optimizer):
    cost = fluid.layers.softmax_with_cross_entropy(logits, label)
    optimizer.minimize(fluid.layers.mean(cost, name="loss"))


NETS = {"mlp": mlp, "resnet": resnet}


class Variant:
    """A net of its own, compiled for a bucket size."""

    def __init__(self, name, nbytes, threads):
        self.main, startup, self.scope = fluid.Program(), fluid.Program(), fluid.Scope()
        self.main.random_seed = startup.random_seed = 1
        with fluid.program_guard(self.main, startup), fluid.unique_name.guard():
            shape = NETS[name]()
        self.loss = next(
            op for op in self.main.global_block().ops if op.type == "mean"
        ).output_arg_names[0]
        self.exe = fluid.Executor()
        self.exe.run(startup, scope=self.scope)
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 10, (shape[0], 1))
        self.feed = {"image": rng.standard_normal(shape, "float32"), "label": labels}
        self.program = fluid.CompiledProgram(self.main).with_data_parallel(
            loss_name=self.loss,
            places=fluid.cpu_places(2),
            exec_strategy=ExecutionStrategy(num_threads=threads),
        )
        self.times = []
        fluid.set_flags({"FLAGS_fuse_parameter_memory_size": nbytes / MIB})
        for _ in range(WARM_UP):
            self.step()

    def step(self):
        self.exe.run(self.program, self.feed, [self.loss], scope=self.scope)

    def timed(self, count):
        for _ in range(count):
            start = time.perf_counter()
            self.step()
            self.times.append(1e3 * (time.perf_counter() - start))

    @property
    def buckets(self):
        return sum(node.op in COLLECTIVES for node in self.program.explain().graph.nodes)

    def events(self):
        self.program.trace(True)
        events = []
        for _ in range(5):
            self.step()
            events.append(self.program.executed()[0])
        self.program.trace(False)
        return events


def quartile(times):
    return float(np.percentile(times, 25))


def promised(steps, cost):
    """Return what overlap is expected to save, in milliseconds, by traces of a step in order."""
    took = np.percentile([[event.took for event in step] for step in steps], 25, axis=0)
    busy = np.percentile([[event.busy for event in step] for step in steps], 25, axis=0)
    meets = [event.op in COLLECTIVES for event in steps[0]]
    last = max(i for i, meet in enumerate(meets) if meet)
    computed = talked = 0.0
    for i, seconds in enumerate(took):
        if meets[i] or i > last:
            talked = max(talked, computed) + seconds
            computed += min(busy[i], seconds) * cost if i < last else 0.0
        else:
            computed += seconds
    return 1e3 * (sum(took) - max(talked, computed))


def table(name, rounds, steps):
    variants = {(n, threads): Variant(name, n, threads) for n in SIZES for threads in (1, 0)}
    gains = {n: promised(variants[n, 1].events(), 1.0) for n in SIZES}
    for _ in range(rounds):
        for variant in variants.values():
            variant.timed(steps)
    print("{:>10} {:>8} {:>10} {:>10} {:>10} {:>6}".format(
        "KiB", "buckets", "in order", "predicted", "overlap", "lanes"))  # fmt: skip
    for nbytes in SIZES:
        ordered, beside = variants[nbytes, 1], variants[nbytes, 0]
        plain, lane = quartile(ordered.times), quartile(beside.times)
        overlaps = "yes" if any(beside.program.signals()) else "no"
        row = "{:>10} {:>8} {:>10.2f} {:>10.2f} {:>10.2f} {:>6}"
        print(
            row.format(nbytes >> 10, ordered.buckets, plain, plain - gains[nbytes], lane, overlaps),
            flush=True,
        )


def measure(nets, rounds, steps):
    for name in nets:
        with rowlock.cluster(launcher="ray"):
            print("\n{}: {}".format(name, NETS[name].__doc__.split(":")[0]), flush=True)
            table(name, rounds, steps)


def over_hosts(rates, arguments):
    """Run this script inside one of two hosts, for each speed of the cable between them."""
    from tests.cluster.namespaces import CannotMakeHosts, hosts

    try:
        with hosts(2, cpus=1, ray=False, environment=NOT_NICE) as pair:
            for host in (0, 1):  # a core each, as if they were two machines
                os.sched_setaffinity(0, {host})
                pair.start_node(host)
            os.sched_setaffinity(0, {0})
            for rate in rates:
                if rate != "full":
                    pair.slow(1, rate, "0ms")
                print("\nBetween two hosts, {}:".format(rate), flush=True)
                driver = pair.driver(0, __file__, *arguments)
                print(driver_output(driver))
                if rate != "full":
                    pair.full_speed(1)
    except CannotMakeHosts as error:
        print("\nBetween two hosts: skipped, {}.".format(error))


def driver_output(driver):
    driver.until("done", 900)
    driver.end()
    return "\n".join(
        line for line in driver.output.splitlines() if line[:4] not in ("done", "[202")
    )


def run():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", nargs="+", default=list(NETS), choices=list(NETS))
    parser.add_argument("--hosts", nargs="+", metavar="RATE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    if options.hosts:
        same = ["--rounds", str(options.rounds), "--steps", str(options.steps)]
        over_hosts(options.hosts, ["--nets", *options.nets, *same])
        return
    os.environ.update(NOT_NICE)
    measure(options.nets, options.rounds, options.steps)
    print("done")


if __name__ == "__main__":
    run()
