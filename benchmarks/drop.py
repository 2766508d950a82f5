"""What dropping temporaries costs: a step with 100 MB of them, dropped each step against never by count.

Run with OMP_NUM_THREADS=1. Prints medians of interleaved steps, and the ratio.
"""

import time

import numpy as np

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.execution import ExecutionStrategy

ROWS, WIDTH, LAYERS, STEPS = 4096, 512, 12, 60


def build():
    """Elementwise layers on [4096, 512] float32: 8 MB for each temporary."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        top = fluid.data("x", [None, WIDTH])
        for _ in range(LAYERS):
            top = fluid.layers.scale(top, 1.01, bias=0.1)
        mean = fluid.layers.mean(top)
    return main, mean


def run():
    main, _ = build()
    feed = {"x": np.random.default_rng(0).random((ROWS, WIDTH), "float32")}
    exe, scope = fluid.Executor(), fluid.Scope()
    programs = {
        every: fluid.CompiledProgram(main).with_data_parallel(
            places=fluid.cpu_places(1),
            exec_strategy=ExecutionStrategy(num_iteration_per_drop_scope=every, num_threads=1),
        )
        for every in (1, 0)
    }
    times = {every: [] for every in programs}
    with rowlock.cluster(launcher="threads"):
        for step in range(STEPS):
            for every, program in programs.items():
                start = time.perf_counter()
                exe.run(program, feed, [], scope=scope)
                if step >= 5:
                    times[every].append(time.perf_counter() - start)
        count, nbytes = programs[0].temporaries()
        dropped = programs[1].temporaries()
    each, never = (float(np.median(times[every])) * 1e3 for every in (1, 0))
    print(f"{count} temporaries, {nbytes / 1e6:.0f} MB; after a step that drops: {dropped}")
    print(f"dropped each step {each:.2f} ms, never by count {never:.2f} ms: {each / never:.3f}")


if __name__ == "__main__":
    run()
