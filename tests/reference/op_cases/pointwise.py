"""Activations and elementary functions off their defaults."""

from tables import CASES, FLOATS, SHAPES, case, distinct, normal, positive


def activation(name, count=6, **options):
    def function(p):
        attrs = {key: p.of(*many) for key, many in options.items()}
        return {"X": normal(p.any(*SHAPES), p.any(*FLOATS))}, attrs

    CASES[name] = (count, function)


activation("brelu", t_min=(0.0, -0.5, -1.0), t_max=(24.0, 0.5, 1.0))
activation("hard_shrink", threshold=(0.5, 0.2, 1.0))
activation("softshrink", **{"lambda": (0.5, 0.2, 1.0)})
activation("thresholded_relu", threshold=(1.0, -0.5, 0.3))
# below, Paddle's slope is cut where its result passes the threshold
activation("soft_relu", threshold=(40.0, 30.0))
activation("stanh", scale_a=(0.67, 0.5, 2.0), scale_b=(1.7159, 1.0, 3.0))
activation("selu", scale=(1.05, 1.5), alpha=(1.67, 0.5, 1.0))
activation("mish", threshold=(20.0, 0.5, 1.0, -1.0))


@case("tanh_shrink atan erf", 4)
def anywhere(p):
    return {"X": normal(p.any(*SHAPES), p.any(*FLOATS))}, {}


@case("acos asin log1p", 4)
def inside(p):
    return {"X": positive(p.any(*SHAPES), p.any(*FLOATS))}, {}


@case("minus", 4)
def minus(p):
    shape = p.any(*SHAPES)
    return {"X": normal(shape), "Y": normal(shape)}, {}


@case("prelu", 12)
def prelu(p):
    shape, dtype = p.any([2, 3, 2, 2], [2, 3, 1, 4], [3, 2, 5, 1]), p.any(*FLOATS)
    mode = p.of("all", "channel", "element")
    alpha = {"all": [1], "channel": [1, shape[1], 1, 1], "element": [1] + shape[1:]}[mode]
    return {"X": normal(shape, dtype), "Alpha": normal(alpha, dtype)}, {"mode": mode}


@case("maxout", 10)
def maxout(p):
    groups, axis = p.any(2, 3), p.of(1, 3)  # -1 crashes Paddle
    channels = groups * p.any(1, 2)
    shape = [2, channels, 3, 2] if axis == 1 else [2, 3, 2, channels]
    return {"X": distinct(shape, p.any(*FLOATS))}, {"groups": groups, "axis": axis}
