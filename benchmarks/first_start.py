"""What the first starts of a net know about its kernels, with nothing on disk, beside busy processes or alone.

    OMP_NUM_THREADS=1 python benchmarks/first_start.py --models resnet18 vgg --busy

Each start is a process of its own that builds the net, runs a step and tells how long that took, what was
measured and the median of the steps behind it, by its thread's time on the processor. ``--busy``: one process
on each core computes all the while. Starts of a net share a cache directory that is empty at first.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import rowlock.fluid as fluid
from benchmarks.busy_host import busy
from benchmarks.models import MODELS, build

TOLD = "measured kernels"


def start(name, steps):
    """Run a net's first step and some more, and print what that took."""
    main, startup, loss, feed = build(fluid, name)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    program = fluid.CompiledProgram(main)
    began, worked = time.perf_counter(), time.process_time()
    exe.run(program, feed, [loss], scope=scope)
    passed, worked = time.perf_counter() - began, time.process_time() - worked
    notes = [note for note in program.explain().graph.notes if note.startswith(TOLD)]
    times = []
    for _ in range(steps):
        began = time.thread_time()
        exe.run(program, feed, [loss], scope=scope)
        times.append(time.thread_time() - began)
    line = "{}: first run {:.2f} s, {:.2f} s of the processor; a step {:.1f} ms"
    print(line.format(name, passed, worked, 1e3 * np.median(times)))
    print("  " + "".join(notes), flush=True)


def run():
    """Start as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["resnet18", "vgg"])
    parser.add_argument("--starts", type=int, default=2, help="of a net in one round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5, help="behind the first of a start")
    parser.add_argument("--busy", action="store_true", help="with a busy process on each core")
    parser.add_argument("--here", metavar="MODEL", help="one start in this process")
    options = parser.parse_args()
    if options.here:
        start(options.here, options.steps)
        return
    again = [sys.executable, __file__, "--steps", str(options.steps), "--here"]
    with busy("each" if options.busy else "none"):
        for _ in range(options.rounds):
            for name in options.models:
                with tempfile.TemporaryDirectory() as folder:
                    for _ in range(options.starts):
                        environment = {**os.environ, "ROWLOCK_CACHE_DIR": folder}
                        subprocess.run([*again, name], env=environment, check=True)


if __name__ == "__main__":
    run()
