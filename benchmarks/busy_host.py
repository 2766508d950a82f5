"""How long a step takes with ``pin_replicas`` (what users get) and without, alone and beside busy processes.

    OMP_NUM_THREADS=1 python benchmarks/busy_host.py --models fit lenet --busy none 0 1 each

A gang of either kind trains the same program, in turns within each round, so that a noisy neighbour disturbs
them alike; before the rounds of each load both run until their policies have had time to decide. ``--busy``
lists the cores that have an ordinary busy process each: ``none``, numbers of cores, ``each`` (core) or ``any``
(one process that the system places). ``--places`` may be more than there are cores. A ratio is that of one
round, pinned by policy over never pinned, of the steps' means and of their medians: below 1 the policy is
faster. How busy the machine was by itself stands above: a calm one uses a twentieth of a core.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("RAY_worker_niceness", "0")

import rowlock
import rowlock.fluid as fluid
from benchmarks.models import EVERY, build
from rowlock.cluster.ray.pinning import idle_seconds

SETTLE_S = 2.0  # of each gang, after a change of load
WARM_UP_STEPS = 24
LEAST_STEPS = 8  # of a turn


class Gang:
    """A program on replicas of its own."""

    def __init__(self, model, pin, places):
        self._stack = ExitStack()
        self._stack.enter_context(rowlock.cluster(pin_replicas=pin))
        self._exe, self._scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        main, startup, self._loss, feed = build(fluid, model)
        self._feeds = itertools.cycle(feed if isinstance(feed, list) else [feed])
        self.cycle = len(feed) if isinstance(feed, list) else 1
        self._exe.run(startup, scope=self._scope)
        self._program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=self._loss.name, places=fluid.cpu_places(places)
        )
        for _ in range(WARM_UP_STEPS):
            self.step()

    def step(self):
        """Run a step, and return the seconds that it took."""
        start = time.perf_counter()
        self._exe.run(
            self._program, feed=next(self._feeds), fetch_list=[self._loss], scope=self._scope
        )
        return time.perf_counter() - start

    def turn(self, seconds):
        """Run whole cycles of feeds for so long; return the seconds of each step."""
        until, times = time.perf_counter() + seconds, []
        while time.perf_counter() < until or len(times) < LEAST_STEPS:
            times += [self.step() for _ in range(self.cycle)]
        return times

    def close(self):
        """End the replicas."""
        self._stack.close()


@contextmanager
def busy(load):
    """Keep an ordinary process busy on each of the cores that a load names, meanwhile."""
    cores = sorted(os.sched_getaffinity(0))
    lists = {"none": [], "any": [cores], "each": [[core] for core in cores]}
    processes = []
    try:
        for allowed in lists[load] if load in lists else [[int(load)]]:
            spin = f"import os; os.sched_setaffinity(0, {allowed})\nwhile True: pass"
            processes.append(subprocess.Popen([sys.executable, "-S", "-c", spin]))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def foreign_now():
    """Return how many cores are busy while this process sleeps."""
    cores = sorted(os.sched_getaffinity(0))
    before, began = idle_seconds(cores), time.monotonic()
    time.sleep(0.5)
    return max(len(cores) - (idle_seconds(cores) - before) / (time.monotonic() - began), 0.0)


def measure(gangs, load, rounds, seconds):
    """Return the milliseconds of each round beside a load: means and medians, by gang."""
    means, medians = ({pin: [] for pin in gangs} for _ in range(2))
    with busy(load):
        for gang in gangs.values():
            gang.turn(SETTLE_S)
        for turn in range(rounds):
            order = list(gangs) if turn % 2 == 0 else list(gangs)[::-1]
            for pin in order:
                times = 1e3 * np.array(gangs[pin].turn(seconds))
                means[pin].append(times.mean())
                medians[pin].append(np.median(times))
    return means, medians


def text_of(load, means, medians):
    """Return a line: milliseconds a step of both gangs, and quartiles over rounds of their ratios."""
    parts = [f"{load:>8}"]
    for each in (means, medians):
        ratios = np.array(each[True]) / np.array(each[False])
        low, middle, high = np.percentile(ratios, [25, 50, 75])
        policy, free = np.median(each[True]), np.median(each[False])
        parts.append(f"{policy:9.3f} {free:9.3f} {middle:6.2f} [{low:.2f} .. {high:.2f}]")
    return "   ".join(parts)


def main():
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["fit"], choices=list(EVERY))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--busy", nargs="+", default=["none", "0", "1", "each"], metavar="LOAD")
    parser.add_argument("--places", type=int, default=2, help="how many replicas")
    options = parser.parse_args()
    for model in options.models:
        others = foreign_now()
        gangs = {pin: Gang(model, pin, options.places) for pin in (True, False)}
        print(f"{model}, {options.places} replicas, {options.rounds} rounds of {options.seconds:g} s; "
              f"{others:.2f} cores were busy before")  # fmt: skip
        for title in ("mean ms of a step:", "median ms:"):
            print(f"{'':>8}   {title:19} {'ratio':>6}{'':17}", end="")
        print()
        try:
            for load in options.busy:
                figures = measure(gangs, load, options.rounds, options.seconds)
                print(text_of(load, *figures), flush=True)
        finally:
            for gang in reversed(gangs.values()):
                gang.close()


if __name__ == "__main__":
    main()
