"""``reshape(inplace=True)`` gives the variable itself another shape. Numbers are Paddle 1.8.5's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from tests.programs import executor_after

L = fluid.layers
X = np.arange(6, dtype="float32").reshape(2, 3) + 1
WEIGHTS = fluid.initializer.Constant(0.3)


def losses(loss: Any, feed: dict[str, Any], places: int) -> list[float]:
    """Train three steps by SGD; return the mean of the places' losses."""
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = executor_after()
    program: Any = fluid.default_main_program()
    if places > 1:
        program = fluid.CompiledProgram(program)
        program.with_data_parallel(loss.name, places=fluid.cpu_places(places))
    with rowlock.cluster(launcher="threads"):
        return [float(exe.run(program, feed, [loss])[0].mean()) for _ in range(3)]


def of_a_hidden_layer() -> Any:
    hidden = L.fc(fluid.data("x", [None, 3]), 4, param_attr=WEIGHTS, act="tanh")
    assert L.reshape(hidden, [-1, 2], inplace=True) is hidden and hidden.shape == (-1, 2)
    return L.mean(L.square(L.fc(hidden, 1, param_attr=WEIGHTS)))


def there_and_back() -> Any:
    hidden = L.fc(fluid.data("x", [None, 3]), 4, param_attr=WEIGHTS)
    L.reshape(hidden, [-1, 2], inplace=True)
    L.reshape(hidden, [-1, 4], inplace=True)
    return L.mean(L.square(L.fc(hidden, 1, param_attr=WEIGHTS)))


def of_what_is_fed() -> Any:
    images = L.data("x", [3])
    L.reshape(images, [-1, 3, 1], inplace=True)
    return L.mean(L.square(L.fc(images, 2, num_flatten_dims=2, param_attr=WEIGHTS)))


def of_labels() -> Any:
    guess = L.fc(fluid.data("x", [None, 3]), 3, act="softmax", param_attr=WEIGHTS)
    labels = L.reshape(L.data("label", [1, 1], dtype="int64"), [-1, 1], inplace=True)
    return L.mean(L.cross_entropy(guess, labels))


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (of_a_hidden_layer, [0.34127, 0.06036, 0.01074]),
        (there_and_back, [16.9128, 6281.7749, 815347269632.0]),
        (of_what_is_fed, [1.3650, 0.48933, 0.17573]),
        (of_labels, [1.0986, 0.7437, 0.6578]),
    ],
)
def test_losses(build: Callable[[], Any], expected: Sequence[float], places: int) -> None:
    loss, feed = build(), {"x": X}
    if build is of_labels:
        feed["label"] = np.int64([[[1]], [[2]]])
    np.testing.assert_allclose(losses(loss, feed, places), expected, 1e-3)


@pytest.mark.usefixtures("fresh_programs")
def test_what_was_read_before_keeps_its_shape() -> None:
    """Paddle refuses to add up the gradients of both shapes; here they are those of a new variable."""
    hidden = L.fc(fluid.data("x", [None, 3]), 4, param_attr=WEIGHTS)
    bent = L.tanh(hidden)
    L.reshape(hidden, [-1, 2], inplace=True)
    assert hidden.shape == (-1, 2) and bent.shape == (-1, 4)
    in_place = losses(
        L.mean(L.square(L.fc(hidden, 1, param_attr=WEIGHTS))) + L.mean(bent), {"x": X}, 1
    )

    with fluid.program_guard(fluid.Program(), fluid.Program()):
        hidden = L.fc(fluid.data("x", [None, 3]), 4, param_attr=WEIGHTS)
        bent, other = L.tanh(hidden), L.reshape(hidden, [-1, 2])
        assert hidden.shape == (-1, 4)
        loss = L.mean(L.square(L.fc(other, 1, param_attr=WEIGHTS))) + L.mean(bent)
        np.testing.assert_allclose(in_place, losses(loss, {"x": X}, 1), 1e-6)
