"""Make adamw.json with Paddle 3.3.1: one tiny net trained by AdamW, and single updates by its kernel.

Run with a Python 3.11 that has paddlepaddle==3.3.1:  python generate_adamw.py

Net: x[4, 4], fc 3 tanh, fc 1, mean square error; every parameter starts as given in "initial".

adamw.json  {"initial": {parameter: array}, "feed": {name: array},
             "cases": {case: [{parameter: array after the step}] per step},
             "updates": [{"attrs": {...}, "inputs": {slot: array}, "outputs": {slot: array}}]}
"""

import os

import compact_json
import numpy as np
import paddle
from paddle import ParamAttr

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 4
SHAPES = {"w1": (4, 3), "b1": (3,), "w2": (3, 1), "b2": (1,)}
DECAYED = ("w1", "w2")


def drawn():
    """{name: array}: parameters, x and y"""
    rng = np.random.RandomState(7)
    arrays = {name: rng.uniform(-1, 1, shape) for name, shape in SHAPES.items()}
    arrays.update(x=rng.uniform(-1, 1, (4, 4)), y=rng.uniform(-1, 1, (4, 1)))
    return {name: array.astype("float32") for name, array in arrays.items()}


def optimizers(parameters):
    """{case: function that makes its optimizer}"""

    def adamw(**options):
        return paddle.optimizer.AdamW(0.1, parameters=parameters, **options)

    clip = paddle.nn.ClipGradByGlobalNorm(0.05)
    return {
        "plain": adamw,
        "decay": lambda: adamw(weight_decay=0.3),
        "epsilon": lambda: adamw(epsilon=0.1, beta1=0.8, beta2=0.99),
        "some_decay": lambda: adamw(
            weight_decay=0.3, apply_decay_param_fun=lambda name: name in DECAYED
        ),
        "clip": lambda: adamw(grad_clip=clip, weight_decay=0.3, epsilon=0.01),
        "rates": lambda: adamw(weight_decay=0.3),
        "regularizer": lambda: adamw(weight_decay=0.3),
    }


def attributes(case, name):
    """What a case says about one parameter."""
    if case == "rates" and name == "w1":
        return {"learning_rate": 0.5}
    if case == "regularizer" and name == "w1":
        return {"regularizer": paddle.regularizer.L2Decay(0.5)}
    return {}


def trained(case, arrays):
    """[{parameter: array}] after each step"""
    parameters = {}
    for name, shape in SHAPES.items():
        initial = paddle.nn.initializer.Assign(arrays[name])
        attr = ParamAttr(name=f"{case}.{name}", initializer=initial, **attributes(case, name))
        parameters[name] = paddle.create_parameter(list(shape), "float32", attr=attr)
    for name, parameter in parameters.items():
        parameter.name = name
    optimizer = optimizers(list(parameters.values()))[case]()
    steps = []
    for _ in range(STEPS):
        hidden = paddle.tanh(paddle.to_tensor(arrays["x"]) @ parameters["w1"] + parameters["b1"])
        out = hidden @ parameters["w2"] + parameters["b2"]
        paddle.mean((out - paddle.to_tensor(arrays["y"])) ** 2).backward()
        optimizer.step()
        optimizer.clear_grad()
        steps.append({name: parameter.numpy() for name, parameter in parameters.items()})
    return steps


def update(with_decay):
    """One call of the kernel."""
    rng = np.random.RandomState(3)
    slots = ("Param", "Grad", "Moment1", "Moment2")
    inputs = {slot: rng.uniform(0.1, 1, (2, 3)).astype("float32") for slot in slots}
    inputs["LearningRate"] = np.array([0.1], "float32")
    inputs["Beta1Pow"] = np.array([0.8], "float32")
    inputs["Beta2Pow"] = np.array([0.9], "float32")
    attrs = {"beta1": 0.9, "beta2": 0.99, "epsilon": 0.1, "lr_ratio": 1.0, "coeff": 0.5}
    t = {slot: paddle.to_tensor(array) for slot, array in inputs.items()}
    paddle._C_ops.adamw_(
        t["Param"], t["Grad"], t["LearningRate"], t["Moment1"], t["Moment2"], None,
        t["Beta1Pow"], t["Beta2Pow"], None, None, *attrs.values(), with_decay, False, 1000,
        False, False, False,
    )  # fmt: skip
    results = ("Param", "Moment1", "Moment2", "Beta1Pow", "Beta2Pow")
    outputs = {f"{slot}Out": t[slot].numpy() for slot in results}
    return {"attrs": {**attrs, "with_decay": with_decay}, "inputs": inputs, "outputs": outputs}


def lists(value):
    """The same with lists in place of arrays"""
    if isinstance(value, dict):
        return {key: lists(item) for key, item in value.items()}
    if isinstance(value, list):
        return [lists(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def main():
    """Write the file."""
    arrays = drawn()
    record = {
        "initial": {name: arrays[name] for name in SHAPES},
        "feed": {name: arrays[name] for name in ("x", "y")},
        "cases": {case: trained(case, arrays) for case in optimizers([])},
        "updates": [update(True), update(False)],
    }
    compact_json.write(os.path.join(HERE, "adamw.json"), lists(record), 3)


if __name__ == "__main__":
    main()
