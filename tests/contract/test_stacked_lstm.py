"""``layers.lstm``: the parameter has cuDNN's order, and numbers are those of LSTMs written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.errors import InvalidValue
from tests.programs import executor_after, on_places

L = fluid.layers
T, B, W, D = 4, 3, 5, 2

pytestmark = pytest.mark.usefixtures("fresh_programs")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def walked(x: np.ndarray, h: Any, c: Any, matrices: Any, biases: Any, backwards: bool) -> Any:
    """Return the states of one LSTM, and its last state and cell: gates input, forget, cell, output."""
    states = []
    for row in x[::-1] if backwards else x:
        gates = row @ matrices[0].T + h @ matrices[1].T + biases[0] + biases[1]
        i, f, g, o = np.split(gates, 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.stack(states[::-1] if backwards else states), h, c


def reference(x: Any, h: Any, c: Any, weight: np.ndarray, layers: int, directions: int) -> Any:
    widths = [W, *[directions * D] * (layers - 1)]
    at, matrices = 0, []
    for width in (width for width in widths for _ in range(directions)):
        pair = []
        for columns in (width, D):
            pair.append(weight[at : at + 4 * D * columns].reshape(4 * D, columns))
            at += 4 * D * columns
        matrices.append(pair)
    biases, ends = weight[at:].reshape(-1, 2, 4 * D), []
    assert len(biases) == len(matrices)
    for layer in range(layers):
        numbers = range(layer * directions, (layer + 1) * directions)
        both = [walked(x, h[n], c[n], matrices[n], biases[n], n % directions == 1) for n in numbers]
        x = np.concatenate([states for states, _, _ in both], 2)
        ends += [(last_h, last_c) for _, last_h, last_c in both]
    return x, *(np.stack([end[k] for end in ends]) for k in (0, 1))


def net(layers: int, directions: int, **options: Any) -> list[Any]:
    x = fluid.data("x", [None, None, W])
    h, c = (fluid.data(name, [layers * directions, None, D]) for name in "hc")
    return list(L.lstm(x, h, c, T, D, layers, is_bidirec=directions == 2, **options))


def fed(layers: int, directions: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"x": (T, B, W), **dict.fromkeys("hc", (layers * directions, B, D))}
    return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_numbers_are_those_of_lstms_written_out(layers: int, directions: int) -> None:
    outputs = net(layers, directions)
    exe, feed = fluid.Executor(fluid.CPUPlace()), fed(layers, directions)
    exe.run(fluid.default_startup_program())
    weight = fluid.global_scope().find_var("cudnn_lstm_0.w_0").get_tensor()
    drawn = np.random.default_rng(1).uniform(-0.5, 0.5, weight.shape()).astype("float32")
    weight.set(drawn, fluid.CPUPlace())
    expected = reference(*feed.values(), drawn, layers, directions)
    for one, other in zip(exe.run(feed=feed, fetch_list=outputs), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("layers", "directions"), [(2, 1), (2, 2)])
def test_gradients_of_a_loaded_program_are_those_of_lstms_written_out(
    layers: int, directions: int
) -> None:
    """Along one direction of all operands, by differences; ``c`` is read for its gradient alone."""
    outputs, feed = net(layers, directions), fed(layers, directions)
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    operands = [*(main.global_block().var(name) for name in "xhc"), main.all_parameters()[0]]
    for operand in operands[:3]:
        operand.stop_gradient = False
    slopes = fluid.gradients(L.sums([L.reduce_sum(L.square(v)) for v in outputs[:2]]), operands)
    types = [op.type for op in main.global_block().ops]
    assert types.count("cudnn_lstm") == types.count("cudnn_lstm_grad") == 1
    exe, rng = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(2)
    exe.run(startup)
    loaded = fluid.Program.parse_from_string(main.desc.serialize_to_string())
    *grads, weight = exe.run(loaded, feed=feed, fetch_list=[*slopes, operands[3]])
    point = [each.astype("float64") for each in (*feed.values(), weight)]
    along = [rng.standard_normal(each.shape) for each in point]

    def loss(h: float) -> float:
        moved = [p + h * d for p, d in zip(point, along, strict=True)]
        return sum(float((v**2).sum()) for v in reference(*moved, layers, directions)[:2])

    slope = sum(float((g * d).sum()) for g, d in zip(grads, along, strict=True))
    np.testing.assert_allclose(slope, (loss(1e-5) - loss(-1e-5)) / 2e-5, rtol=1e-4)


def test_programs_of_paddle_declare_results_as_wide_as_one_direction() -> None:
    """In its files so is all that is computed of them, and gradients, whatever they are when they run."""
    output, *_ = net(1, 2)
    loss = L.mean(L.square(L.tanh(output) - 0.5))
    fluid.optimizer.SGD(0.1).minimize(loss)
    main, exe = fluid.default_main_program(), fluid.Executor(fluid.CPUPlace())
    files = [main.desc.serialize_to_string()]
    wide = [v for v in main.list_vars() if v.shape and len(v.shape) == 3 and v.shape[2] == 2 * D]
    assert len(wide) > 6
    for variable in wide:
        variable.desc.set_shape((*variable.shape[:2], D))
    files.append(main.desc.serialize_to_string())
    losses = []
    for file in files:
        program = fluid.Program.parse_from_string(file)
        exe.run(fluid.default_startup_program())
        weight = fluid.global_scope().find_var("cudnn_lstm_0.w_0").get_tensor()
        weight.set(np.linspace(-1, 1, weight.shape()[0], dtype="float32"), fluid.CPUPlace())
        losses.append(
            [exe.run(program, feed=fed(1, 2), fetch_list=[loss.name])[0] for _ in range(3)]
        )
    np.testing.assert_array_equal(*losses)
    assert losses[0][2] < losses[0][0]


def test_it_trains_with_dropout_on_two_places() -> None:
    output, last_h, last_c = net(2, 2, dropout_prob=0.2, seed=3)
    loss = L.mean(L.square(output - 0.5)) + L.mean(last_h) * L.mean(last_c)
    fluid.optimizer.Adam(0.05).minimize(loss)
    feed = [fed(2, 2), {name: value * 0.5 for name, value in fed(2, 2).items()}]
    with rowlock.cluster(launcher="threads"):
        exe = executor_after()
        program = on_places(fluid.default_main_program(), 2, loss)
        losses = [exe.run(program, feed=feed, fetch_list=[loss])[0].mean() for _ in range(20)]
    assert losses[-1] < 0.7 * losses[0]


def test_sizes_are_checked() -> None:
    with pytest.raises(InvalidValue, match=r"lstm: takes \[steps, batch, in\]"):
        L.lstm(fluid.data("x", [None, W]), *[fluid.data(n, [1, None, D]) for n in "hc"], T, D, 1)


def test_operands_that_do_not_fit_attributes_is_named() -> None:
    output, *_ = net(1, 1)
    fluid.default_main_program().global_block().ops[0].attrs["is_bidirec"] = True
    with pytest.raises(
        InvalidValue, match=r"cudnn_lstm: InitH must be .* layers = 2, hidden_size = 2 "
    ):
        fluid.Executor(fluid.CPUPlace()).run(feed=fed(1, 1), fetch_list=[output])


def test_first_states_of_another_size_are_named() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, h = fluid.data("x", [5, 2, 3]), fluid.data("h", [1, 2, 4])
        with pytest.raises(
            InvalidValue,
            match=r"InitH must be .* layers = 1, B = 2, hidden_size = 7 \(got .*InitH 'h'",
        ):
            fluid.layers.lstm(x, h, h, 5, 7, 1)
