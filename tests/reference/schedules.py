"""Learning-rate schedules that Paddle 1.8.5 and Rowlock compute alike; read by Python 3.7, too.

Run with a Python 3.7 that has paddlepaddle==1.8.5 to make schedules.json:  python schedules.py
{name: [op types of block 0, rates of 50 steps as the integers that have their bits]}
"""

import json
import os
import sys

import numpy as np

STEPS = 50


def schedules(layers):
    return {
        "noam": lambda: layers.noam_decay(512, 10, 2.0),
        "exponential": lambda: layers.exponential_decay(0.1, 7, 0.9),
        "exponential_staircase": lambda: layers.exponential_decay(0.1, 7, 0.9, True),
        "natural_exp": lambda: layers.natural_exp_decay(0.1, 7, 0.3),
        "natural_exp_staircase": lambda: layers.natural_exp_decay(0.1, 7, 0.3, True),
        "inverse_time": lambda: layers.inverse_time_decay(0.1, 7, 0.3),
        "inverse_time_staircase": lambda: layers.inverse_time_decay(0.1, 7, 0.3, True),
        "polynomial": lambda: layers.polynomial_decay(0.1, 30, 0.001, 2.0),
        "polynomial_cycle": lambda: layers.polynomial_decay(0.1, 7, 0.001, 1.5, True),
        "piecewise": lambda: layers.piecewise_decay([5, 17, 30], [0.1, 0.03, 0.007, 1e-4]),
        "cosine": lambda: layers.cosine_decay(0.1, 5, 12),
        "warmup": lambda: layers.linear_lr_warmup(0.1, 9, 1e-5, 0.1),
        "warmup_cosine": lambda: layers.linear_lr_warmup(
            layers.cosine_decay(0.1, 5, 12), 9, 0.003, 0.1
        ),
        "warmup_piecewise": lambda: layers.linear_lr_warmup(
            layers.piecewise_decay([5, 17], [0.1, 0.03, 0.007]), 9, 0.0, 0.1
        ),
    }


def rates(fluid, builders):
    """Build schedules in one program, run it, and return (op types, rates) of each."""
    main, startup = fluid.Program(), fluid.Program()
    variables, ops = [], []
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        block = main.global_block()
        for build in builders:
            before = len(block.ops)
            variables.append(build())
            ops.append([op.type for op in block.ops[before:]])
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        steps = [exe.run(main, fetch_list=variables) for _ in range(STEPS)]
    columns = [
        np.array([np.asarray(step[i]).ravel()[0] for step in steps]) for i in range(len(variables))
    ]
    return list(zip(ops, columns))


if __name__ == "__main__":
    from paddle import fluid

    table = {}
    for name, build in schedules(fluid.layers).items():
        ((ops, values),) = rates(fluid, [build])
        table[name] = [ops, values.astype("float32").view("int32").tolist()]
    rows = ["%s: %s" % (json.dumps(name), json.dumps(row)) for name, row in table.items()]
    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "schedules.json")
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(rows) + "\n}\n")
