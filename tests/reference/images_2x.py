"""Make images_2x.json with Paddle 3.3.1: nn.functional's resizing and reading of images, and their gradients.

Run:  FLAGS_enable_pir_api=0 python images_2x.py   (Python 3.11 with paddlepaddle==3.3.1)
"""

import json
import os
import sys

import numpy as np

SHAPES = {"W": [2, 3, 5], "WC": [2, 5, 3], "HW": [2, 3, 4, 5], "HWC": [2, 4, 5, 3], "DHW": [1, 2, 3, 4, 3]}
# [function, input, keywords]
CALLS = [
    ["interpolate", "HW", {"size": [7, 3], "mode": mode, "align_corners": corners}]
    for mode, corners in (
        ("nearest", False), ("bilinear", False), ("bilinear", True), ("bicubic", False), ("bicubic", True),
    )
]  # fmt: skip
CALLS += [
    ["interpolate", "HW", {"scale_factor": 2, "mode": "bilinear"}],
    ["interpolate", "HW", {"scale_factor": [1.5, 0.7], "mode": "bilinear"}],
    ["interpolate", "HW", {"scale_factor": 1.3, "mode": "bilinear", "align_mode": 1}],
    ["interpolate", "HW", {"scale_factor": 1.3, "mode": "bicubic"}],
    ["interpolate", "HW", {"scale_factor": 1.3, "mode": "nearest"}],
    ["interpolate", "HWC", {"size": [8, 10], "mode": "bilinear", "data_format": "NHWC"}],
    ["interpolate", "HWC", {"size": [8, 10], "mode": "nearest", "data_format": "NHWC"}],
    ["interpolate", "HW", {"size": [2, 5], "mode": "area"}],
    ["interpolate", "W", {"size": [9], "mode": "linear"}],
    ["interpolate", "W", {"scale_factor": 1.7, "mode": "linear", "align_corners": True}],
    ["interpolate", "WC", {"size": [3], "mode": "linear", "data_format": "NWC"}],
    ["interpolate", "DHW", {"size": [4, 2, 6], "mode": "trilinear"}],
    ["interpolate", "DHW", {"scale_factor": 2, "mode": "trilinear", "align_corners": True}],
    ["upsample", "HW", {"scale_factor": 3}],
]
GRIDS = [
    {"mode": mode, "padding_mode": padding, "align_corners": corners}
    for mode in ("bilinear", "nearest")
    for padding in ("zeros", "border", "reflection")
    for corners in (True, False)
]


def inputs(number, shape):
    return np.random.RandomState(number).standard_normal(shape).astype("float32")


def grid(number):
    return np.random.RandomState(number).uniform(-1.7, 1.7, [2, 3, 3, 2]).astype("float32")


def weights(shape):
    return np.cos(np.arange(np.prod(shape))).reshape(shape).astype("float32")


def rounded(array):
    return [list(array.shape), [float("%.7g" % x) for x in array.reshape(-1)]]


def make():
    import paddle

    F = paddle.nn.functional
    record = {"calls": [], "grids": [], "affine": []}

    def run(function, *arrays):
        tensors = [paddle.to_tensor(a, stop_gradient=False) for a in arrays]
        out = function(*tensors)
        (out * paddle.to_tensor(weights(out.shape))).sum().backward()
        return [rounded(out.numpy())] + [rounded(t.grad.numpy()) for t in tensors]

    for number, (name, key, keywords) in enumerate(CALLS):
        record["calls"].append(run(lambda x: getattr(F, name)(x, **keywords), inputs(number, SHAPES[key])))
    for number, keywords in enumerate(GRIDS):
        arrays = inputs(number, SHAPES["HW"]), grid(number)
        record["grids"].append(run(lambda x, g: F.grid_sample(x, g, **keywords), *arrays))
    for corners in (True, False):
        theta = inputs(3, [2, 2, 3])
        record["affine"].append(run(lambda t: F.affine_grid(t, [2, 3, 4, 3], corners), theta))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images_2x.json")
    with open(path, "w") as stream:
        lines = ['"%s": [\n%s\n]' % (k, ",\n".join(json.dumps(v) for v in vs)) for k, vs in record.items()]
        stream.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    sys.exit(make())
