"""Make around_optimizers.json: what surrounds optimizers, trained by Paddle.

Run with a Python that has paddlepaddle==1.8.5, then with one that has 3.3.1, which adds the cases of 2.x:
    python generate_around_optimizers.py

around_optimizers.json
    {"cases": {case: {"start": {persistable: array},
                      "steps": [[loss, {persistable: array after the step}] per step],
                      "applied": {parameter: array while averages are applied}}},
     "filters": {parameter: array}}
"""

import json
import os

os.environ.setdefault("FLAGS_enable_pir_api", "0")

import around_optimizers as programs
import compact_json
import numpy as np
import paddle

try:
    import paddle.fluid as fluid

    static, cases_2x = fluid, {}
except ImportError:
    static, cases_2x = paddle.static, programs.CASES_2X
    paddle.enable_static()

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "around_optimizers.json")
RECORDED = (0, 1, 2, 5, programs.STEPS - 1)  # steps after which persistables are recorded


def value(scope, name):
    return np.array(scope.find_var(name).get_tensor()).tolist()


def train(build, package):
    """The record of one case"""
    main, startup = static.Program(), static.Program()
    names = package.utils.unique_name if package is paddle else package.unique_name
    with static.program_guard(main, startup), names.guard():
        loss, aid = build(package)
    place = package.CPUPlace()
    scope, exe = static.Scope(), static.Executor(place)
    with static.scope_guard(scope):
        exe.run(startup)
        if package is paddle:
            for name in ("w1", "b1", "w2"):
                scope.find_var(name).get_tensor().set(programs.initial()[name], place)
        names = sorted(v.name for v in main.list_vars() if v.persistable and scope.find_var(v.name))
        names = [name for name in names if name not in ("feed", "fetch")]
        case = {"start": {name: value(scope, name) for name in names}, "steps": []}
        for k, feed in enumerate(programs.feeds()):
            (cost,) = exe.run(main, feed=feed, fetch_list=[loss])
            values = {name: value(scope, name) for name in names} if k in RECORDED else {}
            case["steps"].append([float(np.ravel(cost)[0]), values])
        if aid is not None:
            parameters = [p.name for p in main.all_parameters()]
            with aid.apply(exe):
                case["applied"] = {name: value(scope, name) for name in parameters}
            assert all(value(scope, name) == values[name] for name in parameters)
    return case


def filters():
    """What the initializer of filters that upsample fills in"""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        programs.bilinear(fluid)
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        fluid.Executor(fluid.CPUPlace()).run(startup)
        return {p.name: value(scope, p.name) for p in main.all_parameters()}


def main():
    if cases_2x:
        with open(PATH) as file:
            document = json.load(file)
        document["cases"].update({name: train(build, paddle) for name, build in cases_2x.items()})
    else:
        cases = {name: train(build, fluid) for name, build in programs.CASES.items()}
        document = {"cases": cases, "filters": filters()}
    with open(PATH, "w") as file:
        file.write(compact_json.dumps(document, 4) + "\n")


if __name__ == "__main__":
    main()
