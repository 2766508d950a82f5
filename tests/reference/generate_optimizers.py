"""Make optimizers.json with Paddle 1.8.5, and optimizers_2x.json with 3.3.1: a small net trained by each method.

Run with a Python that has paddlepaddle==1.8.5, then with one that has 3.3.1:  python generate_optimizers.py

Of the options "global_norm" makes a clip, "l2_decay" a regularizer, and "exclude" a function that tells this parameter.
(In static programs of 3.3.1 clipping by a global norm fails. Its ASGD can be built with the new representation alone,
whose ops have no slots. Of the gradients by batch that it holds, it uses the first, and its counter stays 0.)

FILE  {"initial": {parameter: array}, "feed": {name: array},
       "cases": {case: {"method": name, "options": {argument: value}, "ops": {parameter: {slot: [name]}},
                        "steps": {number: {persistable: array after that many steps}}}}}
"""

import contextlib
import os

os.environ["FLAGS_enable_pir_api"] = "0"

import compact_json
import numpy as np
import paddle

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = (1, 6, 12)
SHAPES = {"w1": (4, 3), "b1": (3,), "w2": (3, 1)}
CASES = {
    "rmsprop": ("RMSProp", {}),
    "rmsprop momentum": ("RMSProp", {"momentum": 0.9}),
    "rmsprop centered": ("RMSProp", {"centered": True, "epsilon": 1e-3}),
    "rmsprop all": ("RMSProp", {"centered": True, "momentum": 0.5, "rho": 0.9, "epsilon": 1e-3, "l2_decay": 0.1}),
    "ftrl": ("Ftrl", {}),
    "ftrl l1": ("Ftrl", {"l1": 0.05, "l2": 0.05}),
    "ftrl all": ("Ftrl", {"l1": 0.02, "l2": 0.02, "lr_power": -0.6, "global_norm": 0.5, "l2_decay": 0.1}),
    "lars": ("LarsMomentum", {"momentum": 0.9}),
    "lars all": (
        "LarsMomentum",
        {"momentum": 0.5, "lars_coeff": 0.3, "lars_weight_decay": 0.1, "global_norm": 0.5, "l2_decay": 0.1},
    ),
    "lamb": ("Lamb", {}),
    "lamb no decay": ("Lamb", {"lamb_weight_decay": 0.0}),
    "lamb all": (
        "Lamb",
        {"lamb_weight_decay": 0.2, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-3, "exclude": "b1",
         "global_norm": 0.5, "l2_decay": 0.1},
    ),
    "dpsgd": ("Dpsgd", {"clip": 0.1, "batch_size": 4.0, "sigma": 0.0}),
    "dpsgd unclipped": ("Dpsgd", {"clip": 10.0, "batch_size": 4.0, "sigma": 0.0}),
}  # fmt: skip
CASES_2X = {
    "adam": ("Adam", {"epsilon": 0.1}),
    "adam all": ("Adam", {"beta1": 0.8, "beta2": 0.99, "epsilon": 0.01, "l2_decay": 0.1}),
    "amsgrad": ("Adam", {"amsgrad": True, "beta2": 0.5}),
    "amsgrad all": (
        "Adam",
        {"amsgrad": True, "beta1": 0.8, "beta2": 0.6, "epsilon": 0.01, "l2_decay": 0.1},
    ),
    "amsgrad decoupled": (
        "AdamW",
        {"amsgrad": True, "beta2": 0.5, "epsilon": 0.01, "weight_decay": 0.2},
    ),
    "lamb": ("Lamb", {}),
    "lamb no decay": ("Lamb", {"lamb_weight_decay": 0.0}),
    "lamb adapts": ("Lamb", {"lamb_weight_decay": 0.0, "always_adapt": True}),
    "lamb all": (
        "Lamb",
        {"lamb_weight_decay": 0.2, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-3, "exclude": "b1"},
    ),
    "nadam": ("NAdam", {}),
    "nadam all": (
        "NAdam",
        {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-3, "momentum_decay": 0.1, "l2_decay": 0.1},
    ),
    "radam": ("RAdam", {}),
    "radam all": ("RAdam", {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "l2_decay": 0.1}),
    "rprop": ("Rprop", {}),
    "rprop all": ("Rprop", {"learning_rate_range": [0.01, 0.06], "etas": [0.3, 1.5]}),
    "adadelta": ("Adadelta", {"rho": 0.9, "l2_decay": 0.1}),
    "adagrad": ("Adagrad", {"initial_accumulator_value": 0.1}),
    "adamax": ("Adamax", {"beta1": 0.8, "beta2": 0.99, "l2_decay": 0.1}),
    "asgd": ("ASGD", {}),
    "asgd batches": ("ASGD", {"batch_num": 3, "l2_decay": 0.1}),
}  # fmt: skip
LATE = not paddle.__version__.startswith("1.")
NEW_ONLY = "ASGD"


