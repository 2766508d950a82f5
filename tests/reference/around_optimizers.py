"""Programs with what surrounds optimizers, for Paddle and for Rowlock alike; see generate_around_optimizers.py.

A case is a function of the package (``fluid``, or ``paddle`` for those in CASES_2X) that builds into the default
programs, and returns the loss and what has ``apply`` (None: nothing has). Layers have parameters of fixed names.
"""

import numpy as np

STEPS = 12
SHAPES = {"w1": (4, 3), "b1": (3,), "w2": (3, 1), "f": (2, 3, 2, 2)}


def initial():
    """{parameter: array}, by the names of SHAPES"""
    rng = np.random.RandomState(5)
    return {name: rng.uniform(-1, 1, shape).astype("float32") for name, shape in sorted(SHAPES.items())}


def feeds():
    """The feed of each step"""
    rng = np.random.RandomState(7)
    return [
        {
            "x": rng.uniform(-1, 1, (4, 4)).astype("float32"),
            "y": rng.uniform(-1, 1, (4, 1)).astype("float32"),
        }
        for _ in range(STEPS)
    ]


def start(fluid, name):
    """Initializer of a parameter"""
    return fluid.initializer.NumpyArrayInitializer(initial()[name])


def net(fluid, weight=None):
    """loss and hidden layers of a small net"""
    attrs = {name: fluid.ParamAttr(name, start(fluid, name)) for name in ("w1", "b1", "w2")}
    x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 3, act="tanh", param_attr=weight or attrs["w1"], bias_attr=attrs["b1"])
    second = fluid.layers.scale(hidden, scale=1.5)
    out = fluid.layers.fc(second, 1, param_attr=attrs["w2"], bias_attr=False)
    return fluid.layers.mean(fluid.layers.square_error_cost(out, y)), hidden, second


def ema(decay=0.9, thres=False, skipped=False):
    def build(fluid):
        average = not skipped
        loss = net(fluid, fluid.ParamAttr("w1", start(fluid, "w1"), do_model_average=average))[0]
        fluid.optimizer.SGD(0.1).minimize(loss)
        steps = fluid.layers.autoincreased_step_counter("@STEPS@", begin=0) if thres else None
        steps = fluid.layers.cast(steps, "float32") if thres else None
        averages = fluid.optimizer.ExponentialMovingAverage(decay, thres_steps=steps)
        averages.update()
        return loss, averages

    return build


def model_average(*settings):
    def build(fluid):
        loss = net(fluid)[0]
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        return loss, fluid.optimizer.ModelAverage(*settings)

    return build


def lookahead(make, **settings):
    def build(fluid):
        loss = net(fluid)[0]
        fluid.optimizer.LookaheadOptimizer(make(fluid.optimizer), **settings).minimize(loss)
        return loss, None

    return build


def recompute(count):
    def build(fluid):
        loss, *hidden = net(fluid)
        optimizer = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.Adam(0.05))
        optimizer._set_checkpoints(hidden[2 - count :])
        optimizer.minimize(loss)
        return loss, None

    return build


def weight_norm(dim):
    def build(fluid):
        attr = fluid.WeightNormParamAttr(dim, "w1", start(fluid, "w1"), learning_rate=0.5)
        loss = net(fluid, attr)[0]
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        return loss, None

    return build


def weight_norm_filter(dim):
    def build(fluid):
        x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
        image = fluid.layers.reshape(fluid.layers.concat([x, x, x], axis=1), [-1, 3, 2, 2])
        attr = fluid.WeightNormParamAttr(dim, "f", start(fluid, "f"))
        out = fluid.layers.conv2d(image, 2, 2, param_attr=attr, bias_attr=False)
        error = fluid.layers.reshape(out, [-1, 2]) - y
        loss = fluid.layers.mean(fluid.layers.square(error))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return loss, None

    return build


