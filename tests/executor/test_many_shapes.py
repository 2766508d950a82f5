"""Programs that are fed one shape after another: what is bound for them is bounded, and right for each."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from benchmarks.changing_shapes import grow
from rowlock.executor.host import arena
from rowlock.executor.kernels.array import time_steps
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.onednn import primitive, recurrence
from rowlock.executor.kernels.onednn.primitive import CACHED
from rowlock.executor.plan.emission import Emission
from rowlock.executor.plan.memory import ValueMemory
from rowlock.executor.plan.plan import Plan
from rowlock.executor.plan.shapes import Shapes, infer_specs
from rowlock.executor.plan.sizes import Form
from rowlock.executor.replica import plan_cache
from rowlock.executor.replica.plan_cache import PLANS_KEPT
from rowlock.graph.compile import compile_program
from rowlock.graph.ops.registry import Spec
from rowlock.graph.passes.target import Target
from rowlock.strategies.types import VarType
from tests.conftest import one_in

L = fluid.layers


def training() -> tuple[Any, Any, Any]:
    """Return a program over sequences of any length, its startup program, and the loss."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, None, 8])
        h = L.fc(x, 8, num_flatten_dims=2, act="tanh")
        scores = L.softmax(L.matmul(h, h, transpose_y=True))
        loss = L.mean(L.square(L.matmul(scores, h)))
        fluid.optimizer.Adam(0.01).minimize(loss)
    return main, startup, loss


def plans() -> int:
    gc.collect()
    return sum(issubclass(type(o), Plan) for o in gc.get_objects())


