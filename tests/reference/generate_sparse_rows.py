"""Make sparse_rows.json with Paddle 1.8.5: an embedding with is_sparse=True trained by each method.

Run with a Python that has paddlepaddle==1.8.5:  python generate_sparse_rows.py

Two lookups of one table meet in a sum. Of the options "clip" makes a gradient clip, and "decay" a regularizer.
(Adamax, Ftrl, DecayedAdagrad, Adadelta and loss scaling take no rows there, and Adam's powers are one step
ahead, so only its lazy form is here.)

"classes" are weights (and biases) of nce with fixed samples and of hsigmoid with a custom tree, is_sparse=True.

FILE  {"table": array, "weights": array, "steps": [ids of a step],
       "cases": {case: {"method": name, "options": {argument: value}, "tables": [array after each step]}},
       "classes": {layer: {method: {"w": [array after each step], "b": ...}}}}
"""

import os

import class_rows
import compact_json
import numpy as np
import paddle.fluid as fluid

HERE = os.path.dirname(os.path.abspath(__file__))
HEIGHT, WIDTH = 6, 2
STEPS = [[[1, 3], [1, 0]], [[0, 3], [3, 3]], [[2, 2], [0, 4]], [[1, 4], [1, 1]]]
METHODS = {
    "sgd": ("SGD", {}),
    "momentum": ("Momentum", {"momentum": 0.9}),
    "nesterov": ("Momentum", {"momentum": 0.9, "use_nesterov": True}),
    "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSProp", {"momentum": 0.9, "centered": True, "epsilon": 0.01}),
    "lamb": ("Lamb", {}),
    "lazy adam": ("Adam", {"lazy_mode": True}),
}
TREATMENTS = {
    "by value": {"clip": ["GradientClipByValue", 0.2]},
    "by norm": {"clip": ["GradientClipByNorm", 0.5]},
    "by global norm": {"clip": ["GradientClipByGlobalNorm", 0.5]},
    "l1": {"decay": ["L1Decay", 0.1]},
    "l2": {"decay": ["L2Decay", 0.1]},
}
CASES = {name: METHODS[name] for name in METHODS}
for _method in ("sgd", "momentum", "adagrad"):
    for _treatment in TREATMENTS:
        _name, _options = METHODS[_method]
        CASES["%s, %s" % (_method, _treatment)] = (_name, dict(_options, **TREATMENTS[_treatment]))


def optimizer(method, options):
    options = dict(options)
    clip, decay = (options.pop(name, None) for name in ("clip", "decay"))
    if clip:
        options["grad_clip"] = getattr(fluid.clip, clip[0])(clip[1])
    if decay:
        options["regularization"] = getattr(fluid.regularizer, decay[0])(decay[1])
    return getattr(fluid.optimizer, method)(0.1, **options)


def trained(method, options, table, weights):
    """The table after each step"""
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        ids = fluid.data("ids", [2, 2], "int64")
        value = fluid.initializer.NumpyArrayInitializer(table)
        attr = fluid.ParamAttr("table", initializer=value)
        first = fluid.embedding(ids, [HEIGHT, WIDTH], is_sparse=True, param_attr=attr)
        second = fluid.embedding(ids, [HEIGHT, WIDTH], is_sparse=True, param_attr=attr)
        scaled = first * fluid.layers.assign(weights) + fluid.layers.square(second)
        optimizer(method, options).minimize(fluid.layers.reduce_sum(scaled))
    exe, scope, tables = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), []
    with fluid.scope_guard(scope):
        exe.run(startup)
        for step in STEPS:
            exe.run(program, feed={"ids": np.array(step, "int64")})
            tables.append(np.array(scope.find_var("table").get_tensor()).tolist())
    return tables


def of_classes(layer, method, options):
    """Weights and biases after each step"""
    program, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        loss = class_rows.loss(fluid, layer)
        optimizer(method, options).minimize(loss)
    exe, scope, steps = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), {"w": [], "b": []}
    with fluid.scope_guard(scope):
        exe.run(startup)
        for feed in class_rows.feeds():
            exe.run(program, feed=feed)
            for name, arrays in steps.items():
                arrays.append(np.array(scope.find_var(name).get_tensor()).tolist())
    return steps


def main():
    rng = np.random.RandomState(4)
    table = rng.uniform(-1, 1, (HEIGHT, WIDTH)).astype("float32")
    weights = rng.uniform(-1, 1, (2, 2, WIDTH)).astype("float32")
    document = {"table": table.tolist(), "weights": weights.tolist(), "steps": STEPS, "cases": {}}
    for case, (method, options) in CASES.items():
        tables = trained(method, options, table, weights)
        document["cases"][case] = {"method": method, "options": options, "tables": tables}
    document["classes"] = {
        layer: {name: of_classes(layer, *METHODS[name]) for name in ("sgd", "adagrad", "lazy adam")}
        for layer in class_rows.LAYERS
    }
    compact_json.write(os.path.join(HERE, "sparse_rows.json"), document, 4)


if __name__ == "__main__":
    main()
