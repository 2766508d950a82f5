"""Programs of Paddle 1.8.5 that branch, and what they fetch there in ten steps.

Run where Paddle 1.8.5 is installed: ``python tests/reference/branches.py``. It writes ``branches.json``: for each
program the bytes of it and of its startup program (base64 of zlib), the names to fetch and the numbers.
"""

import base64
import zlib
from pathlib import Path

import numpy as np
from compact_json import dumps

STEPS = 10


def feeds(step):
    """Return the rows of a step: 4 samples of 4 features, and their targets."""
    draw = np.random.RandomState(step)
    return {
        "x": draw.uniform(-1, 1, (4, 4)).astype("float32"),
        "y": draw.uniform(-1, 1, (4, 1)).astype("float32"),
    }


def _train(fluid, x, y, rate):
    weight = fluid.ParamAttr(name="w", initializer=fluid.initializer.Constant(0.1))
    loss = fluid.layers.mean(
        fluid.layers.square_error_cost(fluid.layers.fc(x, 1, param_attr=weight), y)
    )
    fluid.optimizer.Momentum(rate, 0.9).minimize(loss)
    return [loss, rate]


def piecewise(fluid, x, y):
    return _train(fluid, x, y, fluid.layers.piecewise_decay([3, 6], [0.1, 0.05, 0.01]))


def warm_up(fluid, x, y):
    rate = fluid.layers.piecewise_decay([3, 6], [0.1, 0.05, 0.01])
    return _train(fluid, x, y, fluid.layers.linear_lr_warmup(rate, 4, 0.0, 0.1))


def cycles(fluid, x, y):
    return _train(fluid, x, y, fluid.layers.polynomial_decay(0.1, 5, 0.01, 0.9, cycle=True))


def two_sides(fluid, x, y):
    """``cond`` with a side within a side; a side that is not taken may take the root of a negative number."""
    total = fluid.layers.reduce_sum(x)
    zero = fluid.layers.fill_constant([1], "float32", 0.0)
    one = fluid.layers.fill_constant([1], "float32", 1.0)
    result = fluid.layers.cond(
        total > zero,
        lambda: fluid.layers.cond(
            total > one, lambda: x * 2.0, lambda: fluid.layers.sqrt(total) + x
        ),
        lambda: fluid.layers.sqrt(zero - total) * 3.0 + x,
    )
    return [result]


def counts(fluid, x, y):
    """A side without results that writes a persistable around it."""
    seen = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="seen")
    zero = fluid.layers.fill_constant([1], "float32", 0.0)

    def count():
        fluid.layers.assign(seen + 1.0, seen)

    fluid.layers.cond(fluid.layers.reduce_sum(x) > zero, count, None)
    return [seen * 1.0, fluid.layers.mean(y)]


PROGRAMS = (piecewise, warm_up, cycles, two_sides, counts)


def packed(program):
    """Return the bytes of a program, compressed, as text."""
    return base64.b64encode(zlib.compress(program.desc.serialize_to_string(), 9)).decode()


def main():
    import paddle.fluid as fluid

    result = {}
    for build in PROGRAMS:
        program, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(program, startup), fluid.unique_name.guard():
            x, y = (fluid.data(name, [None, size]) for name, size in (("x", 4), ("y", 1)))
            fetched = build(fluid, x, y)
        with fluid.scope_guard(fluid.Scope()):
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            steps = [exe.run(program, feed=feeds(i), fetch_list=fetched) for i in range(STEPS)]
        result[build.__name__] = {
            "program": packed(program),
            "startup": packed(startup),
            "fetch": [variable.name for variable in fetched],
            "steps": [[np.asarray(value).ravel().tolist() for value in step] for step in steps],
        }
    path = Path(__file__).with_suffix(".json")
    path.write_text(dumps(result, 2) + "\n")


if __name__ == "__main__":
    main()
