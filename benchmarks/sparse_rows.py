"""A step of an embedding with gradients as rows, by height of the table, beside that with dense gradients.

Run with OMP_NUM_THREADS=1. 2,048 ids a step, rows of 16 float32. Prints medians in milliseconds, by method.
"""

import time

import numpy as np

import rowlock.fluid as fluid

IDS, WIDTH, STEPS = (256, 8), 16, 12
TABLES = ((True, 10_000), (True, 1_000_000), (False, 1_000_000))  # is_sparse, height
METHODS = {
    "SGD": lambda: fluid.optimizer.SGD(0.1),
    "Adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "Adagrad, clipped by global norm": lambda: fluid.optimizer.Adagrad(
        0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)
    ),
    "Adam, lazy": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True),
    "Adam": lambda: fluid.optimizer.Adam(0.1),
    "Momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "RMSProp": lambda: fluid.optimizer.RMSProp(0.1),
    "Ftrl": lambda: fluid.optimizer.Ftrl(0.1),
    "Lamb": lambda: fluid.optimizer.Lamb(0.1),
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


if __name__ == "__main__":
    heads = [f"{'rows of' if sparse else 'dense,'} {height:,}" for sparse, height in TABLES]
    print(f"{'':34}", *(f"{head:>18}" for head in heads))
    for name, method in METHODS.items():
        tables = TABLES[:2] if "lazy" in name else TABLES
        times = [f"{milliseconds(method, *table):18.2f}" for table in tables]
        print(f"{name:34}", *times, flush=True)
