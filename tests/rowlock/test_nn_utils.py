"""``paddle.nn.utils``: weights computed from others train, and parameters are one vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from rowlock import nn, static
from rowlock.nn import utils
from rowlock.strategies.errors import InvalidState, InvalidValue
from tests.programs import executor_after, on_places

pytestmark = pytest.mark.usefixtures("no_compiled_loops", "fresh_programs")
IMAGES = np.random.RandomState(3).standard_normal((2, 3, 5, 5)).astype("float32")


def value(parameter: Any) -> np.ndarray:
    return np.array(static.global_scope().find_var(parameter.name).get_tensor())


def trained(layer: Any, steps: int, places: int = 1) -> tuple[static.Executor, Any, list[float]]:
    """Return an executor, the layer's result and the losses of some steps."""
    out = layer(static.data("x", [-1, *IMAGES.shape[1:]]))
    loss = paddle.mean(paddle.square(out - 0.5))
    paddle.optimizer.SGD(0.2).minimize(loss)
    exe = executor_after()
    program = (
        on_places(static.default_main_program(), places, loss)
        if places > 1
        else static.default_main_program()
    )
    fetched = [exe.run(program, feed={"x": IMAGES}, fetch_list=[loss])[0] for _ in range(steps)]
    return exe, out, [float(np.mean(losses)) for losses in fetched]


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_a_weight_begins_as_it_was_and_is_trained_by_length_and_direction(dim: Any) -> None:
    layer = utils.weight_norm(nn.Conv2D(3, 4, 3), dim=dim)
    assert sorted(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    exe, out, _ = trained(layer, 0)
    v, g = value(layer.weight_v), value(layer.weight_g)
    axes = tuple(axis for axis in range(4) if dim in (None, -1) or axis != dim)
    np.testing.assert_allclose(g, np.sqrt((v * v).sum(axes)).reshape(g.shape), rtol=1e-6)
    (weight,) = exe.run(feed={"x": IMAGES}, fetch_list=[layer.weight])
    np.testing.assert_allclose(weight, v, rtol=1e-5)
    exe.run(feed={"x": IMAGES}, fetch_list=[out])
    assert not np.allclose(value(layer.weight_g), g)


@pytest.mark.usefixtures("ray_cluster")
def test_steps_on_two_places_are_those_on_one() -> None:
    losses = []
    for places in (1, 2):
        with (
            static.program_guard(static.Program(), static.Program()),
            static.scope_guard(static.Scope()),
        ):
            static.default_startup_program().random_seed = 5
            static.default_main_program().random_seed = 5
            with paddle.utils.unique_name.guard():
                layer = utils.spectral_norm(utils.weight_norm(nn.Conv2D(3, 4, 3)), "weight_v")
                losses.append(trained(layer, 4, places)[2])
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert losses[0][-1] < losses[0][0]


def test_a_weight_without_its_norm_is_what_it_was_last() -> None:
    layer = utils.weight_norm(nn.Conv2D(3, 4, 3))
    trained(layer, 2)
    v, g = value(layer.weight_v), value(layer.weight_g)
    utils.remove_weight_norm(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    lengths = np.sqrt((v * v).sum((1, 2, 3), keepdims=True))
    np.testing.assert_allclose(value(layer.weight), v / lengths * g.reshape(4, 1, 1, 1), rtol=1e-5)
    assert layer(static.data("y", [1, 3, 5, 5])).shape == (1, 4, 3, 3)
    with pytest.raises(InvalidValue, match="'weight' of conv2d_0 has no weight_norm"):
        utils.remove_weight_norm(layer)


def test_the_largest_singular_value_becomes_one_while_training_alone() -> None:
    layer = utils.spectral_norm(nn.Conv2D(3, 4, 3, bias_attr=False))
    assert sorted(layer.state_dict()) == ["weight_orig", "weight_u", "weight_v"]
    layer.eval()
    before = layer(static.data("y", [-1, 3, 5, 5]))
    layer.train()
    exe, _, _ = trained(layer, 0)
    test = static.default_main_program().clone(for_test=True)
    u = value(layer.weight_u)
    np.testing.assert_allclose(np.linalg.norm(u), 1.0, rtol=1e-5)
    vectors = []
    for _ in range(30):
        feed = {"x": IMAGES * 0, "y": IMAGES}  # whose weights have no gradient
        (weight,) = exe.run(feed=feed, fetch_list=[layer.weight])
        vectors.append(value(layer.weight_u))
    assert not np.allclose(vectors[0], u)
    np.testing.assert_allclose(np.linalg.svd(weight.reshape(4, -1))[1][0], 1.0, rtol=1e-3)
    exe.run(test, feed={"y": IMAGES, "x": IMAGES}, fetch_list=[before])


def test_parameters_are_one_vector_and_come_out_of_one() -> None:
    layer = nn.Linear(2, 3)
    vector = utils.parameters_to_vector(layer.parameters())
    utils.vector_to_parameters(static.data("new", [9]), layer.parameters())
    exe = executor_after()
    weight = value(layer.weight)
    new = np.arange(9, dtype="float32")
    (before,) = exe.run(feed={"new": new}, fetch_list=[vector])
    np.testing.assert_array_equal(before[:6], weight.ravel())
    np.testing.assert_array_equal(value(layer.weight), new[:6].reshape(2, 3))
    np.testing.assert_array_equal(value(layer.bias), new[6:])


def test_mistakes_say_what_to_do() -> None:
    layer = nn.Linear(2, 3)
    with pytest.raises(InvalidValue, match="Linear has no parameter 'wieght'; it has weight, bias"):
        utils.weight_norm(layer, "wieght")
    with pytest.raises(InvalidValue, match="dim=2 is outside the 2 dimensions of weight"):
        utils.weight_norm(layer, dim=2)
    with pytest.raises(InvalidValue, match="n_power_iterations must be above 0, got 0"):
        utils.spectral_norm(layer, n_power_iterations=0)
    utils.weight_norm(layer)
    with pytest.raises(InvalidState, match="'weight' of linear_0 is computed so already"):
        utils.weight_norm(layer)
    with pytest.raises(InvalidValue, match=r"vec has \[4\] elements, and the parameters 3"):
        utils.vector_to_parameters(static.data("new", [4]), [layer.bias])
    with pytest.raises(AttributeError, match="ClipGradByGlobalNorm"):
        utils.clip_grad_norm_  # noqa: B018 - its error is what is read