def decoupled(make, coefficient, only=None):
    def build(fluid):
        loss = net(fluid)[0]
        method = fluid.contrib.extend_with_decoupled_weight_decay(make(fluid.optimizer))
        fun = None if only is None else lambda name: name == only
        method(coefficient, apply_decay_param_fun=fun, learning_rate=0.1).minimize(loss)
        return loss, None

    return build


def clipped(clip):
    def build(fluid):
        loss = net(fluid)[0]
        fluid.optimizer.SGD(0.1, grad_clip=clip(fluid.clip)).minimize(loss)
        return loss, None

    return build


def _chosen(parameter):
    return parameter.name != "b1"


CASES = {
    "ema": ema(),
    "ema_thres_steps": ema(0.95, thres=True),
    "ema_of_some": ema(0.5, skipped=True),
    "average_long": model_average(0.15),
    "average_short": model_average(0.5, 2, 4),
    "average_rate": model_average(0.6, 1, 100),
    "lookahead_sgd": lookahead(lambda o: o.SGD(0.1), alpha=0.5, k=3),
    "lookahead_adam": lookahead(lambda o: o.Adam(0.05), alpha=0.8),
    "recompute_one": recompute(1),
    "recompute_two": recompute(2),
    "weight_norm_all": weight_norm(None),
    "weight_norm_0": weight_norm(0),
    "weight_norm_1": weight_norm(1),
    "weight_norm_filter_0": weight_norm_filter(0),
    "weight_norm_filter_1": weight_norm_filter(1),
    "weight_norm_filter_3": weight_norm_filter(3),
    "decoupled_sgd": decoupled(lambda o: o.SGD, 0.1),
    "decoupled_adam": decoupled(lambda o: o.Adam, 0.05, only="w1"),
    "clip_value": clipped(lambda c: c.GradientClipByValue(0.02, need_clip=_chosen)),
    "clip_norm": clipped(lambda c: c.GradientClipByNorm(0.05, need_clip=_chosen)),
    "clip_global": clipped(lambda c: c.GradientClipByGlobalNorm(0.05, need_clip=_chosen)),
}


def net_2x(paddle):
    """loss of a small net"""
    x, y = paddle.static.data("x", [None, 4]), paddle.static.data("y", [None, 1])
    hidden = paddle.static.nn.fc(x, 3, activation="tanh", weight_attr="w1", bias_attr="b1")
    out = paddle.static.nn.fc(hidden, 1, weight_attr="w2", bias_attr=False)
    return paddle.mean(paddle.square(out - y))


def merge(make, **settings):
    def build(paddle):
        loss = net_2x(paddle)
        merging = paddle.incubate.optimizer.GradientMergeOptimizer
        merging(make(paddle), **settings).minimize(loss)
        return loss, None

    return build


def lookahead_2x(paddle):
    loss = net_2x(paddle)
    paddle.incubate.LookAhead(paddle.optimizer.SGD(0.1), alpha=0.3, k=3).minimize(loss)
    return loss, None


def average_2x(paddle):
    loss = net_2x(paddle)
    paddle.optimizer.SGD(0.1).minimize(loss)
    averages = paddle.incubate.ModelAverage(0.5, min_average_window=2, max_average_window=4)
    averages.minimize(loss)
    return loss, averages


CASES_2X = {
    "merge_sgd": merge(lambda p: p.optimizer.SGD(0.1), k_steps=3),
    "merge_sum": merge(lambda p: p.optimizer.Momentum(0.05, 0.9), k_steps=4, avg=False),
    "merge_adam": merge(
        lambda p: p.optimizer.Adam(0.05, weight_decay=0.1, grad_clip=p.nn.ClipGradByNorm(0.05)), k_steps=2
    ),
    "lookahead_2x": lookahead_2x,
    "average_2x": average_2x,
}


def bilinear(fluid):
    """Filters that upsample"""
    for name, shape in (("f4", [2, 1, 4, 4]), ("f3", [1, 2, 3, 3])):
        attr = fluid.ParamAttr(name, initializer=fluid.initializer.Bilinear())
        fluid.layers.create_parameter(shape, "float32", attr=attr)
