"""Programs with bent activations, losses of pairs, and centers of classes, as they are written for Paddle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
import rowlock.nn.functional as F
from rowlock.strategies.errors import ExecutionError
from tests.programs import on_places, own_programs

L = fluid.layers


def trained(
    build: Callable[..., Any],
    shapes: dict[str, Any],
    places: int = 1,
    steps: int = 4,
    **strategy: Any,
) -> tuple[list[float], dict[str, np.ndarray], list[str]]:
    """Train with SGD; return losses, parameters and the ops of fused groups."""
    with own_programs(3) as (main, startup):
        fed = {n: fluid.data(n, [None, *shape], dtype) for n, (shape, dtype) in shapes.items()}
        loss = L.mean(build(**fed))
        fluid.optimizer.SGD(0.1).minimize(loss)
    settings = fluid.BuildStrategy(**strategy)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    draw = np.random.default_rng(0)
    losses = []
    with fluid.scope_guard(scope), rowlock.cluster(launcher="threads"):
        exe.run(startup)
        program = on_places(main, places, loss, build=settings)
        feed = {
            n: draw.integers(0, 3, (6, *shape)).astype(dtype)
            if dtype.startswith("int")
            else draw.random((6, *shape)).astype(dtype)
            for n, (shape, dtype) in shapes.items()
        }
        for _ in range(steps):
            losses.append(float(np.mean(exe.run(program, feed, [loss])[0])))
        values = {
            p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()
        }
    graph = program.explain().graph
    fused = [part["op"] for n in graph.nodes if n.op == "fusion_group" for part in n.attrs["body"]]
    return losses, values, fused


def bent(x: Any) -> Any:
    hidden = L.prelu(L.fc(x, 6), "channel")
    hidden = L.mish(L.selu(L.stanh(hidden))) + L.softshrink(L.atan(hidden), 0.1)
    return L.brelu(L.soft_relu(L.erf(hidden)), 0.1, 3.0) * F.silu(L.hard_shrink(hidden, 0.01))


PLAIN = {"x": ([5], "float32")}


def test_groups_take_new_activations_with_their_gradients() -> None:
    losses, values, fused = trained(bent, PLAIN, enable_auto_fusion=True)
    expected, plain, _ = trained(bent, PLAIN)
    names = [
        "mish",
        "selu",
        "stanh",
        "softshrink",
        "atan",
        "erf",
        "soft_relu",
        "brelu",
        "silu",
        "hard_shrink",
    ]
    assert {*names, *(f"{name}_grad" for name in names)} <= set(fused)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for name, value in plain.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-4, atol=1e-6)
    assert losses[-1] != losses[0]


def ranked(x: Any, y: Any, z: Any) -> Any:
    left, right = L.fc(x, 1), L.fc(y, 1)
    loss = L.rank_loss(z, left, right) + L.margin_rank_loss(z, left, right, 0.3)
    return loss + L.teacher_student_sigmoid_loss(left, z) + L.smooth_l1(left, right)


def test_losses_of_pairs_are_fused_with_both_gradients() -> None:
    shapes = {"x": ([5], "float32"), "y": ([5], "float32"), "z": ([1], "float32")}
    losses, _, fused = trained(ranked, shapes, enable_auto_fusion=True)
    expected, _, _ = trained(ranked, shapes)
    assert {"rank_loss", "rank_loss_grad", "margin_rank_loss", "margin_rank_loss_grad"} <= set(
        fused
    )
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert losses[-1] < losses[0]


def detected(x: Any, k: Any) -> Any:
    focal = L.sigmoid_focal_loss(L.fc(x, 2), k, L.fill_constant([1], "int64", 3))
    scores = L.log_softmax(L.fc(x, 3))
    target = L.label_smooth(L.one_hot(k, 3), epsilon=0.2)
    rows = F.nll_loss(scores, L.reshape(k, [-1])) + L.mean(L.bpr_loss(scores, k))
    return L.reduce_sum(focal) + rows + L.kldiv_loss(scores, target, "batchmean")


def test_losses_of_classes_train() -> None:
    shapes = {"x": ([5], "float32"), "k": ([1], "int64")}
    losses, _, _ = trained(detected, shapes)
    assert losses == sorted(losses, reverse=True)


def test_centers_move_towards_their_rows() -> None:
    def build(x: Any, k: Any) -> Any:
        return L.center_loss(L.fc(x, 2), k, 3, 0.5, fluid.ParamAttr("centers"))

    shapes = {"x": ([2], "float32"), "k": ([1], "int64")}
    losses, _, _ = trained(build, shapes, steps=8)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.3 * losses[0]


def test_rectifiers_with_drawn_slopes_and_noise() -> None:
    def build(x: Any) -> Any:
        w = L.create_parameter([4, 6], "float32")
        hidden = F.rrelu(w - 1.0, 0.1, 0.4) + F.glu(L.create_parameter([4, 12], "float32"))
        drawn = F.gumbel_softmax(hidden, 0.7, hard=True) * F.celu(hidden, 0.5)
        return L.mean(drawn) + L.mean(x)

    losses, _, _ = trained(build, PLAIN, places=2)
    assert np.isfinite(losses).all() and len(set(losses)) == 4


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x, k: L.prelu(x, "each"), ValueError, "mode is 'all', 'channel' or 'element'"),
        (lambda x, k: L.prelu(x, 3), TypeError, "mode must be a string"),
        (lambda x, k: L.prelu(x, "all", param_attr=False), TypeError, "param_attr cannot be False"),
        (lambda x, k: L.brelu(x, "a"), TypeError, "t_min must be a number"),
        (
            lambda x, k: L.l2_normalize(x, -1, "a"),
            TypeError,
            "l2_normalize: epsilon must be a number, got 'a'",
        ),
        (
            lambda x, k: L.cross_entropy(x, k, ignore_index=0.5),
            TypeError,
            "must be an int, got 0.5",
        ),
        (lambda x, k: L.selu(k), TypeError, "x must hold floats"),
        (lambda x, k: L.mish(x, 0), ValueError, "threshold must be above 0"),
        (lambda x, k: L.maxout(x, 2, axis=2), ValueError, "axis is 1"),
        (lambda x, k: L.maxout(x, 2), ValueError, "X must have 4 dimensions"),
        (lambda x, k: L.kldiv_loss(x, x, 3), TypeError, "reduction must be a string"),
        (
            lambda x, k: L.kldiv_loss(x, x, "all"),
            ValueError,
            "reduction is none of .* reduction = 'all'",
        ),
        (lambda x, k: L.sigmoid_focal_loss(x, x, k), TypeError, "label must hold integers"),
        (
            lambda x, k: L.smooth_l1(x, x, x),
            ValueError,
            "InsideWeight and OutsideWeight go together",
        ),
        (lambda x, k: L.label_smooth(x, epsilon=1.5), ValueError, "epsilon is in"),
        (lambda x, k: L.center_loss(x, k, 3, "a", None), TypeError, "alpha must be a number"),
        (lambda x, k: L.bpr_loss(x, x), TypeError, "label must hold integers"),
        (lambda x, k: F.glu(x), ValueError, "has no halves"),
        (lambda x, k: F.rrelu(x, 0.5, 0.1), ValueError, "0 <= lower <= upper <= 1"),
        (lambda x, k: F.gumbel_softmax(x, 0), ValueError, "temperature must be above 0"),
        (lambda x, k: F.celu(x, 0), ValueError, "alpha cannot be 0"),
    ],
)
def test_wrong_arguments_are_explained(call: Any, error: type[Exception], says: str) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, k = fluid.data("x", [4, 3], "float32"), fluid.data("k", [4, 1], "int64")
        with pytest.raises(error, match=says):
            call(x, k)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, k: F.nll_loss(x, L.reshape(k, [-1])),
        lambda x, k: L.bpr_loss(x, k),
        lambda x, k: L.center_loss(x, k, 3, 0.1, None),
    ],
)
def test_a_label_that_is_no_class_is_refused_by_name(call: Any) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        out = call(fluid.data("x", [4, 3], "float32"), fluid.data("k", [4, 1], "int64"))
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        feed = {"x": np.ones((4, 3), "float32"), "k": np.array([[0], [2], [7], [1]])}
        with pytest.raises(ExecutionError, match="_loss: label 7 is outside the 3 classes"):
            exe.run(main, feed, [out])


def test_losses_of_a_logit_of_zero_have_the_slope_of_the_sigmoid(threads: None) -> None:
    """As of every logit of a head whose weights begin at 0: 1/2 - label, though softplus is a sum of kinks."""
    main = fluid.Program()
    with fluid.program_guard(main):
        x, y = fluid.data("x", [3, 1]), fluid.data("y", [3, 1])
        x.stop_gradient = False
        losses = (
            L.sigmoid_cross_entropy_with_logits(x, y),
            L.rank_loss(y, x, L.zeros_like(x)),
            L.teacher_student_sigmoid_loss(x, L.scale(y, 1.0, bias=-2.0)),
            L.softplus(x) - x * y,
        )
        slopes = [fluid.gradients(loss, [x])[0] for loss in losses]
    labels = np.array([[0.0], [0.0], [0.0]], "float32")
    logits = np.array([[0.0], [-0.0], [1e-20]], "float32")
    for slope in fluid.Executor().run(main, feed={"x": logits, "y": labels}, fetch_list=slopes):
        np.testing.assert_array_equal(slope, 0.5)
