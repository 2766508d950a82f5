"""What is fed and fetched: splits, persistables, scalars, sequences, partial batches, merges."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.errors import EnforceNotMet, ExecutionError, FeedError
from tests.contract.nets import OPTIMIZERS, Net, assert_close, device_copies, feed
from tests.programs import executor_after, on_places, own_programs


def lengths(parts: list[np.ndarray]) -> list[int]:
    return [len(part) for part in parts]


@pytest.mark.parametrize(
    ("rows", "places", "wanted"),
    [(3, 2, [1, 2]), (7, 3, [2, 2, 3]), (5, 2, [2, 3]), (4, 3, [1, 1, 2]), (4, 1, [4])],
)
def test_the_last_place_gets_the_remainder(
    gang: str, rows: int, places: int, wanted: list[int]
) -> None:
    net, batch = Net(), feed(rows)
    program = net.compiled(places)
    (parts,) = net.run(program, batch, ["x"], return_merged=False)
    assert lengths(parts) == wanted
    (whole,) = net.run(program, batch, ["x"])
    np.testing.assert_array_equal(whole, batch["x"])


def test_sequences_of_so_many_rows_as_declared_go_whole_to_each_place(threads: None) -> None:
    with own_programs() as (main, _):
        x = fluid.data("x", [3, 1], lod_level=1)
        sums = fluid.layers.sequence_pool(x, "sum")
    rows = fluid.create_lod_tensor(
        np.array([[1.0], [2.0], [4.0]], "float32"), [[2, 1]], fluid.CPUPlace()
    )
    for places in (1, 2):
        program = on_places(main, places)
        (whole,) = fluid.Executor().run(program, feed={"x": rows}, fetch_list=[sums])
        assert whole.ravel().tolist() == [3.0, 4.0] * places


def test_a_result_that_is_to_last_has_the_size_of_its_batch(gang: str) -> None:
    """As of old, to look at it in the scope after a run."""
    scope = fluid.Scope()
    with own_programs() as (main, startup):
        hidden = fluid.layers.fc(fluid.data("x", [None, 2]), 4, act="tanh")
        hidden.persistable = True
        label = fluid.data("label", [None, 1], "int64")
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(hidden, label))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe = executor_after(startup, scope)
    compiled = on_places(main, 2, loss)
    for program, places in ((main, 1), (compiled, 2)):
        for rows in (6, 4, 6, 10, 2):
            batch = {"x": np.random.rand(rows, 2).astype("f4"), "label": np.ones((rows, 1), int)}
            (fetched,) = exe.run(program, batch, [hidden], scope=scope)
            value = np.array(scope.find_var(hidden.name).get_tensor())
            np.testing.assert_array_equal(value, fetched[: rows // places])
    odd = {"x": np.ones((8, 2), "f4"), "label": np.full((8, 1), 9)}
    with pytest.raises(ExecutionError, match="9"):
        exe.run(compiled, odd, scope=scope)
    again = np.array(scope.find_var(hidden.name).get_tensor())
    np.testing.assert_array_equal(again, value)


def test_only_unknown_first_dimensions_are_split(gang: str) -> None:
    main, scope = fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 2])
        table = fluid.data("table", [4, 2])
        factor = fluid.layers.data("factor", [1], append_batch_size=False)
        total = fluid.layers.elementwise_mul(
            fluid.layers.matmul(x, table, transpose_y=True), factor
        )
    program = on_places(main, 2)
    arrays = {
        "x": np.arange(6, dtype="float32").reshape(3, 2),
        "table": np.arange(8, dtype="float32").reshape(4, 2),
    }
    for fed in (3, 3.0, np.array([3.0], "float32")):  # a Python number has the variable's dtype
        results = fluid.Executor().run(
            program, {**arrays, "factor": fed}, [total, "table"], scope=scope
        )
        np.testing.assert_allclose(results[0], arrays["x"] @ arrays["table"].T * 3)
        assert results[1].shape == (8, 2)


@pytest.mark.parametrize("places", [1, 2, 3])
def test_a_persistable_is_fed_one_value_or_one_for_each_place(gang: str, places: int) -> None:
    net = Net()
    program = net.compiled(places)
    rate = next(n for n in (v.name for v in net.main.list_vars()) if "learning_rate" in n)
    before = net.parameters()
    net.run(program, {**feed(6), rate: np.zeros(1, "float32")}, [])
    assert_close(net.parameters(), before)
    net.run(program, feed(6), [])  # it stays
    assert_close(net.parameters(), before)
    np.testing.assert_array_equal(net.value(rate), [0.0])
    each = np.linspace(0.1, 0.3, places, dtype="float32")
    (value,) = net.run(program, {**feed(6), rate: each}, [rate])
    np.testing.assert_array_equal(value, each)
    assert [float(copy[0]) for copy in device_copies(program, rate)] == [float(e) for e in each]
    with pytest.raises(EnforceNotMet, match=rf"got (shape )?\[4\]( for {places} places|\.)"):
        net.run(program, {**feed(6), rate: np.zeros(4, "float32")}, [])
    weights = np.full((4, 3), 0.5, "float32")
    (value,) = net.run(
        net.compiled(places, net.test), {**feed(6), "fc_0.w_0": weights}, ["fc_0.w_0"]
    )
    assert value.shape == (4 * places, 3)


def test_a_persistable_fed_to_one_place_stays(threads: None) -> None:
    net = Net()
    net.run(net.test, {**feed(4), "fc_1.b_0": np.array([8.0], "float32")}, [])
    (prediction,) = net.run(net.test, feed(4), [net.prediction])
    assert prediction.min() > 4
    np.testing.assert_array_equal(net.value("fc_1.b_0"), [8.0])
    with pytest.raises(EnforceNotMet, match=r"fc_1\.b_0"):
        net.run(net.main, {**feed(4), "fc_1.b_0": np.zeros(3, "float32")}, [])


@pytest.mark.parametrize("places", [2, 3])
def test_an_evaluation_runs_on_as_many_places_as_there_are_rows(gang: str, places: int) -> None:
    net = Net()
    train = net.compiled(places)
    net.run(train, feed(6), [])
    test = net.compiled(places, net.test, share_vars_from=train)
    for rows in (1, 2, 5):
        loss, prediction = net.run(test, feed(rows), [net.loss, net.prediction])
        (alone,) = net.run(net.test, feed(rows), [net.prediction])
        assert loss.shape == (min(rows, places),)
        np.testing.assert_allclose(prediction, alone, 1e-5, 1e-6)
    with pytest.raises(FeedError, match=r"1 row.* cannot be split over"):
        net.run(train, feed(1), [])
    net.run(train, feed(6), [])


def test_fetches(gang: str) -> None:
    """Parameters, gradients, the learning rate, a feed, one name twice, and nothing at all."""
    net, batch = Net(optimizer=OPTIMIZERS["momentum"]), feed(4)
    program = net.compiled(2)
    assert net.run(program, batch, []) == []
    assert net.run(program, batch) == []
    before = net.value("fc_0.w_0")
    names = ["fc_0.w_0", "fc_0.w_0@GRAD", "learning_rate_0", "x", net.loss, net.loss.name]
    weights, grads, rate, x, loss, again = net.run(program, batch, names)
    assert weights.shape == grads.shape == (8, 3)
    np.testing.assert_array_equal(grads[:4], grads[4:])
    np.testing.assert_array_equal(weights[:4], net.value("fc_0.w_0"))
    assert (weights[:4] != before).any()
    np.testing.assert_allclose(rate, [0.1, 0.1])
    np.testing.assert_array_equal(x, batch["x"])
    np.testing.assert_array_equal(loss, again)
    (tensor,) = net.run(program, batch, [net.loss], return_numpy=False)
    assert isinstance(tensor, fluid.LoDTensor) and tensor.shape() == [2]
    apart = net.run(program, batch, [net.loss, "x"], return_merged=False)
    assert [[part.shape for part in parts] for parts in apart] == [[(1,)] * 2, [(2, 4)] * 2]


def test_what_cannot_be_joined(threads: None) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        turned = fluid.layers.transpose(fluid.data("x", [None, 2]), [1, 0])
    program = on_places(main, 2)
    x = np.arange(6, dtype="float32").reshape(3, 2)
    with pytest.raises(EnforceNotMet, match=r"cannot be joined.*return_merged=False"):
        fluid.Executor().run(program, {"x": x}, [turned])
    (parts,) = fluid.Executor().run(program, {"x": x}, [turned], return_merged=False)
    np.testing.assert_array_equal(np.concatenate(parts, 1), x.T)


class Words:
    """Sequences of ids: an embedding and a projection keep the sequences, a mean does not."""

    def __init__(self) -> None:
        self.scope = fluid.Scope()
        with own_programs() as (self.main, startup):
            ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
            embedded = fluid.layers.embedding(ids, [10, 4])
            self.out = fluid.layers.fc(embedded, 2)
            self.mean = fluid.layers.mean(self.out)
        self.exe = fluid.Executor()
        self.exe.run(startup, scope=self.scope)
        rows = np.arange(9).reshape(9, 1)
        self.feed = {"ids": fluid.create_lod_tensor(rows, [[2, 3, 4]], fluid.CPUPlace())}

    def run(self, program: Any, **how: Any) -> list[Any]:
        return self.exe.run(program, self.feed, [self.out, self.mean], scope=self.scope, **how)


def test_sequences_on_one_place() -> None:
    words = Words()
    out, mean = words.run(words.main, return_numpy=False)
    assert out.lod() == [[0, 2, 5, 9]] and mean.lod() == []
    assert out.recursive_sequence_lengths() == [[2, 3, 4]]
    with pytest.raises(RuntimeError, match="return_numpy=False"):
        words.run(words.main)


@pytest.mark.parametrize(
    ("places", "wanted"), [(2, [[0, 2], [0, 3, 7]]), (3, [[0, 2], [0, 3], [0, 4]])]
)
def test_sequences_are_split_and_joined(gang: str, places: int, wanted: list[list[int]]) -> None:
    words = Words()
    program = on_places(words.main, places)
    out, mean = words.run(program, return_numpy=False)
    assert out.lod() == [[0, 2, 5, 9]] and mean.shape() == [places] and mean.lod() == []
    alone, _ = words.run(words.main, return_numpy=False)
    np.testing.assert_allclose(out, alone, 1e-6)
    parts, _ = words.run(program, return_numpy=False, return_merged=False)
    assert [part.lod()[0] for part in parts] == wanted
    with pytest.raises(RuntimeError, match="return_numpy=False"):
        words.run(program)
    words.feed = {"ids": fluid.create_lod_tensor(np.zeros((3, 1), "int64"), [[1, 2]], None)}
    (out, _) = words.run(program, return_numpy=False)
    assert out.recursive_sequence_lengths() == [[1, 2]]  # fewer sequences than places


def test_nested_sequences_keep_their_inner_ones(threads: None) -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        doubled = fluid.layers.scale(fluid.data("x", [None, 1], lod_level=2), 2.0)
    program = on_places(main, 2)
    x = fluid.create_lod_tensor(
        np.arange(10.0, dtype="float32").reshape(10, 1), [[1, 2], [3, 3, 4]], None
    )
    (parts,) = fluid.Executor().run(
        program, {"x": x}, [doubled], return_merged=False, return_numpy=False
    )
    assert [part.lod() for part in parts] == [[[0, 1], [0, 3]], [[0, 2], [0, 3, 7]]]
    (whole,) = fluid.Executor().run(program, {"x": x}, [doubled], return_numpy=False)
    assert whole.lod() == [[0, 1, 3], [0, 3, 6, 10]]


def test_offsets_must_fit() -> None:
    rows = np.zeros((5, 1), "float32")
    for bad in ([[2, 2]], [[1], [2, 3]], [[-1, 6]]):
        with pytest.raises(RuntimeError, match="LoD level"):
            fluid.create_lod_tensor(rows, bad, None)
    listed = fluid.create_lod_tensor([[1, 2], [3]], [[2, 1]], None)
    assert np.array(listed).tolist() == [[1], [2], [3]] and listed.lod() == [[0, 2, 3]]
    drawn = fluid.create_random_int_lodtensor([[2, 3]], [1], None, 0, 4)
    assert drawn.shape() == [5, 1] and np.array(drawn).max() <= 4


def test_a_fetch_of_one_element_is_also_a_number() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 2])
        mean, count = fluid.layers.mean(x), fluid.layers.cast(fluid.layers.mean(x), "int64")
    feed = {"x": np.full((4, 2), 2.5, "float32")}
    loss, whole = fluid.Executor(fluid.CPUPlace()).run(main, feed, [mean, count])
    assert isinstance(loss, np.ndarray) and loss.shape == (1,) and loss.dtype == np.float32
    assert float(loss) == 2.5 and int(whole) == 2
    assert f"{loss:.2f}" == "%.2f" % loss == "%.2f" % loss[0] == "2.50"  # noqa: UP031 - as programs do
    assert f"{loss}" == "[2.5]" and f"{whole:d}" == "2"
    assert isinstance(np.mean(loss), np.floating) and float(loss * 2 + 1) == 6.0
    (rows,) = fluid.Executor(fluid.CPUPlace()).run(main, feed, [x])
    assert [f"{value:.1f}" for value in rows[:, :1]] == ["2.5"] * 4
    with pytest.raises(TypeError):
        float(rows)
    assert type(pickle.loads(pickle.dumps(loss))) is np.ndarray
