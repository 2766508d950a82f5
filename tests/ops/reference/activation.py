"""Functions of one element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .registry import reference, unary

phi = np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))), otypes=[float])
sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731

unary("relu", lambda x, a: np.maximum(x, 0))
unary("sigmoid", lambda x, a: sigmoid(x))
unary("tanh", lambda x, a: np.tanh(x))
unary("exp", lambda x, a: np.exp(x))
unary("square", lambda x, a: x**2)
unary("log", lambda x, a: np.log(x))
unary("sqrt", lambda x, a: np.sqrt(x))
unary("rsqrt", lambda x, a: 1 / np.sqrt(x))
unary("reciprocal", lambda x, a: 1 / x)
unary("abs", lambda x, a: np.abs(x))
unary("sin", lambda x, a: np.sin(x))
unary("cos", lambda x, a: np.cos(x))
unary("floor", lambda x, a: np.floor(x))
unary("ceil", lambda x, a: np.ceil(x))
unary("round", lambda x, a: np.sign(x) * np.floor(np.abs(x) + 0.5))
unary("softplus", lambda x, a: np.log(1 + np.exp(x)))
unary("logsigmoid", lambda x, a: -np.log(1 + np.exp(-x)))
unary("softsign", lambda x, a: x / (1 + np.abs(x)))
unary("leaky_relu", lambda x, a: np.maximum(x, a["alpha"] * x))
unary("relu6", lambda x, a: np.clip(x, 0, a["threshold"]))
unary("elu", lambda x, a: np.where(x > 0, x, a["alpha"] * (np.exp(x) - 1)))
unary("swish", lambda x, a: x * sigmoid(a["beta"] * x))
unary("hard_sigmoid", lambda x, a: np.clip(a["slope"] * x + a["offset"], 0, 1))
unary("hard_swish", lambda x, a: x * np.clip(x + a["offset"], 0, a["threshold"]) / a["scale"])
unary("sign", lambda x, a: np.sign(x))
unary("pow", lambda x, a: x ** a["factor"])
unary("clip", lambda x, a: np.clip(x, a["min"], a["max"]))


@reference("gelu")
def gelu(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    if attrs["approximate"]:
        return {"Out": 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))}
    return {"Out": x * phi(x)}


@reference("scale")
def scale(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    if attrs["bias_after_scale"]:
        return {"Out": ins["X"] * attrs["scale"] + attrs["bias"]}
    return {"Out": (ins["X"] + attrs["bias"]) * attrs["scale"]}
