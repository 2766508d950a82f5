"""Make expressions.json (with Paddle 1.8.5) or expressions_2x.json (with 3.3.1) of expressions.py.

Run with a Python that has paddlepaddle==1.8.5 or 3.3.1:  python generate_expressions.py

{expression: [op types (1.8.5 only), dtype, shape, elements]}
"""

import json
import os
import sys

import numpy as np
import paddle

import expressions

HERE = os.path.dirname(os.path.abspath(__file__))
OLD = paddle.__version__.startswith("1.")


def rounded(array):
    if array.dtype.kind != "f":
        return array.ravel().tolist()
    return [float("%.7g" % number) for number in array.ravel()]


def computed(expression, static, place):
    """Run one expression in a program of its own."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        names = {"np": np, "paddle": paddle}
        names["L" if OLD else "F"] = paddle.fluid.layers if OLD else paddle.nn.functional
        data = paddle.fluid.data if OLD else static.data
        for name, (shape, dtype) in expressions.SHAPES.items():
            names[name] = data(name, shape, dtype)
        ((_, ops, out),) = expressions.build([expression], main.global_block(), names)
    exe = static.Executor(place)
    exe.run(startup)
    (fetched,) = exe.run(main, feed=expressions.arrays(), fetch_list=[out], return_numpy=False)
    value = np.array(fetched)
    return [ops if OLD else [], value.dtype.name, list(value.shape), rounded(value)]


def main():
    static = paddle.fluid if OLD else paddle.static
    if not OLD:
        paddle.enable_static()
    place = paddle.fluid.CPUPlace() if OLD else paddle.CPUPlace()
    table = {}
    for expression in expressions.FLUID if OLD else expressions.PADDLE:
        try:
            table[expression] = computed(expression, static, place)
        except Exception as error:
            print(expression, "IS REFUSED:", str(error).strip().splitlines()[-2:], file=sys.stderr)
    path = os.path.join(HERE, "expressions.json" if OLD else "expressions_2x.json")
    rows = ["%s: %s" % (json.dumps(key), json.dumps(row)) for key, row in table.items()]
    with open(path, "w") as file:
        file.write("{\n" + ",\n".join(rows) + "\n}\n")


main()
