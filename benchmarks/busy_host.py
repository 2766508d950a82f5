"""Steps a second of replicas, kept to their cores by policy and never, alone and beside busy processes.

Run with OMP_NUM_THREADS=1 on a machine with two cores to spare, from a checkout; ``--places`` may be more than
there are cores. Gangs of either kind take turns, so that a noisy neighbour disturbs them alike; each is
measured once its policy has had time to decide. "policy" is what users get, "free" is ``pin_replicas=False``.
How busy the machine was by itself stands above: a calm one uses a twentieth of a core.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import rowlock
import rowlock.fluid as fluid
from benchmarks import models
from rowlock.cluster.ray.pinning import idle_seconds

SETTLE_S = 2.0  # after a change: the policy looks three times a second, and wants a second of calm
SECONDS = 2.0
ONCE = 50


class Gang:
    """A program on two replicas of its own."""

    def __init__(self, model, pin, places):
        self._stack = ExitStack()
        self._stack.enter_context(rowlock.cluster(pin_replicas=pin))
        self._stack.enter_context(fluid.scope_guard(fluid.Scope()))
        self._exe = fluid.Executor(fluid.CPUPlace())
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            self._loss, optimizer, self._feed = getattr(models, model)(
                fluid, np.random.RandomState(0)
            )
            optimizer.minimize(self._loss)
        self._exe.run(startup)
        self._program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=self._loss.name, places=fluid.cpu_places(places)
        )
        self.run(ONCE)

    def run(self, steps):
        for _ in range(steps):
            self._exe.run(self._program, feed=self._feed, fetch_list=[self._loss])

    def rate(self, seconds):
        """Return steps a second over so many seconds."""
        began, steps = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < seconds:
            self.run(1)
            steps += 1
        return steps / took

    def close(self):
        self._stack.close()


@contextmanager
def busy(count):
    """Keep so many ordinary processes busy meanwhile."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
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


def measure(model, rounds, hogs, places):
    """Return rates by policy and by number of busy processes, and what else was busy, all round by round."""
    rates = {(pin, count): [] for pin in (True, False) for count in (0, hogs)}
    others = []
    for turn in range(rounds):
        order = (True, False) if turn % 2 == 0 else (False, True)
        for pin in order:
            gang = Gang(model, pin, places)
            try:
                for count in (0, hogs):
                    others.append(foreign_now() if count == 0 else others[-1])
                    with busy(count):
                        gang.rate(SETTLE_S)
                        rates[pin, count].append(gang.rate(SECONDS))
            finally:
                gang.close()
    return rates, others


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="fit")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--busy", type=int, default=1, help="how many busy processes")
    parser.add_argument("--places", type=int, default=2, help="how many replicas")
    options = parser.parse_args()
    rates, others = measure(options.model, options.rounds, options.busy, options.places)
    print(f"{options.model}, {options.places} replicas, {options.rounds} rounds; busy before a gang's turn: "
          f"{statistics.median(others):.2f} cores, at most {max(others):.2f}")  # fmt: skip
    print(f"{'':>12} {'policy':>8} {'free':>8} {'ratio':>6}   ratios by round")
    for count in (0, options.busy):
        ours, free = rates[True, count], rates[False, count]
        pairs = [a / b for a, b in zip(ours, free, strict=True)]
        name = f"{count} busy" if count else "alone"
        print(
            f"{name:>12} {statistics.median(ours):8.0f} {statistics.median(free):8.0f} "
            f"{statistics.median(pairs):6.2f}   {' '.join(f'{pair:.2f}' for pair in sorted(pairs))}"
        )


if __name__ == "__main__":
    main()
