"""A step of an embedding with gradients as rows, by height of the table, beside that with dense gradients.

Run with OMP_NUM_THREADS=1. 2,048 ids a step, rows of 16 float32. Prints medians in milliseconds, by method;
with ``--memory`` the bytes that a step is planned to take beside persistables, by what is done to gradients.
"""

import argparse
import time
from functools import partial

import numpy as np

import rowlock
import rowlock.fluid as fluid

IDS, WIDTH, STEPS = (256, 8), 16, 12
HEIGHTS = 100_000, 1_000_000, 10_000_000
TABLES = ((True, 10_000), (True, 1_000_000), (False, 1_000_000))  # is_sparse, height
CLIP = fluid.clip.GradientClipByGlobalNorm(1.0)
METHODS = {
    "SGD": partial(fluid.optimizer.SGD, 0.1),
    "Adagrad": partial(fluid.optimizer.Adagrad, 0.1),
    "Adagrad, clipped by global norm": partial(fluid.optimizer.Adagrad, 0.1, grad_clip=CLIP),
    "Adam, lazy": partial(fluid.optimizer.Adam, 0.1, lazy_mode=True),
    "Adam": partial(fluid.optimizer.Adam, 0.1),
    "Momentum": partial(fluid.optimizer.Momentum, 0.1, 0.9),
    "RMSProp": partial(fluid.optimizer.RMSProp, 0.1),
    "Ftrl": partial(fluid.optimizer.Ftrl, 0.1),
    "Lamb": partial(fluid.optimizer.Lamb, 0.1),
}
PLANNED = ("SGD", "Adagrad", "Adam, lazy", "Adam", "Momentum")  # of these, memory
CLIPPED = {"grad_clip": CLIP}
WAYS = {  # what is done to gradients: options of the method, whether with AMP, places, whether with Reduce
    "as they are": ({}, False, 1, False),
    "clipped": (CLIPPED, False, 1, False),
    "AMP, clipped": (CLIPPED, True, 1, False),
    "2 places, clipped": (CLIPPED, False, 2, False),
    "2 places, AMP, Reduce, clipped": (CLIPPED, True, 2, True),
    "L2Decay": ({"regularization": fluid.regularizer.L2Decay(1e-4)}, False, 1, False),
}


def milliseconds(method, sparse, height):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.data("ids", [*IDS], "int64")
        rows = fluid.embedding(ids, [height, WIDTH], sparse)
        loss = fluid.layers.reduce_mean(fluid.layers.square(fluid.layers.reduce_sum(rows, 1)))
        method().minimize(loss)
    exe, draw, times = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(0), []
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for _ in range(STEPS):
            feed = {"ids": draw.integers(0, height, IDS)}
            start = time.perf_counter()
            exe.run(main, feed, [loss])
            times.append(time.perf_counter() - start)
    return float(np.median(times[3:])) * 1e3


def planned(method, way, height):
    """Return the bytes that a step is planned to take of temporaries, scratch and gradients."""
    options, amp, places, reduce = WAYS[way]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = fluid.data("ids", [None, IDS[1]], "int64")
        rows = fluid.embedding(ids, [height, WIDTH], is_sparse=True)
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(rows, 4)))
        optimizer = METHODS[method](**options)
        if amp:
            optimizer = fluid.contrib.mixed_precision.decorate(optimizer)
        optimizer.minimize(loss)
    build = fluid.BuildStrategy()
    if reduce:
        build.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    cpus, exe = [fluid.CPUPlace()] * places, fluid.Executor(fluid.CPUPlace())
    program = fluid.CompiledProgram(main).with_data_parallel(loss.name, build, places=cpus)
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        exe.run(program, {"ids": np.arange(IDS[0] * IDS[1]).reshape(IDS)}, [loss])
        return program.explain().memory.peak


def print_memory():
    print(f"{'':46}", *(f"rows of {height:13,}" for height in HEIGHTS))
    for method in PLANNED:
        for way in WAYS:
            peaks = [f"{planned(method, way, height):21,}" for height in HEIGHTS]
            print(f"{method + ', ' + way:46}", *peaks, flush=True)


def print_times():
    heads = [f"{'rows of' if sparse else 'dense,'} {height:,}" for sparse, height in TABLES]
    print(f"{'':34}", *(f"{head:>18}" for head in heads))
    for name, method in METHODS.items():
        tables = TABLES[:2] if "lazy" in name else TABLES
        times = [f"{milliseconds(method, *table):18.2f}" for table in tables]
        print(f"{name:34}", *times, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", action="store_true", help="planned bytes, in place of times")
    print_memory() if parser.parse_args().memory else print_times()
