"""Nets of retrieval and of clicks, as their authors write them, train as Paddle 1.8.5 trains them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.errors import (
    ExecutionError,
    InvalidType,
    InvalidValue,
    ShapeError,
    Unsupported,
)
from tests.programs import executor_after, own_programs
from tests.reference import click_nets

REFERENCE = json.loads(Path(click_nets.__file__).with_suffix(".json").read_text())
L, contrib = fluid.layers, fluid.contrib.layers


def on_two(main: Any, loss: Any) -> Any:
    program = fluid.CompiledProgram(main)
    return program.with_data_parallel(loss.name, places=fluid.cpu_places(2))


def compare(ours: Any, expected: Any) -> None:
    np.testing.assert_allclose(ours["losses"], expected["losses"], rtol=1e-5)
    for (value, lod), (reference, levels) in zip(ours["first"], expected["first"], strict=True):
        assert lod == levels
        np.testing.assert_allclose(value, reference, rtol=1e-5, atol=1e-6)
    for name, total in expected["squares"].items():
        np.testing.assert_allclose(ours["squares"][name], total, rtol=1e-4)


@pytest.mark.parametrize("name", REFERENCE)
def test_nets_train_as_paddles_do(name: str) -> None:
    compare(click_nets.run(fluid, name, True), REFERENCE[name])


@pytest.mark.parametrize("name", ["tree", "ranked", "matcher", "matcher_filtered"])
def test_two_replicas_train_as_one_place(name: str, gang: str) -> None:
    """Ranked rows are told by their place in a batch, or in a place's part of it."""
    alone = click_nets.run(fluid, name, True, places=1 if name == "ranked" else 2)
    ours = click_nets.run(fluid, name, True, on_two, places=2)
    compare({**ours, "first": []}, {**alone, "first": []})


# -- pyramid hashes ---------------------------------------------------------------------------------


def hashed(word: Any, **more: Any) -> Any:
    settings = {
        "num_emb": 8,
        "space_len": 50,
        "pyramid_layer": 3,
        "rand_len": 4,
        "lr": 0.5,
        "seed": 0,
    }
    settings |= {"drop_out_percent": 0.0, "is_training": 1, "use_filter": False}
    zeros = [
        fluid.ParamAttr(name, initializer=fluid.initializer.Constant(0.0)) for name in ("wl", "bl")
    ]
    lists = {"white_list_len": 9, "black_list_len": 9}
    lists |= dict(zip(("param_attr_wl", "param_attr_bl"), zeros, strict=True))
    return contrib.search_pyramid_hash(word, param_attr="table", **{**settings, **lists, **more})


def words(*lengths: int) -> Any:
    numbers = np.arange(sum(lengths), dtype="int32").reshape(-1, 1) % 7
    return fluid.create_lod_tensor(numbers, [list(lengths)], fluid.CPUPlace())


class Table:
    """A net over a table of hashed runs, in a scope of its own."""

    def __init__(self, trains: bool = True, uses: int = 1, **more: Any) -> None:
        with own_programs(5) as (self.main, startup):
            word = fluid.data("word", [None, 1], "int32", lod_level=1)
            word.stop_gradient = not trains
            self.rows = [hashed(word, **more) for _ in range(uses)]
            self.loss = L.mean(L.square(L.sequence_pool(L.sums(self.rows), "sum") - 1.0))
            if trains:
                fluid.backward.append_backward(self.loss)
        self.exe, self.scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        self.exe.run(startup, scope=self.scope)

    def run(self, *lengths: int, fetch: Any = None) -> Any:
        feed, fetches = {"word": words(*lengths)}, [self.loss if fetch is None else fetch]
        return self.exe.run(
            self.main, feed=feed, fetch_list=fetches, scope=self.scope, return_numpy=False
        )[0]

    def table(self) -> np.ndarray:
        return np.array(self.scope.find_var("table").get_tensor())


