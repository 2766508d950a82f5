"""Sequences, recurrent ops, sparse rows and loops, as users write them, train alike on places of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.device.gpus import local_gpus
from rowlock.executor.device.place import CPUPlace
from rowlock.executor.simulated.simulated import COUNT
from rowlock.strategies.errors import ExecutionError
from tests.conftest import product
from tests.programs import on_places, own_programs

from .conftest import gpu_places
from .test_switches import OFF, ON, REDUCE, WEIGHTED

L, control = fluid.layers, fluid.layers.control_flow
WORDS, ODD = 11, 999  # no word has the number ODD
# Lengths of the sequences of each step, by what is fed.
EVEN = {
    "words": [[2, 4, 1, 3], [3, 3, 1, 1], [1, 2, 2, 5]],
    "others": [[1, 3, 2, 2], [2, 1, 4, 1], [3, 1, 1, 2]],
}
EMPTY = {
    "words": [[2, 0, 1, 3], [0, 3, 0, 1], [1, 4, 0, 0]],
    "others": [[1, 3, 0, 2], [2, 1, 0, 1], [0, 1, 1, 2]],
}
FEW = {  # a place gets no sequence in the second step
    name: [lengths[: 1 if step == 1 else 3] for step, lengths in enumerate(steps)]
    for name, steps in EVEN.items()
}
UNEVEN = {name: [lengths[:3] for lengths in steps] for name, steps in EVEN.items()}


def words(name: str = "words", width: int = 6) -> tuple[Any, Any]:
    """Return fed words, in sequences, and their rows in a sparse table of their own."""
    ids = fluid.data(name, [None, 1], "int64", lod_level=1)
    return ids, L.embedding(ids, [WORDS, width], is_sparse=True, param_attr=f"{name}_table")


def mean_loss(features: Any) -> Any:
    label = fluid.data("label", [None, 1], "int64")
    return L.mean(L.softmax_with_cross_entropy(L.fc(features, 3), label))


def tagger() -> None:
    ids, rows = words()
    ways = [L.dynamic_lstm(L.fc(rows, 16), 16, is_reverse=back)[0] for back in (False, True)]
    loss = L.mean(L.linear_chain_crf(L.fc(ways, WORDS), ids))
    fluid.optimizer.SGD(0.1).minimize(loss)


def gru_steps() -> None:
    """A DynamicRNN, to which a place may give no step at all."""
    _, rows = words()
    net = L.DynamicRNN()
    gates = L.fc(rows, 12)
    with net.block():
        step, state = net.step_input(gates), net.memory(shape=[4], value=0.1)
        new = L.gru_unit(step, state, 12)[0]
        net.update_memory(state, new)
        net.output(new)
    fluid.optimizer.Adagrad(0.1).minimize(mean_loss(L.sequence_last_step(net())))


def two_tables() -> None:
    """A place may look up rows of one table alone."""
    pooled = [L.sequence_pool(words(name)[1], "sum") for name in ("words", "others")]
    fluid.optimizer.Adagrad(0.1).minimize(mean_loss(L.tanh(L.concat(pooled, 1))))


def reader() -> None:
    """What is decoded behind the updates has as many rows as data say."""
    ids, rows = words()
    logits = L.fc(L.sequence_conv(rows, 6, 3, act="tanh"), WORDS + 1)
    loss = L.mean(L.warpctc(logits, L.cast(ids, "int32"), blank=WORDS))
    fluid.optimizer.Ftrl(0.1, l1=1e-3, l2=1e-3).minimize(loss)
    L.edit_distance(L.ctc_greedy_decoder(logits, WORDS), ids, normalized=False)


def ranked() -> None:
    _, rows = words()
    table = control.lod_rank_table(rows)
    again = control.array_to_lod_tensor(control.lod_tensor_to_array(rows, table), table)
    ordered = control.reorder_lod_tensor_by_rank(L.sequence_pool(again, "sum"), table)
    loss = mean_loss(L.sequence_pool(again, "sum")) + 0.1 * L.mean(L.square(ordered))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)


def overwritten() -> None:
    """A loop writes to what a product has read, whose gradient is of what it holds then (as in Paddle)."""
    _, rows = words()
    out = L.fc(L.sequence_pool(rows, "sum"), 4)
    loss = mean_loss(out)
    rounds = L.cast(L.create_global_var([1], 2.0, "float32", persistable=True), "int64")
    start = [L.fill_constant([1], "int64", 0), out]
    L.while_loop(lambda i, v: L.less_than(i, rounds), lambda i, v: [i + 1, L.tanh(v)], start)
    fluid.optimizer.SGD(0.1).minimize(loss)


def stacked() -> None:
    """How many steps there are is declared."""
    pooled = L.sequence_pool(words()[1], "average")
    steps = L.transpose(L.reshape(pooled, [-1, 3, 2]), [1, 0, 2])
    start = L.fill_constant_batch_size_like(pooled, [4, -1, 3], "float32", 0.1, output_dim_idx=1)
    out, _, _ = L.lstm(steps, start, start, 3, 3, 2, is_bidirec=True)
    fluid.optimizer.Adam(0.02).minimize(mean_loss(L.reduce_mean(out, dim=0)))


def selected() -> None:
    """Which rows there are is told by what is fed, so that the host knows it before the step."""
    ids, rows = words()
    some = L.where(L.less_than(ids, L.fill_constant([1], "int64", ODD + 1)))
    back = L.gather_nd(L.fc(rows, 4, act="tanh"), L.slice(some, [1], [0], [1]))
    loss = mean_loss(L.sequence_pool(L.lod_reset(back, ids), "sum"))
    fluid.optimizer.SGD(0.1).minimize(loss)


NETS: Mapping[str, Callable[[], None]] = {
    net.__name__: net
    for net in (tagger, gru_steps, two_tables, reader, ranked, overwritten, stacked, selected)
}
VERIFIED = {**ON, "verify_passes": True}
WAITING = {"use_thread_barrier": True, "allow_op_delay": True, "num_threads": 4}
# Lengths of sequences, what is compiled, and how it runs.
CONDITIONS: Mapping[str, tuple[Any, Mapping[str, Any], Mapping[str, Any]]] = {
    "owners, every pass": (EVEN, {**VERIFIED, **REDUCE}, {}),
    "places without rows, no pass": (EMPTY, OFF, {}),
    "uneven, waiting": (UNEVEN, {**VERIFIED, **WEIGHTED}, WAITING),
    "gpu": (EMPTY, REDUCE, {}),
}


def feeds(program: Any, lengths: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what is fed in each step: words in sequences of these lengths, and a label for each."""
    fed, names = [], program.global_block().vars
    for step in range(3):
        draw = np.random.default_rng(step)
        feed: dict[str, Any] = {}
        for name in ("words", "others"):
            own = lengths[name][step]
            numbers = draw.integers(0, WORDS, (sum(own), 1))
            feed[name] = fluid.create_lod_tensor(numbers, [own], fluid.CPUPlace())
        feed["label"] = draw.integers(0, 3, (len(own), 1))
        fed.append({name: value for name, value in feed.items() if name in names})
    return fed


