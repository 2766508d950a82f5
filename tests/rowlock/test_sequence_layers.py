"""Layers of recurrent ops and of structured losses, as programs call them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock import nn, static
from rowlock.strategies.errors import InvalidType, InvalidValue, SequenceError
from tests.programs import executor_after, on_places

layers = fluid.layers


pytestmark = pytest.mark.usefixtures("fresh_programs")


def train(loss: Any, feed: dict[str, Any], places: int = 1, steps: int = 12) -> list[float]:
    """Return the losses of some steps."""
    fluid.optimizer.Adam(0.05).minimize(loss)
    main, startup = fluid.default_main_program(), fluid.default_startup_program()
    main.random_seed = startup.random_seed = 7
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(launcher="threads"):
        exe = executor_after(startup)
        program = on_places(main, places, loss) if places > 1 else main
        return [
            float(np.mean(exe.run(program, feed=feed, fetch_list=[loss])[0])) for _ in range(steps)
        ]


def rows(*shape: int) -> Any:
    return np.random.RandomState(0).randn(*shape).astype("float32")


def sequences(array: Any, *lengths: int) -> Any:
    return fluid.create_lod_tensor(array, [list(lengths)], fluid.CPUPlace())


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("sampler", ["uniform", "log_uniform", "custom_dist"])
def test_nce_trains(sampler: str, places: int) -> None:
    x, y = layers.data("x", [4]), layers.data("y", [1], dtype="int64")
    shares = [0.1] * 10 if sampler == "custom_dist" else None
    cost = layers.nce(x, y, 10, sampler=sampler, custom_dist=shares, num_neg_samples=3)
    labels = np.arange(8)[:, None] % 10
    losses = train(layers.mean(cost), {"x": rows(8, 4), "y": labels}, places, 40)
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


@pytest.mark.parametrize("places", [1, 2])
def test_sampled_softmax_trains(places: int) -> None:
    x, y = layers.data("x", [4]), layers.data("y", [1], dtype="int64")
    logits = layers.fc(x, 30)
    loss = layers.sampled_softmax_with_cross_entropy(logits, y, 6)
    losses = train(layers.mean(loss), {"x": rows(8, 4), "y": np.arange(8)[:, None]}, places, 40)
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


@pytest.mark.parametrize("places", [1, 2])
def test_a_projected_lstm_over_sequences_some_of_them_empty(places: int) -> None:
    x = layers.data("x", [8], lod_level=1)
    projection, cell = layers.dynamic_lstmp(x, 8, 3, proj_clip=0.9, cell_clip=2.0)
    loss = layers.reduce_sum(layers.square(layers.sequence_last_step(projection) - 0.5))
    losses = train(loss, {"x": sequences(rows(6, 8), 2, 0, 3, 1)}, places)
    assert losses[-1] < losses[0] and tuple(cell.shape) == (-1, 2)


def test_a_gru_goes_on_from_states() -> None:
    x, h = layers.data("x", [6], lod_level=1), layers.data("h", [2])
    out = layers.dynamic_gru(x, 2, h_0=h)
    feed = {"x": sequences(rows(5, 6), 2, 3), "h": rows(2, 2)}
    losses = train(layers.mean(layers.square(out)), feed)
    assert losses[-1] < losses[0]


def test_a_tagger_over_a_padded_batch() -> None:
    x, y = layers.data("x", [4, 3]), layers.data("y", [4], dtype="int64")
    length = layers.data("n", [1], dtype="int64")
    emission = layers.fc(x, 3, num_flatten_dims=2)
    named = fluid.ParamAttr(name="chain")
    loss = layers.mean(layers.linear_chain_crf(emission, y, named, length))
    layers.crf_decoding(emission, named, length=length)
    feed = {"x": rows(3, 4, 3), "y": np.ones((3, 4), int), "n": np.array([[4], [2], [3]])}
    losses = train(loss, feed)
    assert losses[-1] < 0.6 * losses[0]


def test_ctc_loss_is_paddles() -> None:
    """Numbers of Paddle 3.3.1."""
    rng = np.random.RandomState(3)
    logits, labels = rng.randn(6, 3, 5).astype("float32"), rng.randint(1, 5, (3, 3)).astype("int32")
    labels[0, 1] = labels[0, 0]
    x, y = static.data("x", [6, 3, 5]), static.data("y", [3, 3], "int32")
    n, m = static.data("n", [3], "int64"), static.data("m", [3], "int64")
    x.stop_gradient = False
    mean, each = nn.CTCLoss()(x, y, n, m), nn.CTCLoss(reduction="none")(x, y, n, m)
    (d,) = static.gradients([mean], [x])
    feed = {"x": logits, "y": labels, "n": np.array([6, 3, 5]), "m": np.array([3, 2, 1])}
    results = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=[mean, each, d])
    assert results[0] == pytest.approx(3.15784, rel=1e-5)
    np.testing.assert_allclose(results[1], [6.04761, 5.52975, 4.69278], rtol=1e-5)
    expected = [-0.0378471, 0.018016, 0.0128231, -0.00181505, 0.008823]
    np.testing.assert_allclose(results[2][0, 0], expected, atol=1e-6)


def test_wrong_calls_say_what_is_wrong() -> None:
    x, y = layers.data("x", [8], lod_level=1), layers.data("y", [1], dtype="int64", lod_level=1)
    with pytest.raises(InvalidValue, match="size must be 4 times the number of cells, got 6"):
        layers.dynamic_lstm(x, 6)
    with pytest.raises(InvalidValue, match="bias_attr should not be False"):
        layers.dynamic_lstm(x, 8, bias_attr=False)
    with pytest.raises(InvalidValue, match="must name the transitions"):
        layers.crf_decoding(x, fluid.ParamAttr(name="nowhere"))
    with pytest.raises(InvalidValue, match="sampler is one of uniform"):
        layers.nce(x, y, 5, sampler="normal")
    with pytest.raises(InvalidValue, match="custom_dist must have 5 shares"):
        layers.nce(x, y, 5, sampler="custom_dist", custom_dist=[1.0])
    with pytest.raises(InvalidType, match="label must hold integers"):
        layers.warpctc(x, x)


def test_an_array_without_sequences_is_refused_by_name() -> None:
    x = layers.data("x", [8], lod_level=1)
    hidden, _ = layers.dynamic_lstm(x, 8)
    exe = executor_after()
    with pytest.raises((SequenceError, ValueError, RuntimeError), match="holds no sequences"):
        exe.run(feed={"x": rows(5, 8)}, fetch_list=[hidden])
