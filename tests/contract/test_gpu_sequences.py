"""Recurrent nets on GPU places: a step is one graph, which serves all lengths of so many rows and sequences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.device.gpus import local_gpus
from rowlock.executor.device.place import CPUPlace
from rowlock.executor.simulated.simulated import COUNT
from rowlock.fluid import layers as L
from tests.ops.gpu import needs_compiler

pytestmark = needs_compiler
BATCHES = ([3, 1, 4, 2], [3, 1, 4, 2], [1, 5, 2, 2], [6, 2, 1, 1], [2, 2, 9, 3], [2, 2, 9, 3])


@pytest.fixture(autouse=True)
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two GPUs, simulated where there are none, and a gang of threads."""
    if local_gpus() < 2:
        monkeypatch.setenv(COUNT, "2")
    with rowlock.cluster(launcher="threads"):
        yield


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
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        _, pooled = NETS[name]()
        label = fluid.data("label", [None, 1], "int64")
        scores = L.fc(pooled, 3)
        loss = L.mean(L.softmax_with_cross_entropy(scores, label))
        fluid.optimizer.Adam(0.05).minimize(loss)
    exe, scope, rng = fluid.Executor(places[0]), fluid.Scope(), np.random.default_rng(1)
    exe.run(startup, scope=scope)
    train = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name, places=places)
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


@pytest.mark.usefixtures("fresh_programs")
def test_what_decides_on_sequences_on_the_host_is_told() -> None:
    """Rank tables, erased words, and levels of what is repeated or joined; arrays cut the step."""
    x, words = (
        fluid.data("x", [None, 3], lod_level=1),
        fluid.data("w", [None, 1], "int64", lod_level=1),
    )
    block, deep = (
        fluid.default_main_program().global_block(),
        fluid.data("deep", [None, 1], lod_level=2),
    )
    ranks = L.lod_rank_table(x)
    left = block.create_var(name="left", dtype="int64", lod_level=1)
    block.append_op("sequence_erase", {"X": words}, {"Out": left}, {"tokens": [2]})
    rows = {
        "lod_rank_table": L.reorder_lod_tensor_by_rank(x, ranks),
        "lod_picked": L.reorder_lod_tensor_by_rank(x * 2.0, ranks),
        "max_sequence_len": x * L.cast(L.max_sequence_len(ranks), "float32"),
        "sequence_erase": L.cast(left, "float32"),
        "lod_erased": L.sequence_pool(L.cast(left, "float32"), "sum"),
        "lod_of_copies": L.sequence_expand(x, deep, ref_level=0),
        "lod_together": L.sequence_concat([x, x * 2.0]),
    }
    place = fluid.CUDAPlace(0)
    lods = {"x": (3, [[2, 3]]), "w": (1, [[2, 3]]), "deep": (1, [[1, 2], [2, 1, 2]])}
    feed = {
        name: fluid.create_lod_tensor(
            np.ones((5, width), "int64" if name == "w" else "float32"), lod, place
        )
        for name, (width, lod) in lods.items()
    }
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=[place])
    exe = fluid.Executor(place)
    for _ in range(3):
        exe.run(program, feed, list(rows.values()), return_numpy=False)
    text = str(program.explain())
    for op in rows:
        assert f"split at {op} (built at " in text, op
    assert "or has no kernel for GPUs" in text
    again = L.array_to_lod_tensor(L.lod_tensor_to_array(x, ranks), ranks)
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(places=[place])
    exe.run(program, feed, [again], return_numpy=False)
    cut = "a step is cut into .*lod_tensor_to_array, built at .*array_to_lod_tensor, built at"
    assert re.search(cut, str(program.explain()))
