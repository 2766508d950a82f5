"""Losses over classes with sparse weights, for Paddle 1.8.5 and for ours; read by Python 3.7, too."""

import numpy as np

LAYERS = ("nce", "nce by custom_dist", "hsigmoid")
ROWS = [[0.5, -0.25, 1.0], [-1.0, 0.75, 0.5], [0.25, 0.5, -0.5]]
LABELS = [[[1], [3], [1]], [[0], [5], [5]], [[2], [3], [0]]]
WAYS = [
    [[0, 1, -1], [0, 2, 3], [0, 1, -1]],
    [[2, -1, -1], [0, 3, 3], [1, -1, -1]],
    [[3, -1, -1], [1, 2, -1], [0, -1, -1]],
]
TURNS = [
    [[0, 1, 0], [1, 0, 1], [1, 1, 0]],
    [[1, 0, 0], [0, 1, 0], [0, 0, 0]],
    [[0, 0, 0], [1, 1, 0], [1, 0, 0]],
]


def loss(fluid, layer):
    """Build the loss of one layer on x, label, way and turn, from initial values."""
    weight, bias = weights(layer)
    x = fluid.data("x", [None, 3])
    x.stop_gradient = False
    label = fluid.data("label", [None, 1], "int64")
    way, turn = (fluid.data(name, [None, 3], "int64") for name in ("way", "turn"))
    w, b = (
        fluid.ParamAttr(name, initializer=fluid.initializer.NumpyArrayInitializer(array))
        for name, array in (("w", weight), ("b", bias))
    )
    if layer == "hsigmoid":
        cost = fluid.layers.hsigmoid(x, label, len(weight), w, b, None, way, turn, True, True)
        return fluid.layers.reduce_sum(cost)
    settings = {"param_attr": w, "bias_attr": b, "num_neg_samples": 3, "is_sparse": True}
    if layer == "nce by custom_dist":
        shares = [0.25, 0.125, 0.25, 0.125, 0.125, 0.125]
        settings.update(sampler="custom_dist", custom_dist=shares)
    cost = fluid.layers.nce(x, label, len(weight), **settings)
    for op in fluid.default_main_program().global_block().ops:
        if op.type == "nce":
            op._set_attr("custom_neg_classes", [0, 2, 2])
    return fluid.layers.reduce_sum(cost)


def feeds():
    for label, way, turn in zip(LABELS, WAYS, TURNS):
        arrays = {"label": label, "way": way, "turn": turn}
        feed = {name: np.array(array, "int64") for name, array in arrays.items()}
        yield dict(feed, x=np.array(ROWS, "float32"))


def weights(layer):
    rng = np.random.RandomState(5)
    height = 4 if layer == "hsigmoid" else 6
    return [rng.uniform(-1, 1, (height, width)).astype("float32") for width in (3, 1)]
