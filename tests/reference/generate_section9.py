"""Make section9.json with Paddle 1.8.5: one tiny net under the strategies that users set.

Run with a Python 3.7 that has paddlepaddle==1.8.5 and protobuf<3.20:  python generate_section9.py

Net: x[None, 4], fc 3 relu, fc 1, square_error_cost, mean. Three runs on the same feed.

section9.json  {"initial": {parameter: array}, "feed": {name: array},
                "cases": {case: {"1": result, "2": result}}}      the key is the number of places
result         {"losses": [array of one loss a place] per run,
                "fc_1.b_0": [array] per run,                      in the scope, thus of place 0
                "fc_1.b_0@GRAD": [array of one value a place] per run,
                "final": {parameter: array of place 0 after the last run}}
"""

import os

import numpy as np

import compact_json

HERE = os.path.dirname(os.path.abspath(__file__))
RUNS = 3
SEED = 1
FEED = {
    "x": (np.arange(16).reshape(4, 4) / 10).astype("float32"),
    "y": np.ones((4, 1), dtype="float32"),
}
CUSTOM_SCALE = {1: [0.5], 2: [0.5, 0.25]}


def optimizers(fluid):
    """{case: function that makes its optimizer}"""

    def sgd(**options):
        return fluid.optimizer.SGD(learning_rate=0.1, **options)

    def decayed():
        rate = fluid.layers.exponential_decay(0.1, decay_steps=10, decay_rate=0.5)
        return fluid.optimizer.SGD(learning_rate=rate)

    return {
        "plain": sgd,
        "one": sgd,
        "customized": sgd,
        "reduce": sgd,
        "adam": lambda: fluid.optimizer.Adam(learning_rate=0.1),
        "l2_decay": lambda: sgd(regularization=fluid.regularizer.L2Decay(0.1)),
        "clip_by_norm": lambda: sgd(grad_clip=fluid.clip.GradientClipByNorm(0.5)),
        "clip_by_global_norm": lambda: sgd(grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)),
        "exponential_decay": decayed,
    }


def build(case, fluid):
    main = fluid.Program()
    startup = fluid.Program()
    startup.random_seed = SEED
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data(name="x", shape=[None, 4], dtype="float32")
        y = fluid.data(name="y", shape=[None, 1], dtype="float32")
        hidden = fluid.layers.fc(input=x, size=3, act="relu")
        predicted = fluid.layers.fc(input=hidden, size=1)
        cost = fluid.layers.square_error_cost(input=predicted, label=y)
        loss = fluid.layers.mean(cost)
        optimizers(fluid)[case]().minimize(loss)
    return main, startup, loss


def build_strategy(case, fluid):
    strategy = fluid.BuildStrategy()
    scales = fluid.BuildStrategy.GradientScaleStrategy
    if case == "one":
        strategy.gradient_scale_strategy = scales.One
    if case == "customized":
        strategy.gradient_scale_strategy = scales.Customized
    if case == "reduce":
        strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    return strategy


def parameters(main, scope):
    names = sorted(p.name for p in main.all_parameters())
    return {name: np.array(scope.find_var(name).get_tensor()).tolist() for name in names}


def run(case, places, fluid):
    main, startup, loss = build(case, fluid)
    exe = fluid.Executor(fluid.CPUPlace())
    scope = fluid.Scope()
    feed = dict(FEED)
    if case == "customized":
        feed[loss.name + "@GRAD"] = np.array(CUSTOM_SCALE[places], dtype="float32")
    with fluid.scope_guard(scope):
        exe.run(startup)
        initial = parameters(main, scope)
        compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=loss.name,
            build_strategy=build_strategy(case, fluid),
            places=[fluid.CPUPlace()] * places,
        )
        result = {"losses": [], "fc_1.b_0": [], "fc_1.b_0@GRAD": []}
        for _ in range(RUNS):
            cost, grad = exe.run(compiled, feed=feed, fetch_list=[loss.name, "fc_1.b_0@GRAD"])
            result["losses"].append(cost.tolist())
            result["fc_1.b_0@GRAD"].append(grad.tolist())
            result["fc_1.b_0"].append(parameters(main, scope)["fc_1.b_0"])
        result["final"] = parameters(main, scope)
    return initial, result


def main():
    from paddle import fluid

    cases = {}
    for case in optimizers(fluid):
        cases[case] = {}
        for places in (1, 2):
            initial, cases[case][str(places)] = run(case, places, fluid)
    feed = {name: array.tolist() for name, array in FEED.items()}
    record = {"initial": initial, "feed": feed, "cases": cases}
    compact_json.write(os.path.join(HERE, "section9.json"), record, depth=4)


if __name__ == "__main__":
    main()
