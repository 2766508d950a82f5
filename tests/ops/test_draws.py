"""Integers, choices and orders that are drawn: their distribution, and that places and restarts agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import InvalidValue
from rowlock.strategies.types import to_numpy
from tests.ops.harness import infer, specs_of

Made = dict[str, np.ndarray]


def drawn(name: str, inputs: Any = None, row: int = 0, step: int = 0, **attrs: Any) -> Made:
    """Return what an op writes for the samples from ``row`` on; the program's seed is 3 throughout."""
    op = OPS[name]
    dev = Device(seed=3)
    dev.output, dev.clock.row, dev.clock.step = "w", row, step
    reads = {slot: [np.asarray(a)] for slot, a in (inputs or {}).items()}
    settings = {**op.attrs, **attrs}
    specs = infer(op, specs_of(reads), settings)
    writes = {s: [np.zeros(x.shape, to_numpy(x.dtype)) for x in many] for s, many in specs.items()}
    for call in bind(name, reads, writes, settings, dev):
        call()
    return {slot: arrays[0] for slot, arrays in writes.items()}


def out(name: str, inputs: Any = None, **how: Any) -> np.ndarray:
    return drawn(name, inputs, **how)["Out"]


def assert_distributed(drawn: np.ndarray, shares: Any) -> None:
    """Hold counts to shares by chi squared: its mean is the degrees of freedom f, its variance 2 f."""
    expected = np.asarray(shares) / np.sum(shares) * drawn.size
    counts = np.bincount(drawn.ravel(), minlength=len(expected))
    assert len(counts) == len(expected)
    freedom = (expected > 0).sum() - 1
    assert (counts[expected == 0] == 0).all()
    error = ((counts - expected)[expected > 0] ** 2 / expected[expected > 0]).sum()
    assert error < freedom + 5 * np.sqrt(2 * freedom), f"chi squared {error} of {freedom}"


WEIGHTS = np.array([0.1, 0.4, 0.0, 0.3, 0.2], "float32")
ROWS = np.tile(WEIGHTS, (20000, 1))


def test_integers_are_even() -> None:
    values = out("randint", shape=[100, 200], low=-3, high=7)
    assert values.dtype == np.int64
    assert_distributed(values + 3, np.ones(10))
    wide = out("randint", shape=[1000], low=-(2**31), high=2**31 - 1)
    assert wide.min() < -(2**30) and wide.max() > 2**30


@pytest.mark.parametrize("replacement", [True, False])
def test_first_samples_have_the_weights(replacement: bool) -> None:
    how: dict[str, Any] = {"num_samples": 3, "replacement": replacement}
    picked = out("multinomial", {"X": ROWS * 7}, **how)
    assert_distributed(picked[:, 0], WEIGHTS)
    if not replacement:
        assert (np.diff(np.sort(picked, 1)) > 0).all()  # none twice
    (one,) = {out("multinomial", {"X": WEIGHTS}, **how).shape}
    assert one == (3,)


def test_second_samples_without_replacement_have_what_is_left() -> None:
    pairs = out("multinomial", {"X": ROWS}, num_samples=2)
    for first in (0, 1, 3):
        left = np.where(np.arange(5) == first, 0, WEIGHTS)
        assert_distributed(pairs[pairs[:, 0] == first][:, 1], left)


def test_weights_that_give_too_few_samples_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"multinomial: the weights in X .* a row has 4 above"):
        out("multinomial", {"X": WEIGHTS}, num_samples=5)
    with pytest.raises(InvalidValue, match="must not be below 0"):
        out("multinomial", {"X": -WEIGHTS}, num_samples=1)


def test_sampled_ids_have_the_probabilities() -> None:
    assert_distributed(out("sampling_id", {"X": ROWS}), WEIGHTS)
    assert set(out("sampling_id", {"X": ROWS[:99]}, min=0.55, max=0.75)) == {3}


def test_choices_have_their_probability() -> None:
    chances = np.tile(np.array([0.0, 0.25, 0.8, 1.0], "float32"), (20000, 1))
    ours = out("bernoulli", {"X": chances})
    np.testing.assert_allclose(ours.mean(0), [0, 0.25, 0.8, 1], atol=0.02)
    assert set(np.unique(ours)) == {0, 1}


def test_orders_are_permutations_and_even() -> None:
    firsts = [out("randperm", n=6, step=step)[0] for step in range(1200)]
    assert_distributed(np.array(firsts), np.ones(6))
    np.testing.assert_array_equal(np.sort(out("randperm", n=500)), np.arange(500))