def test_plans_for_many_lengths_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    monkeypatch.setattr(plan_cache.PlanBudget.__init__, "__defaults__", (0,))
    before = plans()
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
        main, startup, loss = training()
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        program = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name)
        for length in range(1, 3 * PLANS_KEPT):
            exe.run(program, feed={"x": np.zeros((2, length, 8), "f4")}, fetch_list=[loss])
        assert plans() - before <= 2 * (PLANS_KEPT + 1) + 1  # and the startup program's


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "places"),
    one_in(2, itertools.product(["stacked_lstm", "click_through_uneven", "loop"], [1, 2]), more=0),
)
def test_steps_of_ever_changing_shapes_take_no_more_memory(
    name: str, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``benchmarks/changing_shapes.py`` measures over more steps, with as few plans as are ever kept.

    The latest primitives live without plans, so they may still take memory.
    """
    monkeypatch.setattr(plan_cache.PlanBudget.__init__, "__defaults__", (0,))
    with rowlock.cluster(launcher="threads"):
        (_, early), (_, late) = grow(name, places, (200, 400))
    assert late[0].plans <= early[0].plans + 2
    assert late[0].loops == early[0].loops
    compiled = late[0].primitives - early[0].primitives
    assert late[0].primitives <= 2 * CACHED
    more = late[0].anonymous - early[0].anonymous
    assert more < places * (40 << 20) + compiled * (256 << 10)


def test_what_plans_share_does_not_mix_them_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses are those of one place that sees the whole batch, whichever shape was bound before."""
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((2, n, 8)).astype("f4") for n in (3, 5, 3, 7, 5, 3)]
    monkeypatch.setenv("CPU_NUM", "2")
    losses: list[list[float]] = []
    for places in (1, 2):
        with rowlock.cluster(launcher="threads"), fluid.scope_guard(fluid.Scope()):
            main, startup, loss = training()
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(startup)
            program = main
            if places > 1:
                program = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name)
            means = [exe.run(program, feed={"x": x}, fetch_list=[loss])[0] for x in batches]
            losses.append([float(np.mean(f)) for f in means])
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_recurrences_of_other_lengths_share_what_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses have the bits of plans that share nothing; products are bound for each batch size alone."""
    bound: list[int] = []
    bind = recurrence._Products.__init__

    def noted(self: Any, dev: Any, sizes: Any, rows: int, dtype: Any) -> None:
        bound.append(rows)
        bind(self, dev, sizes, rows, dtype)

    monkeypatch.setattr(recurrence._Products, "__init__", noted)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 12], lod_level=1)
        h, _ = L.dynamic_lstm(L.dynamic_gru(x, 4) @ L.create_parameter([4, 16], "float32"), 16)
        loss = L.mean(L.square(L.sequence_pool(h, "max")))
        fluid.optimizer.SGD(0.1).minimize(loss)
    rng = np.random.default_rng(2)
    batches = [[3, 2, 4], [9, 1, 1], [2, 2, 7, 1, 1], [5, 8, 2], [1, 1, 1, 1, 20], [3, 2, 4]]
    rows = [rng.standard_normal((sum(lengths), 12)).astype("f4") for lengths in batches]
    place = fluid.CPUPlace()
    losses = {}
    for shared in (True, False):
        exe, scope = fluid.Executor(place), fluid.Scope()
        exe.run(startup, scope=scope)
        bound.clear()
        losses[shared], counts = [], []
        for array, lengths in zip(rows, batches, strict=True):
            exe = exe if shared else fluid.Executor(place)
            feed = {"x": fluid.create_lod_tensor(array, [lengths], place)}
            losses[shared] += exe.run(main, feed, [loss], scope=scope)
            counts.append(len(bound))
        if shared:
            assert counts[0] == counts[1] and counts[2] == counts[-1], "bound for 3 and 5 sequences"
    np.testing.assert_array_equal(losses[True], losses[False])


def test_what_plans_share_of_recurrences_is_bound_and_sorted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as a plan has products, another one with as many sequences takes them; the budget counts them."""
    monkeypatch.setattr(arena, "_BOUND_KEPT", 1)
    bound: list[Any] = []
    ordered: list[bytes] = []
    bind, order = recurrence._Products.__init__, time_steps.TimeSteps.__init__

    def noted(self: Any, *arguments: Any) -> None:
        bound.append(self)
        bind(self, *arguments)

    def sorted_now(self: Any, xp: Any, begins: Any, *others: Any) -> None:
        ordered.append(begins.tobytes())
        order(self, xp, begins, *others)

    monkeypatch.setattr(recurrence._Products, "__init__", noted)
    monkeypatch.setattr(time_steps.TimeSteps, "__init__", sorted_now)
    main, startup, place = fluid.Program(), fluid.Program(), fluid.CPUPlace()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 12], lod_level=1)
        loss = L.mean(
            L.dynamic_gru(L.dynamic_gru(x, 4) @ L.create_parameter([4, 12], "float32"), 4)
        )
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe, scope = fluid.Executor(place), fluid.Scope()
    exe.run(startup, scope=scope)
    batches = [[1] * n + [length] for length in (3, 5, 9) for n in (1, 2, 3)]
    for lengths in batches:
        feed = {"x": fluid.create_lod_tensor(np.ones((sum(lengths), 12), "f4"), [lengths], place)}
        exe.run(main, feed, [loss], scope=scope)
        assert len(set(ordered)) == len(ordered) == 1, "forwards and backwards, of both layers"
        ordered.clear()
    assert 0 < len(bound) <= 4 * 3, "both factors, both ways, of 2 to 4 sequences"
    (budget,) = (
        b for b in gc.get_objects() if type(b) is plan_cache.PlanBudget and bound[0] in b._users
    )
    assert budget._size > sum(products.nbytes for products in bound) > 0


