"""Layers of norms, products and losses at labels, in programs as users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from rowlock import fluid
from rowlock.strategies.errors import ExecutionError, InvalidType, InvalidValue

L = fluid.layers


def value(build: Callable[..., Any], **arrays: Any) -> Any:
    """Return what a program of the layer computes."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        feeds = {name: fluid.data(name, list(a.shape), str(a.dtype)) for name, a in arrays.items()}
        out = build(**feeds)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        return exe.run(main, feed=arrays, fetch_list=[out])[0]


def rows(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


X, IMAGE, LABEL = rows(3, 4), rows(2, 4, 3, 3), np.array([[1], [0], [2]])


def normed(x: Any, axes: Any) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[[], Any]]] = {
    "l2_normalize": (
        lambda x: L.l2_normalize(x, axis=-1),
        {"x": X},
        lambda: X / np.linalg.norm(X, axis=-1, keepdims=True),
    ),
    "cos_sim": (
        lambda x: L.cos_sim(x, L.scale(x, -2.0)),
        {"x": X},
        lambda: np.full((3, 1), -1.0),
    ),
    "group_norm": (
        lambda x: L.group_norm(x, 2, param_attr=fluid.ParamAttr(), act="relu"),
        {"x": IMAGE},
        lambda: np.maximum(normed(IMAGE.reshape(2, 2, -1), 2).reshape(IMAGE.shape), 0),
    ),
    "instance_norm": (L.instance_norm, {"input": IMAGE}, lambda: normed(IMAGE, (2, 3))),
    "data_norm": (
        lambda x: L.data_norm(x, param_attr={"batch_size": 4, "batch_sum": 2, "batch_square": 16}),
        {"x": X},
        lambda: (X - 0.5) * 0.5,
    ),
    "lrn": (
        lambda x: L.lrn(x, n=1, k=2.0, alpha=0.5, beta=0.5),
        {"x": IMAGE},
        lambda: IMAGE / np.sqrt(2 + 0.5 * IMAGE**2),
    ),
    "inplace_abn": (
        lambda x: L.inplace_abn(x, act="leaky_relu", act_alpha=0.5),
        {"x": IMAGE},
        lambda: np.maximum(normed(IMAGE, (0, 2, 3)), 0.5 * normed(IMAGE, (0, 2, 3))),
    ),
    "logsumexp": (
        lambda x: L.logsumexp(x, dim=1),
        {"x": X * 100},
        lambda: np.logaddexp.reduce(X * 100, 1),
    ),
    "kron": (lambda x: L.kron(x, x), {"x": X}, lambda: np.kron(X, X)),
    "dist": (lambda x: L.dist(x, L.scale(x, 3.0), 1), {"x": X}, lambda: [2 * np.abs(X).sum()]),
    "addmm": (
        lambda x: L.addmm(x, x, L.transpose(x, [1, 0]), 0.5, 2.0),
        {"x": rows(3, 3)},
        lambda: 2 * rows(3, 3) + 0.5 * rows(3, 3) @ rows(3, 3).T,
    ),
    "cross": (lambda x: L.cross(x, x), {"x": X}, lambda: np.zeros((3, 4))),
    "trace": (lambda x: L.trace(x, 1), {"x": X}, lambda: [np.trace(X, 1)]),
    "add_position_encoding": (
        lambda x: L.add_position_encoding(x, 1.0, 0.0),
        {"x": rows(2, 3, 4)},
        lambda: rows(2, 3, 4),
    ),
    "bpr_loss": (
        L.bpr_loss,
        {"input": np.zeros((3, 4), "float32"), "label": LABEL},
        lambda: np.full((3, 1), np.log(2)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    build, arrays, expected = CASES[name]
    np.testing.assert_allclose(value(build, **arrays), expected(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda x: L.group_norm(x, 3), InvalidValue, "4 channels do not split in 3 groups"),
        (lambda x: L.lrn(L.reshape(x, [2, 36])), InvalidValue, "4 dimensions"),
        (lambda x: L.instance_norm(x, bias_attr=False), InvalidValue, "cannot be False"),
        (lambda x: L.dist(x, x, "fro"), InvalidType, "p must be a number"),
        (lambda x: L.l2_normalize(3, 1), InvalidType, "x must be a Variable"),
        (lambda x: L.data_norm(x, param_attr=3), InvalidType, "param_attr must be a dict"),
    ],
)
def test_wrong_arguments(build: Any, error: type[Exception], text: str) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 4, 3, 3], "float32")
        with pytest.raises(error, match=text):
            build(x)


def test_a_spectral_norm_leaves_a_largest_singular_value_of_one() -> None:
    out = value(lambda w: paddle.nn.SpectralNorm([3, 4], power_iters=40)(w), w=X)
    assert np.linalg.svd(out)[1].max() == pytest.approx(1, rel=1e-3)


def test_inverse_and_cholesky() -> None:
    w = X @ X.T + np.eye(3, dtype="float32")
    np.testing.assert_allclose(value(paddle.inverse, x=w) @ w, np.eye(3), atol=1e-4)
    upper = value(lambda x: paddle.cholesky(x, upper=True), x=w)
    np.testing.assert_allclose(upper.T @ upper, w, rtol=1e-4, atol=1e-5)
    with pytest.raises(ExecutionError, match="inverse: a matrix has no inverse"):
        value(paddle.inverse, x=np.ones((2, 2), "float32"))


def test_a_label_that_is_no_class_stops_the_step() -> None:
    with pytest.raises(ExecutionError, match="label 7 is outside the 4 classes"):
        value(L.bpr_loss, input=X, label=np.array([[1], [7], [0]]))


def test_an_embedding_with_centres_trains() -> None:
    """Center loss beside cross entropy, spectral and group norm: losses fall and centres move."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup):
        image = fluid.data("image", [-1, 4, 3, 3])
        label = fluid.data("label", [-1, 1], "int64")
        weight = L.spectral_norm(L.create_parameter([4, 4, 3, 3], "float32"), power_iters=3)
        assert weight.shape == (4, 4, 3, 3)
        hidden = L.group_norm(image, 2, param_attr=True, bias_attr=True)
        feature = L.l2_normalize(L.fc(hidden, 8) + L.reduce_mean(weight), axis=1)
        entropy = L.softmax_with_cross_entropy(L.fc(feature, 3), label)
        center = L.center_loss(feature, label, 3, 0.1, fluid.ParamAttr("centers"))
        loss = L.mean(entropy + 0.1 * center)
        fluid.optimizer.Adam(0.05).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    feed = {"image": rows(6, 4, 3, 3), "label": np.arange(6)[:, None] % 3}
    with fluid.scope_guard(scope):
        exe.run(startup)
        before = np.array(scope.find_var("centers").get_tensor())
        losses = [exe.run(main, feed=feed, fetch_list=[loss])[0].item() for _ in range(12)]
        after = np.array(scope.find_var("centers").get_tensor())
    assert losses[-1] < 0.7 * losses[0]
    assert np.abs(after - before).max() > 1e-3
