"""Nets that servers and trainers train in these tests, and what they are fed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rowlock import fluid

Layers = fluid.layers
Optimizer = Callable[[], Any]
ROWS = 1000


def regression(optimizer: Optimizer, sparse: bool = False, clip: float = 0.0) -> Any:
    """Build a net of two layers, the first wide enough to be cut over servers; return its loss."""
    x = fluid.data("x", [None, 20])
    y = fluid.data("y", [None, 1])
    hidden = x
    if sparse:
        ids = fluid.data("ids", [None, 3, 1], "int64")
        rows = Layers.embedding(ids, size=[ROWS, 20], is_sparse=True, param_attr="table")
        hidden = Layers.concat([x, Layers.reduce_sum(rows, 1)], 1)
    hidden = Layers.fc(hidden, 1000, act="tanh")
    loss = Layers.mean(Layers.square_error_cost(Layers.fc(hidden, 1), y))
    if clip:
        fluid.clip.set_gradient_clip(fluid.clip.GradientClipByGlobalNorm(clip))
    optimizer().minimize(loss)
    return loss


def table_alone(optimizer: Optimizer) -> Any:
    """Build a net whose only parameter is a sparse table; return its loss."""
    ids, x = fluid.data("ids", [None, 3, 1], "int64"), fluid.data("x", [None, 20])
    y = fluid.data("y", [None, 1])
    rows = Layers.embedding(ids, size=[ROWS, 20], is_sparse=True, param_attr="table")
    product = Layers.elementwise_mul(Layers.reduce_sum(rows, 1), x)
    score = Layers.reduce_sum(product, 1, keep_dim=True)
    loss = Layers.mean(Layers.square_error_cost(score, y))
    optimizer().minimize(loss)
    return loss


def batches(steps: int, sparse: bool = False, rows: int = 8) -> list[dict[str, Any]]:
    """Return feeds of :func:`regression`, whose target is linear in x."""
    draw = np.random.default_rng(5)
    weights = draw.normal(size=(20, 1)).astype("float32") / 5
    feeds = []
    for _ in range(steps):
        x = draw.normal(size=(rows, 20)).astype("float32")
        feeds.append({"x": x, "y": x @ weights})
        if sparse:
            feeds[-1]["ids"] = draw.integers(0, ROWS, (rows, 3, 1))
    return feeds


def shared_out(feeds: list[dict[str, Any]], trainers: int = 2) -> list[list[dict[str, Any]]]:
    """Return for each trainer its rows of each batch."""
    return [[{n: a[i::trainers] for n, a in f.items()} for f in feeds] for i in range(trainers)]


def decayed_sgd() -> Any:
    """Return SGD at a piecewise rate, with decay of weights."""
    rate = Layers.piecewise_decay([5, 10], [0.01, 0.005, 0.001])
    return fluid.optimizer.SGD(rate, regularization=fluid.regularizer.L2Decay(0.01))


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": decayed_sgd,
    "momentum": lambda: fluid.optimizer.Momentum(0.002, 0.9),
    "adam": lambda: fluid.optimizer.Adam(Layers.piecewise_decay([5], [0.001, 0.0005])),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.01),
}


SCHEDULES: dict[str, Callable[[], Any]] = {
    "exponential": lambda: Layers.exponential_decay(0.01, 4, 0.5, staircase=True),
    "natural exponential": lambda: Layers.natural_exp_decay(0.01, 10, 0.5),
    "inverse time": lambda: Layers.inverse_time_decay(0.01, 10, 0.5),
    "polynomial": lambda: Layers.polynomial_decay(0.01, 8, 0.001, power=2.0, cycle=True),
    "cosine": lambda: Layers.cosine_decay(0.01, 2, 5),
    "noam": lambda: Layers.noam_decay(512, 10, 0.05),
    "warm-up": lambda: Layers.linear_lr_warmup(Layers.cosine_decay(0.01, 2, 5), 4, 0.001, 0.01),
}


def plain_sgd() -> Any:
    """Return SGD without anything."""
    return fluid.optimizer.SGD(0.005)