def test_a_table_is_trained_where_the_gradient_reaches_the_words() -> None:
    for trains in (True, False):
        net = Table(trains)
        before = net.table()
        losses = [float(np.array(net.run(4, 2))[0]) for _ in range(3)]
        assert (losses[0] > losses[-1]) == trains
        assert (net.table() != before).any() == trains


def test_gradients_of_several_uses_are_added_up() -> None:
    """Each use gets as much as a table used once gets of the same sum."""
    one, two = Table(uses=1), Table(uses=2)
    starts = [net.table() for net in (one, two)]
    np.testing.assert_array_equal(*starts)
    slopes = []
    for net in (one, two):
        (grad,) = (n for n in net.main.global_block().vars if n == f"{net.rows[0].name}@GRAD")
        slopes.append(np.array(net.run(5, fetch=grad)))
    moved = [net.table() - start for net, start in zip((one, two), starts, strict=True)]
    touched = np.abs(moved[0]) > 0
    assert touched.any() and (touched == (np.abs(moved[1]) > 0)).all()
    ratio = slopes[1].sum() / slopes[0].sum()
    np.testing.assert_allclose(moved[1].sum(), 2 * ratio * moved[0].sum(), rtol=1e-4)


def test_runs_are_dropped_with_their_probability() -> None:
    net = Table(drop_out_percent=0.3, pyramid_layer=2)
    counts = [np.array(net.run(500, fetch=net.rows[0])).shape[0] for _ in range(3)]
    np.testing.assert_allclose(np.array(counts) / 499, 0.7, atol=0.07)
    assert len(set(counts)) > 1
    net = Table(False, drop_out_percent=0.3, pyramid_layer=2, seed=4)
    assert len({np.array(net.run(500, fetch=net.rows[0])).tobytes() for _ in range(3)}) == 1
    net = Table(False, drop_out_percent=1.0)
    rows = net.run(3, 1, fetch=net.rows[0])
    assert rows.lod() == [[0, 1, 2]] and not np.array(rows).any()


def test_a_list_that_is_no_filter_is_refused() -> None:
    net = Table(use_filter=True)
    with pytest.raises(
        ExecutionError, match=r"WhiteList is no Bloom filter of 36 bytes .*set the param"
    ):
        net.run(3)


def test_a_table_in_a_loop_is_refused() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        word = fluid.data("word", [None, 1], "int32", lod_level=1)
        word.stop_gradient = False
        i, n = L.fill_constant([1], "int64", 0), L.fill_constant([1], "int64", 2)
        total = L.fill_constant([1], "float32", 0.0)
        total.stop_gradient = False
        going = L.less_than(i, n)
        loop = L.While(going)
        with loop.block():
            L.assign(total + L.reduce_sum(hashed(word)), total)
            L.increment(i)
            L.less_than(i, n, cond=going)
        fluid.backward.append_backward(L.mean(total))
    exe = executor_after(startup)
    with pytest.raises(
        Unsupported, match="updates its table, which cannot be done in a branch or a loop"
    ):
        exe.run(main, feed={"word": words(3)}, fetch_list=[total])


# -- mistakes ---------------------------------------------------------------------------------------


def integers(*shape: Any) -> Any:
    return fluid.data("i", list(shape), "int64")


def matrix(*shape: Any) -> Any:
    return fluid.data("x", list(shape))


def dequantized(table: Any, ids: Any) -> Any:
    block = table.block
    out = block.create_var(name="out")
    block.append_op("lookup_table_dequant", {"W": table, "Ids": ids}, {"Out": out})
    return out


MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "items": (
        lambda: contrib.tdm_sampler(matrix(None, 1), [1], [3], 2),
        InvalidType, "tdm_sampler: x must hold integers, and 'x' holds FP32",
    ),
    "type": (
        lambda: contrib.tdm_sampler(integers(None, 1), [1], [3], 2, dtype="float32"),
        InvalidType, "dtype must be int32 or int64, got 'float32'",
    ),
    "layers": (
        lambda: contrib.tdm_sampler(integers(None, 1), [1, 1], [3], 2),
        InvalidValue, "neg_samples_num_list has 2 layers, layer_node_num_list 1",
    ),
    "leaves": (
        lambda: contrib.tdm_sampler(integers(None, 1), [1], [3], 3),
        InvalidValue, "leaf_node_num 3 must be below the 3 nodes",
    ),
    "too many": (
        lambda: contrib.tdm_sampler(integers(None, 1), [3], [3], 2),
        ShapeError, "asks for more nodes of a layer .*: neg_samples_num_list = .3., nodes = .3.",
    ),
    "wide items": (
        lambda: contrib.tdm_sampler(integers(None, 2), [1], [3], 2),
        ShapeError, r"X must have one number in a row: \[N, 1\] \(got X 'i'=INT64\[-1,2\]",
    ),
    "matrices": (
        lambda: contrib.rank_attention(matrix(None, 2), integers(None, 7), [9, 4], "w"),
        InvalidValue, r"rank_param_shape must be .* = \[18, C\], got \[9, 4\]",
    ),
    "ranks": (
        lambda: contrib.rank_attention(matrix(None, 2), integers(None, 5), [18, 4], "w"),
        ShapeError,
        r"RankOffset must be \[N, 1\+2\*MaxRank\], where 1\+2\*MaxRank = 7 .*RankOffset 'i'=INT64\[-1,5\]",
    ),
    "pieces": (
        lambda: hashed(integers(None, 1), rand_len=3),
        ShapeError, "num_emb must be a multiple of rand_len, .*: rand_len = 3, num_emb = 8",
    ),
    "runs": (
        lambda: hashed(integers(None, 1), pyramid_layer=1),
        ShapeError, "pyramid_layer must be 2 or more: pyramid_layer = 1",
    ),
    "words": (lambda: hashed(matrix(None, 1)), InvalidType, "input must hold integers"),
    "names": (
        lambda: hashed(integers(None, 1), distribute_update_vars=["other"]),
        InvalidValue, "distribute_update_vars names 'other', no parameter of it",
    ),
    "clicks": (
        lambda: contrib.ctr_metric_bundle(matrix(None, 1), integers(None, 1)),
        InvalidType, "label must be a Variable of float32",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    build, error, message = MISTAKES[mistake]
    with pytest.raises(error, match=message) as caught:
        build()
    if error is ShapeError:
        assert f"Built at {__file__}" in str(caught.value)


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize(
    ("build", "feed", "message"),
    [
        (
            lambda: contrib.rank_attention(matrix(None, 2), integers(None, 3), [2, 4], "w", 1),
            {"x": np.ones((2, 2), "f4"), "i": [[1, 1, 2], [1, 1, 0]]},
            r"row 2 .* outside the 2 rows of X",
        ),
        (
            lambda: contrib.rank_attention(matrix(None, 2), integers(None, 3), [2, 4], "w", 1),
            {"x": np.ones((2, 2), "f4"), "i": [[1, 2, 1], [1, 1, 0]]},
            r"pair of ranks 1 .* outside the 1 pairs",
        ),
        (
            lambda: contrib.tdm_sampler(integers(None, 1), [1], [3], 2, output_list=False)[0],
            {"i": [[1], [2]]},
            r"tdm_sampler: item 2 in X is outside the 2 rows of Travel",
        ),
        (
            lambda: dequantized(matrix(None, 4), integers(None, 1)),
            {"x": np.ones((5, 4), "f4"), "i": [[7]]},
            r"lookup_table_dequant: index 7 is outside the 5 rows \(0 to 4\) \(reads x, i;",
        ),
    ],
)
def test_wrong_values_are_named(build: Any, feed: Any, message: str) -> None:
    out = build()
    exe = executor_after()
    feed = {name: np.array(value) for name, value in feed.items()}
    with pytest.raises(ExecutionError, match=message) as caught:
        exe.run(feed=feed, fetch_list=[out])
    assert __file__ in str(caught.value)
