"""One step of the 13-to-1 regression, 32 rows: alone, two threads, two Ray replicas. Prints medians.

Of 16 Ray replicas, how long the driver's own thread is at work for a step, as the median of rounds.

Run with OMP_NUM_THREADS=1. With ``FLUID=paddle.fluid`` (Python 3.7, paddlepaddle==1.8.5) the same program
runs on Paddle's Executor and ParallelExecutor.
"""

import argparse
import importlib
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.models import build

os.environ.setdefault("CPU_NUM", "2")
NAME = os.environ.get("FLUID", "rowlock.fluid")
fluid = importlib.import_module(NAME)
STEPS = 1000
WARM_S = 2.0  # replicas take cores of their own after a calm second


def median_us(step):
    warm = time.perf_counter() + WARM_S
    while time.perf_counter() < warm:
        step()
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return 1e6 * float(np.median(times))


def parallel(main, loss, feed, iterations=1):
    how = fluid.ExecutionStrategy()
    how.num_iteration_per_run = iterations
    trainer = fluid.ParallelExecutor(
        False, loss_name=loss.name, main_program=main, exec_strategy=how
    )
    return median_us(lambda: trainer.run([loss.name], feed=feed)) / iterations


def ahead(main, loss, feed):
    """Two steps in flight; feeding the next overlaps the one before."""
    trainer = fluid.ParallelExecutor(False, loss_name=loss.name, main_program=main)
    waiting = []

    def step():
        waiting.append(trainer.run_async([loss.name], feed=feed))
        if len(waiting) > 1:
            waiting.pop(0).result()

    return median_us(step)


def driver_us(main, loss, feed, replicas):
    """Processor time of the driver's thread for a step."""
    program = fluid.CompiledProgram(main).with_data_parallel(
        loss_name=loss.name, places=fluid.cpu_places(replicas)
    )
    exe = fluid.Executor(fluid.CPUPlace())

    def step():
        exe.run(program, feed=feed, fetch_list=[loss])

    median_us(step)
    times = []
    for _ in range(10):
        start = time.thread_time()
        for _ in range(STEPS // 10):
            step()
        times.append(1e6 * (time.thread_time() - start) / (STEPS // 10))
    return float(np.median(times))


def empty_round(replicas):
    """A message to each replica that asks for nothing, and an answer from each."""
    from rowlock.executor.gang.launchers import gang_for
    from rowlock.executor.replica.orders import Inventory

    gang = gang_for(fluid.cpu_places(replicas))
    return median_us(lambda: gang.all(Inventory()))


def run():
    main, startup, loss, feed = build(fluid, "fit")
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(startup)
    alone = median_us(lambda: exe.run(main, feed=feed, fetch_list=[loss]))
    print("{} executor: {:.0f} us".format(NAME, alone))
    if NAME != "rowlock.fluid":
        print("{} two places: {:.0f} us".format(NAME, parallel(main, loss, feed)))
        print("{} 64 a run: {:.1f} us".format(NAME, parallel(main, loss, feed, 64)))
        return
    import rowlock

    for launcher in ("threads", "ray"):
        with rowlock.cluster(launcher=launcher):
            print("rowlock two {} replicas: {:.0f} us".format(launcher, parallel(main, loss, feed)))
            print("  64 a run: {:.1f} us".format(parallel(main, loss, feed, 64)))
            print("  two in flight: {:.0f} us".format(ahead(main, loss, feed)))
    with rowlock.cluster(launcher="ray"):
        print("an empty round: {:.0f} us".format(empty_round(2)))
    with rowlock.cluster(launcher="ray"):
        print("an empty round, 8 replicas: {:.0f} us".format(empty_round(8)))
    with rowlock.cluster(launcher="ray"):
        spent = driver_us(main, loss, feed, 16)
        print("driver of 16 ray replicas: {:.0f} us, {:.1f} a replica".format(spent, spent / 16))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    run()