def test_a_new_length_compiles_no_product_and_binds_no_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Losses have the bits of plans that share nothing."""
    compiled: list[str] = []
    updates: list[str] = []
    make, in_lane = primitive.Primitive.__init__, Emission.in_lane

    def noted(self: Any, kind: str, *arguments: Any, what: str) -> None:
        compiled.append(what)
        make(self, kind, *arguments, what=what)

    def emitted(self: Any, node: Any, lane: int) -> Any:
        updates.extend([node.op] * (node.op == "momentum"))
        return in_lane(self, node, lane)

    monkeypatch.setattr(primitive.Primitive, "__init__", noted)
    monkeypatch.setattr(Emission, "in_lane", emitted)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 12], lod_level=1)
        h = L.fc(L.fc(x, 160, act="tanh"), 104)
        loss = L.mean(L.square(L.sequence_pool(h, "sum")))
        fluid.optimizer.Momentum(0.001, 0.9).minimize(loss)
    rng, place = np.random.default_rng(4), fluid.CPUPlace()
    batches = [[3, 2, 4], [9, 1, 5], [2, 20, 7], [50, 8, 2], [3, 2, 4]]
    rows = [rng.standard_normal((sum(lengths), 12)).astype("f4") for lengths in batches]
    losses: dict[bool, list[Any]] = {True: [], False: []}
    for shared in (True, False):
        exe, scope = fluid.Executor(place), fluid.Scope()
        exe.run(startup, scope=scope)
        for number, (array, lengths) in enumerate(zip(rows, batches, strict=True)):
            exe = exe if shared else fluid.Executor(place)
            compiled.clear()
            updates.clear()
            feed = {"x": fluid.create_lod_tensor(array, [lengths], place)}
            losses[shared] += exe.run(main, feed, [loss], scope=scope)
            if shared and number:
                assert not updates
                assert not [what for what in compiled if what.startswith("matmul")]
    np.testing.assert_array_equal(losses[True], losses[False])


def test_lengths_that_were_met_apart_bind_nothing_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Losses have the bits of plans that share nothing."""
    bound: list[str] = []
    in_lane = Emission.in_lane

    def emitted(self: Any, node: Any, lane: int) -> Any:
        bound.append(node.op)
        return in_lane(self, node, lane)

    monkeypatch.setattr(Emission, "in_lane", emitted)
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ids = [fluid.data(name, [None, 1], "int64", lod_level=1) for name in "ab"]
        rows = [L.embedding(each, (50, 4), is_sparse=True) for each in ids]
        pools = [L.sequence_pool(each, "sum") for each in rows]
        loss = L.mean(L.square(L.fc(L.concat(pools, 1), 3)))
        fluid.optimizer.Adagrad(0.1).minimize(loss)
    rng, place = np.random.default_rng(5), fluid.CPUPlace()
    pairs = [([30, 40], [30, 50]), ([9, 2], [7, 20]), ([3, 4], [1, 2]), ([9, 2], [1, 2])]
    feeds = [
        {
            name: fluid.create_lod_tensor(rng.integers(0, 50, (sum(n), 1)), [n], place)
            for name, n in zip("ab", lengths, strict=True)
        }
        for lengths in pairs
    ]
    losses: dict[bool, list[Any]] = {True: [], False: []}
    for shared in (True, False):
        exe, scope = fluid.Executor(place), fluid.Scope()
        exe.run(startup, scope=scope)
        for feed in feeds:
            exe = exe if shared else fluid.Executor(place)
            bound.clear()
            losses[shared] += exe.run(main, feed, [loss], scope=scope)
            if shared:
                assert "mul" not in bound or feed is feeds[0], "two samples in each batch"
        if shared:
            assert not {"sequence_pool", "sequence_pool_grad", "lookup_table"}.intersection(bound)
    np.testing.assert_array_equal(losses[True], losses[False])


def attending() -> tuple[Any, Any, Any]:
    """Return a program whose rounds see sentences that go on, and notes of any length on each; and its loss."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words, notes = (fluid.data(name, [None, 4], lod_level=1) for name in ("words", "notes"))
        rnn, layer = L.DynamicRNN(), L.fc(notes, 4)
        with rnn.block():
            word, note = rnn.step_input(words), rnn.static_input(layer)
            before = rnn.memory(shape=[4], value=0.5)
            seen = L.sequence_pool(L.sigmoid(note + L.sequence_expand(before, note)), "sum")
            hidden = L.fc([word, before, seen], 4, act="tanh")
            rnn.update_memory(before, hidden)
            rnn.output(hidden)
        loss = L.mean(L.square(rnn()))
        fluid.optimizer.SGD(0.5).minimize(loss)
    return main, startup, loss


def test_rounds_of_other_lengths_share_what_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses have the bits of plans that share nothing, whichever values outgrow their places."""
    bound, in_lane = set[str](), Emission.in_lane

    def emitted(self: Emission, node: Any, lane: int) -> Any:
        bound.add(node.op)
        return in_lane(self, node, lane)

    monkeypatch.setattr(Emission, "in_lane", emitted)
    main, startup, loss = attending()
    rng, place = np.random.default_rng(2), fluid.CPUPlace()
    steps = ([3, 2, 1], [30, 9, 40]), ([2, 1, 3], [500, 60, 70])
    steps += ([1, 3, 2], [2, 3, 4]), ([3, 1, 2], [9, 80, 2])
    feeds = [
        {
            name: fluid.create_lod_tensor(rng.standard_normal((sum(n), 4), "f4"), [n], place)
            for name, n in zip(("words", "notes"), of_both, strict=True)
        }
        for of_both in steps
    ]
    losses: dict[bool, list[Any]] = {True: [], False: []}
    for shared in (True, False):
        exe, scope = fluid.Executor(place), fluid.Scope()
        exe.run(startup, scope=scope)
        for feed in feeds:
            exe = exe if shared else fluid.Executor(place)
            bound.clear()
            losses[shared] += exe.run(main, feed, [loss], scope=scope)
            if shared and feed is feeds[-1]:
                assert "sequence_expand" in bound and not {"tanh", "tanh_grad"} & bound
    np.testing.assert_array_equal(losses[True], losses[False])