def train(
    net: str, lengths: Any, places: Any = (), build: Any = None, execution: Any = None
) -> Any:
    """Return parameters, and the mean loss of each step; on CPU places a step fails in between."""
    scope = fluid.Scope()
    with own_programs(3) as (main, startup), fluid.scope_guard(scope):
        NETS[net]()
        exe = fluid.Executor(places[0] if places else fluid.CPUPlace())
        exe.run(startup)
        loss = next(op for op in main.global_block().ops if op.type == "mean").output("Out")[0]
        program = (
            on_places(main, list(places), loss, build=build, execution=execution)
            if places
            else main
        )
        losses, parameters = [], [p.name for p in main.all_parameters()]

        def values() -> dict[str, np.ndarray]:
            return {n: np.array(scope.find_var(n).get_tensor()) for n in parameters}

        for step, feed in enumerate(feeds(main, lengths)):
            if step == 1 and places and isinstance(places[0], CPUPlace):
                before, odd = values(), np.array(feed["words"])
                odd[-1] = ODD
                bad = fluid.create_lod_tensor(
                    odd, feed["words"].recursive_sequence_lengths(), fluid.CPUPlace()
                )
                with pytest.raises(ExecutionError, match=str(ODD)):
                    exe.run(program, {**feed, "words": bad}, [loss])
                assert all(v.tobytes() == before[n].tobytes() for n, v in values().items())
            losses.append(np.mean(exe.run(program, feed, [loss])[0]))
        return values(), losses


@product(net=NETS, condition=CONDITIONS)
def test_nets_train_as_on_one_place(
    net: str, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths, build, execution = CONDITIONS[condition]
    if condition == "gpu" and not local_gpus():
        monkeypatch.setenv(COUNT, "2")
    places = gpu_places(2) if condition == "gpu" else fluid.cpu_places(2)
    expected, alone = train(net, lengths)
    with rowlock.cluster(launcher="threads"):
        parameters, losses = train(net, lengths, places, build, execution)
    for name, value in expected.items():
        np.testing.assert_allclose(parameters[name], value, 1e-5, 1e-5, err_msg=name)
    if lengths is not UNEVEN:
        np.testing.assert_allclose(losses, alone, rtol=1e-5)


@pytest.mark.parametrize("mode", [{}, REDUCE], ids=["all-reduce", "reduce"])
@pytest.mark.parametrize("net", ["tagger", "two_tables", "selected"])
def test_a_place_without_sequences_changes_nothing(net: str, mode: Mapping[str, Any]) -> None:
    expected, _ = train(net, FEW)
    with rowlock.cluster(launcher="threads"):
        parameters, _ = train(net, FEW, fluid.cpu_places(2), {**WEIGHTED, **mode}, {})
    for name, value in expected.items():
        np.testing.assert_allclose(parameters[name], value, 1e-5, 1e-5, err_msg=name)
