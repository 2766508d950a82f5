"""Make rmsprop.json with Paddle 1.8.5: a small net trained by RMSProp, with momentum and centered or not.

Run with a Python that has paddlepaddle==1.8.5:  python generate_rmsprop.py

rmsprop.json  {"initial": {parameter: array}, "feed": {name: array}, "ops": {parameter: {slot: [name]}},
               "options": {case: {argument: value}},
               "cases": {case: [{persistable: array after the step} per step]}}
"""

import os

import compact_json
import numpy as np
import paddle.fluid as fluid

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 5
SHAPES = {"w1": (4, 3), "b1": (3,), "w2": (3, 1)}
CASES = {
    "plain": {},
    "momentum": {"momentum": 0.9},
    "centered": {"centered": True, "epsilon": 1e-3},
    "centered_momentum": {"centered": True, "momentum": 0.5, "rho": 0.9, "epsilon": 1e-3},
}


def drawn():
    """{name: array}: parameters, x and y"""
    rng = np.random.RandomState(5)
    arrays = {name: rng.uniform(-1, 1, shape) for name, shape in SHAPES.items()}
    arrays.update(x=rng.uniform(-1, 1, (4, 4)), y=rng.uniform(-1, 1, (4, 1)))
    return {name: array.astype("float32") for name, array in arrays.items()}


def built(options):
    """(main, startup) of the net and its optimizer"""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
        hidden = fluid.layers.fc(x, 3, act="tanh", param_attr="w1", bias_attr="b1")
        out = fluid.layers.fc(hidden, 1, param_attr="w2", bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        fluid.optimizer.RMSProp(0.05, **options).minimize(loss)
    return main, startup


def trained(options, arrays):
    """The update's slots by parameter, and [{persistable: array}] after each step"""
    main, startup = built(options)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    ops = {}
    for op in main.global_block().ops:
        if op.type == "rmsprop":
            names = op.input_names + op.output_names
            ops[op.input("Param")[0]] = {
                name: list(op.input(name) if name in op.input_names else op.output(name))
                for name in names
            }
    with fluid.scope_guard(scope):
        exe.run(startup)
        for name in SHAPES:
            scope.find_var(name).get_tensor().set(arrays[name], fluid.CPUPlace())
        steps = []
        names = sorted(v.name for v in main.list_vars() if v.persistable)
        for _ in range(STEPS):
            exe.run(main, feed={"x": arrays["x"], "y": arrays["y"]})
            steps.append(
                {name: np.array(scope.find_var(name).get_tensor()).tolist() for name in names}
            )
    return ops, steps


def main():
    arrays = drawn()
    cases = {}
    for case, options in CASES.items():
        ops, cases[case] = trained(options, arrays)
    held = {name: array.tolist() for name, array in arrays.items()}
    document = {
        "initial": {name: held[name] for name in SHAPES},
        "feed": {name: held[name] for name in ("x", "y")},
        "ops": ops,
        "options": CASES,
        "cases": cases,
    }
    with open(os.path.join(HERE, "rmsprop.json"), "w") as file:
        file.write(compact_json.dumps(document, 3) + "\n")


if __name__ == "__main__":
    main()
