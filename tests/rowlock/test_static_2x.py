"""What programs of Paddle 2.x's static style call: names, arguments, checkpoints, and what they do wrong."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
from rowlock import nn, static
from rowlock.strategies.errors import NotFound
from tests.programs import executor_after, own_programs

FEED = {"x": np.ones((4, 3), "float32"), "y": np.full((4, 1), 2.0, "float32")}
CONSTANT = paddle.ParamAttr(initializer=nn.initializer.Constant(0.5))


pytestmark = pytest.mark.usefixtures("fresh_programs")


def _loss(units: int = 3) -> Any:
    x, y = static.data("x", [None, units]), static.data("y", [None, 1])
    predicted = static.nn.fc(x, 1, weight_attr=CONSTANT)
    return nn.functional.smooth_l1_loss(predicted, y)


def _ready() -> static.Executor:
    exe = executor_after()
    return exe


def _value(name: str) -> np.ndarray:
    return np.asarray(static.global_scope().find_var(name).get_tensor())


@pytest.mark.parametrize(
    "name",
    ["regularizer.L2Decay", "utils.unique_name.guard", "utils.try_import", "create_parameter"],
)
def test_modules_are_where_programs_import_them_from(name: str) -> None:
    module, _, attribute = f"rowlock.{name}".rpartition(".")
    assert callable(getattr(importlib.import_module(module), attribute))


def test_minimize_trains_the_parameters_named_and_tells_the_rate() -> None:
    rates = paddle.optimizer.lr.StepDecay(0.5, step_size=1, gamma=0.5)
    optimizer = paddle.optimizer.SGD(rates)
    _, pairs = optimizer.minimize(_loss(), parameters=["fc_0.w_0"])
    assert [parameter.name for parameter, _ in pairs] == ["fc_0.w_0"]
    exe = _ready()
    exe.run(feed=FEED, fetch_list=[])
    # The residual is -0.5, the slope of each weight too.
    np.testing.assert_allclose(_value("fc_0.w_0"), 0.75, rtol=1e-6)
    np.testing.assert_array_equal(_value("fc_0.b_0"), 0.0)
    rates.step()
    assert optimizer.get_lr() == 0.25
    assert paddle.optimizer.Adam(0.125).get_lr() == 0.125


def test_a_parameter_that_is_not_trained_stops_gradients() -> None:
    frozen = paddle.ParamAttr(trainable=False)
    parameter = paddle.create_parameter([2], "float32", attr=frozen)
    assert parameter.stop_gradient
    assert not paddle.create_parameter([2], "float32").stop_gradient


@pytest.mark.parametrize("shape", [(6, 4, 3), (4, 6), (5, 5)])
def test_orthogonal_weights_have_orthogonal_rows_or_columns(shape: tuple[int, ...]) -> None:
    weight = paddle.create_parameter(
        list(shape), "float32", default_initializer=nn.initializer.Orthogonal(gain=2.0)
    )
    _ready()
    matrix = _value(weight.name).reshape(shape[0], -1)
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    np.testing.assert_allclose(matrix @ matrix.T, 4 * np.eye(len(matrix)), atol=1e-5)


def test_dirac_filters_hand_channels_on() -> None:
    """Paddle 2.6.2's filters: [group's first + channel, channel, middle]."""
    weight = paddle.create_parameter(
        [6, 2, 3], "float32", default_initializer=nn.initializer.Dirac(groups=2)
    )
    _ready()
    places = [[0, 0, 1], [1, 1, 1], [3, 0, 1], [4, 1, 1]]
    assert np.argwhere(_value(weight.name)).tolist() == places


def test_gains_are_paddles() -> None:
    gain = nn.initializer.calculate_gain
    expected = [1.0, 5 / 3, 2**0.5, 0.75, 1.3867504905630728]
    names = [("conv2d",), ("tanh",), ("relu",), ("selu",), ("leaky_relu", 0.2)]
    assert [gain(*arguments) for arguments in names] == expected
    with pytest.raises(ValueError, match=r"nonlinearity is one of .*leaky_relu"):
        gain("swish")


def test_checkpoints_with_rates_without_dimensions_load(tmp_path: Path) -> None:
    """``static.save`` of Paddle 2.6 writes the rate of an optimizer as a number without dimensions."""
    paddle.optimizer.Adam(0.1).minimize(_loss())
    exe, program = _ready(), static.default_main_program()
    static.save(program, str(tmp_path / "m"))
    state = paddle.load(tmp_path / "m.pdopt")
    state["learning_rate_0"] = np.array(0.25, "float32")
    paddle.save(state, tmp_path / "m.pdopt")
    static.load(program, str(tmp_path / "m"), exe)
    np.testing.assert_array_equal(_value("learning_rate_0"), [0.25])
    program.set_state_dict({"learning_rate_0": np.array(0.5, "float32")})
    np.testing.assert_array_equal(program.state_dict("opt")["learning_rate_0"], [0.5])
    assert sorted(program.state_dict(mode="param")) == ["fc_0.b_0", "fc_0.w_0"]


def test_another_models_values_are_refused_where_the_scope_still_holds_them(tmp_path: Path) -> None:
    paddle.optimizer.SGD(0.1).minimize(_loss())
    exe = _ready()
    static.save(static.default_main_program(), str(tmp_path / "m"))
    with own_programs() as (wide, startup):
        _loss(units=5)
    exe.run(startup)
    with pytest.raises(ValueError, match=r"'fc_0.w_0' has the shape \[5, 1\] in the program"):
        static.load(wide, str(tmp_path / "m"), exe)


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: paddle.optimizer.SGD(0.1).step(), r"SGD.step is of the imperative.* minimize\(loss\)"),
    (lambda: paddle.optimizer.SGD(0.1).set_lr(0.2), "LRScheduler"),
    (lambda: paddle.optimizer.SGD(0.1).stepp, "no attribute 'stepp'"),
    (lambda: paddle.jit, "Programs are always static"),
    (lambda: paddle.distribution.LKJCholesky, "distribution.LKJCholesky is Paddle's"),
    (lambda: static.Executor().run(feed=FEED), "the program is empty. Run the one"),
    (lambda: paddle.einsum("ii", static.data("m", [3, 3])), "twice in 'ii'"),
    (lambda: paddle.einsum("ij,jk", static.data("m", [3, 3])), "of 2 operands, got 1"),
    (lambda: nn.Softmax2D()(static.data("m", [3, 3])), "Softmax2D: x must be"),
    (lambda: static.default_main_program().state_dict("all of it"), "'all', 'param' or 'opt'"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_told_with_their_cure(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        mistake()


def test_a_variable_of_another_program_is_told_apart() -> None:
    x = static.data("x", [2, 3])
    with (
        static.program_guard(static.Program()),
        pytest.raises(NotFound, match=r"'x'.*under that one's program_guard"),
    ):
        nn.Linear(3, 2)(x)


def test_a_models_feeds_are_named_when_another_is_fed(tmp_path: Path) -> None:
    x = static.data("x", [None, 3])
    predicted, exe = static.nn.fc(x, 2), static.Executor()
    exe.run(static.default_startup_program())
    static.save_inference_model(str(tmp_path / "m"), [x], [predicted], exe)
    program, _, fetched = static.load_inference_model(str(tmp_path / "m"), exe)
    with pytest.raises(ValueError, match=r"feed 'image'.* Its data variables: x"):
        exe.run(program, feed={"image": FEED["x"]}, fetch_list=fetched)