def drawn():
    """{name: array}: parameters, x and y"""
    rng = np.random.RandomState(5)
    arrays = {name: rng.uniform(-1, 1, shape) for name, shape in SHAPES.items()}
    arrays.update(x=rng.uniform(-1, 1, (4, 4)), y=rng.uniform(-1, 1, (4, 1)))
    return {name: array.astype("float32") for name, array in arrays.items()}


def optimizer(method, options):
    options = dict(options)
    exclude, norm, l2 = (options.pop(name, None) for name in ("exclude", "global_norm", "l2_decay"))
    if exclude:
        options["exclude_from_weight_decay_fn"] = lambda parameter: parameter.name == exclude
    if LATE:
        if l2:
            options["weight_decay"] = l2
        return getattr(paddle.optimizer, method)(0.05, **options)
    if norm:
        options["grad_clip"] = paddle.fluid.clip.GradientClipByGlobalNorm(norm)
    if l2:
        options["regularization"] = paddle.fluid.regularizer.L2Decay(l2)
    return getattr(paddle.fluid.optimizer, method)(0.05, **options)


def loss_of():
    if LATE:
        x, y = paddle.static.data("x", [4, 4]), paddle.static.data("y", [4, 1])
        fc = paddle.static.nn.fc
        hidden = fc(x, 3, activation="tanh", weight_attr="w1", bias_attr="b1")
        out = fc(hidden, 1, weight_attr="w2", bias_attr=False)
        return paddle.mean(paddle.nn.functional.square_error_cost(out, y))
    layers = paddle.fluid.layers
    x, y = layers.data("x", [4]), layers.data("y", [1])
    hidden = layers.fc(x, 3, act="tanh", param_attr="w1", bias_attr="b1")
    out = layers.fc(hidden, 1, param_attr="w2", bias_attr=False)
    return layers.mean(layers.square_error_cost(out, y))


def trained(method, options, arrays):
    """The update's slots by parameter, and {number: {persistable: array}} after some steps"""
    with paddle.pir_utils.IrGuard() if method == NEW_ONLY else contextlib.suppress():
        ops, steps = run(method, options, arrays)
    if method == NEW_ONLY:
        for values in steps.values():
            for name in list(values):
                if "_m_" in name:
                    del values[name]
                elif "_y_" in name:
                    values[name] = values[name][0]
    return ops, steps


def run(method, options, arrays):
    static = paddle.static if LATE else paddle.fluid
    unique_name = paddle.utils.unique_name if LATE else paddle.fluid.unique_name
    place = static.cpu_places(1)[0]
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        optimizer(method, options).minimize(loss_of())
    scope = static.Scope() if LATE else paddle.fluid.Scope()
    exe = static.Executor(place)
    ops = {}
    for op in [] if method == NEW_ONLY else main.global_block().ops:
        if "Param" in op.input_names and "ParamOut" in op.output_names:
            ops[op.input("Param")[0]] = {
                name: list(op.input(name) if name in op.input_names else op.output(name))
                for name in list(op.input_names) + list(op.output_names)
            }
    mine = tuple(SHAPES) + ("learning_rate_0",)
    names = sorted(v.name for v in main.list_vars() if v.persistable and v.name.startswith(mine))
    with static.scope_guard(scope):
        exe.run(startup)
        for name in SHAPES:
            scope.find_var(name).get_tensor().set(arrays[name], place)
        steps = {}
        for number in range(1, STEPS[-1] + 1):
            exe.run(main, feed={"x": arrays["x"], "y": arrays["y"]})
            if number in STEPS:
                steps[str(number)] = {
                    n: np.array(scope.find_var(n).get_tensor()).tolist() for n in names
                }
    return ops, steps


def main():
    if LATE:
        paddle.enable_static()
    arrays, cases = drawn(), {}
    for case, (method, options) in (CASES_2X if LATE else CASES).items():
        ops, steps = trained(method, options, arrays)
        cases[case] = {"method": method, "options": options, "ops": ops, "steps": steps}
    plain = {name: array.tolist() for name, array in arrays.items()}
    document = {
        "initial": {name: plain[name] for name in SHAPES},
        "feed": {name: plain[name] for name in ("x", "y")},
        "cases": cases,
    }
    name = "optimizers_2x.json" if LATE else "optimizers.json"
    compact_json.write(os.path.join(HERE, name), document, 5)


if __name__ == "__main__":
    main()