def test_crops_are_windows_of_their_samples() -> None:
    x = np.arange(4000 * 5 * 4).reshape(4000, 5, 4)
    crops = out("random_crop", {"X": x, "Seed": [0]}, shape=[2, 3])
    corner = crops[:, 0, 0] - x[:, 0, 0]
    window = np.array([[0, 1, 2], [4, 5, 6]])
    np.testing.assert_array_equal(crops, crops[:, :1, :1] + window)
    assert_distributed(corner // 4, np.ones(4))
    assert_distributed(corner % 4, np.ones(2))


def test_batches_are_shuffled_row_by_row() -> None:
    x = np.random.default_rng(0).random((2, 5, 3))
    ours = drawn("shuffle_batch", {"X": x, "Seed": [0]})
    np.testing.assert_array_equal(ours["Out"].reshape(-1, 3), x.reshape(-1, 3)[ours["ShuffleIdx"]])
    np.testing.assert_array_equal(np.sort(ours["ShuffleIdx"]), np.arange(10))


def test_numbers_for_a_batch_lie_in_their_range() -> None:
    like = {"Input": np.zeros((300, 2))}
    even = out("uniform_random_batch_size_like", like, shape=[-1, 50], min=2.0, max=4.0)
    assert 2 <= even.min() < 2.01 and 3.99 < even.max() < 4
    bell = out("gaussian_random_batch_size_like", like, shape=[-1, 50], mean=1.0, std=2.0)
    assert bell.mean() == pytest.approx(1, abs=0.06) and bell.std() == pytest.approx(2, abs=0.06)


X = np.random.default_rng(1).random((6, 4)).astype("float32")
SAMPLES: list[tuple[str, str, dict[str, Any]]] = [
    ("bernoulli", "X", {}),
    ("gaussian_random_batch_size_like", "Input", {"shape": [-1, 3]}),
    ("multinomial", "X", {"num_samples": 2}),
    ("random_crop", "X", {"shape": [2]}),
    ("sampling_id", "X", {}),
    ("uniform_random_batch_size_like", "Input", {"shape": [-1, 3]}),
]


@pytest.mark.parametrize(("name", "slot", "attrs"), SAMPLES)
def test_a_split_of_the_batch_changes_nothing(name: str, slot: str, attrs: dict[str, Any]) -> None:
    more = {"Seed": [0]} if name == "random_crop" else {}
    whole = out(name, {slot: X, **more}, **attrs)
    parts = [out(name, {slot: X[a:b], **more}, row=a, **attrs) for a, b in ((0, 4), (4, 6))]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize(
    ("name", "attrs"),
    [("randint", {"shape": [50], "low": 0, "high": 99}), ("randperm", {"n": 50}), ("seed", {})],
)
def test_a_step_can_be_replayed_and_others_differ(name: str, attrs: dict[str, Any]) -> None:
    assert (out(name, step=4, **attrs) == out(name, step=4, **attrs)).all()
    assert (out(name, step=4, **attrs) != out(name, step=5, **attrs)).any()
    assert (out(name, step=4, seed=8, **attrs) == out(name, step=5, seed=8, **attrs)).all()


NODES = {
    2: 8,
    5: 8,
    3: 40,
}  # of nodes to draw, the layer's: by an order of all of them, and by words that name them
ITEMS = np.random.default_rng(2).integers(0, 3, (20000, 1))


def tree(*sizes: int) -> dict[str, Any]:
    """Return a tree with so many nodes by layer, numbered from 1, in which item k has the k-th of each."""
    begins = np.cumsum([1, *sizes[:-1]])
    ways = np.minimum(np.arange(4)[:, None], np.array(sizes) - 1) + begins
    ways[3, -1] = 0
    return {"Travel": ways, "Layer": np.arange(1, sum(sizes) + 1)[:, None]}


def sampled(items: Any, size: int, count: int, **how: Any) -> Made:
    ends = {"layer_offset_lod": [0, 2, 2 + size], "neg_samples_num_list": [1, count]}
    return drawn("tdm_sampler", {"X": items, **tree(2, size)}, **ends, **how)


@pytest.mark.parametrize("count", NODES)
def test_nodes_beside_an_items_own_are_even_and_in_any_order(count: int) -> None:
    size = NODES[count]
    nodes = sampled(ITEMS, size, count)["Out"]
    assert (nodes[:, 0] == np.minimum(ITEMS[:, 0], 1) + 1).all()
    assert (nodes[:, 1] == 3 - nodes[:, 0]).all()  # the only other one of two
    own, others = nodes[:, 2], nodes[:, 3:] - 3
    assert (own == ITEMS[:, 0] + 3).all()
    assert (np.diff(np.sort(others, 1)) > 0).all()  # none twice
    for item in range(3):
        rows = others[ITEMS[:, 0] == item]
        left = np.arange(size) != item
        for column in rows.T:
            assert_distributed(column, left)
        first = rows[:, 0][rows[:, 1] == 4]
        assert_distributed(first, left & (np.arange(size) != 4))


@pytest.mark.parametrize("count", NODES)
def test_nodes_of_items_do_not_depend_on_the_split(count: int) -> None:
    items = ITEMS[:7]
    whole = sampled(items, NODES[count], count)["Out"]
    parts = [sampled(items[a:b], NODES[count], count, row=a)["Out"] for a, b in ((0, 4), (4, 7))]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert (whole != sampled(items, NODES[count], count, step=1)["Out"]).any()
    again = [sampled(items, NODES[count], count, step=k, seed=5)["Out"] for k in (0, 1)]
    np.testing.assert_array_equal(*again)


def test_layers_and_items_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"tdm_sampler: item 4 in X is outside the 4 rows"):
        sampled([[4]], 8, 2)
    alike = {"Travel": np.ones((4, 1), int), "Layer": np.ones((8, 1), int)}
    for count in (1, 5):
        how = {"layer_offset_lod": [0, 8], "neg_samples_num_list": [count]}
        with pytest.raises(InvalidValue, match=rf"has 0 nodes beside 1, and {count} are asked for"):
            drawn("tdm_sampler", {"X": [[0]], **alike}, **how)