def test_a_round_of_other_sizes_places_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is bound on the memory of an earlier round, until one needs more room, with the bits of its own."""
    placed, plan_of = list[int](), ValueMemory.plan

    def planned(self: ValueMemory, *args: Any) -> Any:
        placed.append(len(self.program.nodes))
        return plan_of(self, *args)

    monkeypatch.setattr(ValueMemory, "plan", planned)
    main, startup, loss = attending()
    rng, place = np.random.default_rng(3), fluid.CPUPlace()
    steps = [([9, 5, 4], [30, 9, 40]), ([9, 2, 1], [7, 5, 9]), ([1, 1, 1], [2, 1, 1])]
    steps += [
        ([4, 3], [20, 10]),
        ([2], [1]),
        ([2, 5, 1, 1], [300, 1, 2, 3]),
        ([6, 2, 1], [3, 9, 4]),
    ]
    losses: dict[bool, list[Any]] = {True: [], False: []}
    feeds = [
        {
            name: fluid.create_lod_tensor(rng.standard_normal((sum(n), 4), "f4"), [n], place)
            for name, n in zip(("words", "notes"), of_both, strict=True)
        }
        for of_both in steps
    ]
    for shared in (True, False):
        exe, scope = fluid.Executor(place), fluid.Scope()
        exe.run(startup, scope=scope)
        for k, feed in enumerate(feeds):
            exe = exe if shared else fluid.Executor(place)
            placed.clear()
            losses[shared] += exe.run(main, feed, [loss], scope=scope)
            if shared and k in (1, 2, 3, 6):
                assert not placed, "all that is larger lies in the room that was reserved"
            elif not shared or k in (0, 5):
                assert placed
    np.testing.assert_array_equal(losses[True], losses[False])


def test_persistables_that_move_are_found_by_plans_of_other_sizes() -> None:
    """What was bound on their old memory is bound no more."""
    main, startup, loss = attending()
    place, results = fluid.CPUPlace(), list[list[Any]]()
    for fresh in (False, True):
        rng = np.random.default_rng(4)
        exe, scope = fluid.Executor(place), fluid.Scope()
        exe.run(startup, scope=scope)
        results.append([])
        for k in range(4):
            feed = {
                name: fluid.create_lod_tensor(
                    rng.standard_normal((n, 4), "f4"), [[n - 1, 1]], place
                )
                for name, n in (("words", 4 + k), ("notes", 9 - k))
            }
            if k == 2:
                for name in (parameter.name for parameter in main.all_parameters()):
                    values = np.array(scope.find_var(name).get_tensor()) * np.float32(0.5)
                    scope.erase([name])
                    scope.var(name).get_tensor().set(values, place)
            exe = fluid.Executor(place) if fresh else exe
            results[-1] += exe.run(main, feed, [loss], scope=scope)
    np.testing.assert_array_equal(*results)


def test_shapes_that_were_inferred_before_are_inferred_alike() -> None:
    main, _, loss = training()
    program = compile_program(main, ("x",), (loss.name,), Target(), capabilities()).program
    shapes = Shapes(program)
    for length in (*range(1, 80), 3, 5):  # more than are known at once
        fed = [Spec((4, length, 8), VarType.FP32)]
        assert shapes.infer(fed, lambda name: None) == infer_specs(program, fed, lambda name: None)


def test_persistables_are_told_by_one_thing_as_long_as_their_shapes_stay() -> None:
    main, _, loss = training()
    program = compile_program(main, ("x",), (loss.name,), Target(), capabilities()).program
    shapes, fed = Shapes(program), [Spec((4, 5, 8), VarType.FP32)]
    states = [shapes.states(lambda name, n=n: Spec((8, n), VarType.FP32)) for n in (2, 3, 2)]
    assert states[0] is states[2] is not states[1]
    sizes = [shapes.sizes(shapes.begin(list(map(Form, fed)), each)) for each in states]
    assert sizes[0] == sizes[2] != sizes[1]
    assert len(sizes[0].kinds) == 1 + len(fed)
