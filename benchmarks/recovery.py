"""Kill, or stop, one of two Ray replicas in the middle of training: when is it named, when does training go on?

Run with OMP_NUM_THREADS=1. Prints medians in seconds, with and without a spare, and what many kills leave.
"""

import argparse
import logging
import os
import signal
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import rowlock
import rowlock.fluid as fluid
from benchmarks.models import build

KILLS = 15


class Told(logging.Handler):
    """Notes when a failure was told, and what Recovery said it took."""

    def __init__(self):
        super().__init__()
        self.named = []

    def emit(self, record):
        seconds = record.args[-1]  # from the failure's name to the next step's sending
        self.named.append(time.monotonic() - seconds)


def times(sign, spares):
    handler = Told()
    logging.getLogger("rowlock").handlers = [handler]
    logging.getLogger("rowlock").propagate = False
    delays, back = [], []
    with rowlock.cluster(launcher="ray", spares=spares):
        main, startup, loss, feed = build(fluid, "fit")
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=loss.name, places=fluid.cpu_places(2)
        )
        for kill in range(KILLS):
            for _ in range(50):
                exe.run(program, feed=feed, fetch_list=[loss])
            time.sleep(1.0)  # the next spare is ready
            pid = program._parallel.gang.delivery.where[kill % 2]["pid"]
            began = time.monotonic()
            os.kill(pid, sign)
            exe.run(program, feed=feed, fetch_list=[loss])
            back.append(time.monotonic() - began)
            delays.append(handler.named[-1] - began)
    return statistics.median(delays), statistics.median(back), max(back)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for what, sign in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        for spares in (1, 0):
            named, back, worst = times(sign, spares)
            print(
                f"{what}, {spares} spare: named after {named:.3f} s, trained on after {back:.3f} s "
                f"(worst {worst:.3f} s)"
            )
