"""Recurrent nets on GPU places: a step is one graph, which serves all lengths of so many rows and sequences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.device.place import CPUPlace
from rowlock.executor.kernels.cublaslt import recurrence
from rowlock.fluid import layers as L
from tests.ops.gpu import needs_compiler
from tests.programs import on_places, own_programs

pytestmark = [needs_compiler, pytest.mark.usefixtures("two_gpus", "threads")]
BATCHES = ([3, 1, 4, 2], [3, 1, 4, 2], [1, 5, 2, 2], [6, 2, 1, 1], [2, 2, 9, 3], [2, 2, 9, 3])


def stacked() -> tuple[Any, Any]:
    """Two LSTMs and one with a projection, forwards and backwards, over sequences of words."""
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    hidden = L.embedding(words, (20, 6))
    for backwards in (False, True):
        hidden, _ = L.dynamic_lstm(L.fc(hidden, 24), 24, is_reverse=backwards)
    hidden, _ = L.dynamic_lstmp(L.fc(hidden, 20), 20, 3)
    return words, L.sequence_pool(hidden, "max")


def attended() -> tuple[Any, Any]:
    """A GRU both ways, and the mean of its rows, weighted by a softmax of each sequence."""
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    rows = L.sequence_conv(L.embedding(words, (20, 6)), 6, 3)
    both = [L.dynamic_gru(L.fc(rows, 15), 5, is_reverse=way) for way in (False, True)]
    memory = L.concat(both, 1)
    state = L.sequence_expand(L.sequence_last_step(both[0]), rows)
    weights = L.sequence_softmax(L.fc(L.concat([memory, state], 1), 1, bias_attr=False))
    return words, L.sequence_pool(memory * weights, "sum")


def recognised() -> tuple[Any, Any]:
    """How likely each word is at its place, or none: a path through words that do not come twice in a row."""
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    rows = L.sequence_conv(L.embedding(words, (20, 6)), 6, 3)
    return words, L.warpctc(L.fc(rows, 21), L.cast(words, "int32"), blank=20)


NETS = {"stacked": stacked, "attended": attended, "recognised": recognised}


def losses(name: str, places: Sequence[Any]) -> tuple[list[float], str]:
    """Return the losses of steps of several lengths, and what explain() says then."""
    with own_programs(5) as (main, startup):
        _, pooled = NETS[name]()
        label = fluid.data("label", [None, 1], "int64")
        scores = L.fc(pooled, 3)
        loss = L.mean(L.softmax_with_cross_entropy(scores, label))
        fluid.optimizer.Adam(0.05).minimize(loss)
    exe, scope, rng = fluid.Executor(places[0]), fluid.Scope(), np.random.default_rng(1)
    exe.run(startup, scope=scope)
    train = on_places(main, places, loss)
    means = []
    for lengths in BATCHES:
        words = rng.integers(0, 20, (sum(lengths), 1))
        fed = fluid.create_lod_tensor(words, [lengths], fluid.CPUPlace())
        feed = {"words": fed, "label": rng.integers(0, 3, (len(lengths), 1))}
        (each,) = exe.run(train, feed=feed, fetch_list=[loss], scope=scope)
        means.append(float(np.mean(each)))
    return means, str(train.explain())


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("count", [1, 2])
def test_gpus_learn_what_cpus_learn_and_a_step_is_one_graph(name: str, count: int) -> None:
    on_gpus, text = losses(name, [fluid.CUDAPlace(i) for i in range(count)])
    on_cpus, _ = losses(name, [CPUPlace()] * count)
    np.testing.assert_allclose(on_gpus, on_cpus, rtol=2e-4)
    assert "the host takes part there" not in text
    if count == 1:
        assert "a step is 1 graph(s)" in text and ", 1 captured" in text


@pytest.mark.parametrize("name", ["stacked", "attended"])
def test_steps_of_wide_cells_are_products_that_the_host_leads(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one launch would read too many weights in each step of each sequence."""
    monkeypatch.setattr(recurrence, "MOST_BYTES", 0)
    on_gpu, text = losses(name, [fluid.CUDAPlace(0)])
    on_cpu, _ = losses(name, [CPUPlace()])
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=2e-4)
    assert text.count("the host takes part there") > 1


def ordered() -> list[Any]:
    """Sequences that are ranked, split by a mask and merged, erased, aligned, repeated and joined."""
    x = fluid.data("x", [None, 3], lod_level=1)
    words = fluid.data("w", [None, 1], "int64", lod_level=1)
    deep = fluid.data("deep", [None, 1], lod_level=2)
    mask = fluid.data("mask", [None, 1], "bool")
    ranks = L.lod_rank_table(x)
    block = fluid.default_main_program().global_block()
    left, paths = (block.create_var(name=n, dtype="int64", lod_level=1) for n in ("left", "paths"))
    block.append_op("sequence_erase", {"X": words}, {"Out": left}, {"tokens": [2, 0]})
    block.append_op("ctc_align", {"Input": words}, {"Output": paths}, {"blank": 1})
    sides = L.split_lod_tensor(deep, mask)
    return [
        L.reorder_lod_tensor_by_rank(x, ranks),
        L.reorder_lod_tensor_by_rank(deep, ranks),
        x * L.cast(L.max_sequence_len(ranks), "float32"),
        L.sequence_pool(L.cast(left, "float32"), "sum"),
        L.cast(paths, "float32"),
        L.sequence_expand(x, deep, ref_level=0),
        L.sequence_concat([x, x * 2.0, x]),
        *sides,
        L.merge_lod_tensor(*sides, deep, mask),
    ]


@pytest.mark.usefixtures("fresh_programs")
def test_sequences_are_chosen_and_ordered_on_the_gpu_and_only_arrays_cut_a_step() -> None:
    fetched = ordered()
    rng, results = np.random.default_rng(3), []
    rows = {
        "x": rng.normal(size=(7, 3)).astype("f4"),
        "w": rng.integers(0, 4, (7, 1)),
        "deep": rng.normal(size=(8, 1)).astype("f4"),
    }
    lods = {"x": [[2, 4, 1]], "w": [[0, 6, 1]], "deep": [[1, 2, 1], [2, 1, 2, 3]]}
    for place in (fluid.CUDAPlace(0), CPUPlace()):
        feed = {n: fluid.create_lod_tensor(rows[n], lods[n], place) for n in rows}
        feed["mask"] = np.array([[True], [False], [True]])
        program = fluid.CompiledProgram(fluid.default_main_program())
        program.with_data_parallel(places=[place])
        exe = fluid.Executor(place)
        for _ in range(3):
            tensors = exe.run(program, feed, fetched, return_numpy=False)
        results.append([(np.array(t), t.recursive_sequence_lengths()) for t in tensors])
        if place == fluid.CUDAPlace(0):
            text = str(program.explain())
            assert "a step is 1 graph(s)" in text and ", 1 captured" in text
            assert "split at" not in text and "run on the host" not in text
    for (here, levels), (there, expected) in zip(*results, strict=True):
        np.testing.assert_array_equal(here, there)
        assert levels == expected
    x = fluid.default_main_program().global_block().var("x")
    ranks = L.lod_rank_table(x)
    again = L.array_to_lod_tensor(L.lod_tensor_to_array(x, ranks), ranks)
    program = on_places(fluid.default_main_program(), [place])
    exe.run(program, feed, [again], return_numpy=False)
    cut = "a step is cut into .*lod_tensor_to_array, built at .*array_to_lod_tensor, built at"
    assert re.search(cut, str(program.explain()))
