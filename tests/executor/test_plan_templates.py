"""Plans that a template makes for new sizes are those that binding makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from benchmarks.sequence_models import attended
from rowlock.executor.codegen.native import launch
from rowlock.executor.device.device import Device
from rowlock.executor.host.numbered import NumberedCall
from rowlock.executor.host.writes import address
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.affine import AffineMap
from rowlock.executor.plan.instruction import Instruction
from rowlock.executor.plan.node_shapes import SizeReader
from rowlock.executor.plan.plan import Plan
from rowlock.executor.plan.resized import Resizer
from rowlock.executor.plan.sizes import Sizes
from rowlock.executor.plan.template import PlanTemplate, Prediction, Sized, SizedPlan, _part, _parts
from rowlock.executor.replica import steps
from rowlock.executor.replica.holdings import Holdings
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.replica_program import ReplicaProgram
from rowlock.graph.ops.registry import Inference, Op
from rowlock.graph.passes.target import Target
from rowlock.strategies.errors import ExecutionError
from tests.conftest import one_in

L = fluid.layers
STEPS = 60


def point(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def within(known: AffineMap, sizes: np.ndarray) -> np.ndarray | None:
    """Return the values at a point whose sizes are all between known ones."""
    prediction = known.at(sizes.tobytes())
    return None if prediction is None or prediction[1] else prediction[0]


def test_affine_functions_are_exact_at_integer_combinations() -> None:
    def values(a: int, b: int) -> np.ndarray:
        return point(3 * a - 2 * b + 7, 5, 1 << 40)

    known = AffineMap(point(4, 9), values(4, 9))
    for a, b in ((6, 3), (9, 12), (30, 31), (5, 40), (17, 8), (18, 10), (25, 21)):
        assert not known.learn(point(a, b), values(a, b)).size
    np.testing.assert_array_equal(within(known, point(21, 17)), values(21, 17))


def test_sizes_beyond_known_ones_are_told_until_functions_are_the_same_there() -> None:
    def values(a: int, b: int, c: int) -> np.ndarray:
        return point(a + 2 * b, c)

    first = (4, 9, 12)
    known = AffineMap(point(*first), values(*first))
    for a, b in ((6, 3), (9, 12), (30, 31), (5, 40), (17, 8), (18, 10), (25, 21)):
        known.learn(point(a, b, 3 * a), values(a, b, 3 * a))
    for sizes, but, beyond in (
        ((31, 17, 93), 0b001, 0b101),  # the third is a multiple of the first
        ((31, 17, 93), 0b000, 0b101),
        ((31, 17, 93), 0b000, 0b000),
        ((32, 42, 96), 0b001, 0b111),
        ((32, 42, 96), 0b000, 0b101),
    ):
        prediction = known.at(point(*sizes).tobytes())
        assert prediction is not None
        np.testing.assert_array_equal(prediction[0], values(*sizes))
        assert prediction[1] == beyond
        known.widen(point(*sizes), but)
    known.learn(point(7, 41, 21), values(7, 41, 21))
    assert within(known, point(31, 17, 93)) is not None


def test_sizes_between_multiples_do_not_follow_from_multiples() -> None:
    known = AffineMap(point(16), point(1))
    for n in (32, 64, 48, 96):
        assert not known.learn(point(n), point(n // 16)).size
    np.testing.assert_array_equal(within(known, point(80)), [5])
    assert known.at(point(81).tobytes()) is None
    assert known.learn(point(81), point(6)).tolist() == [0]  # 81 / 16, rounded up


def test_functions_of_many_sizes_are_exact() -> None:
    rng = np.random.RandomState(0)
    factors = rng.randint(-9, 10, (26, 5))
    points = rng.randint(100, 4000, (80, 26))
    known = AffineMap(points[0], points[0] @ factors)
    for each in points[1:60]:
        assert not known.learn(each, each @ factors).size
    inside = [each for each in points[60:] if known.covers(each)]
    for each in (*points[:60], *inside):
        np.testing.assert_array_equal(within(known, each), each @ factors)


def test_a_point_that_comes_again_confirms_nothing() -> None:
    known = AffineMap(point(3), point(3))
    for _ in range(5):
        known.learn(point(5), point(5))
    assert known.at(point(4).tobytes()) is None


@pytest.mark.parametrize("both", [(30, 7), (20, 9)])
def test_products_of_sizes_do_not_follow_from_points_at_which_one_stays(both: Any) -> None:
    def values(a: int, b: int) -> np.ndarray:
        return point(a * b, b * b, a + b)

    known = AffineMap(point(10, 5), values(10, 5))
    for a, b in ((44, 11), (33, 5), (12, 5), (17, 5), (21, 5), (20, 7)):
        assert 2 not in known.learn(point(a, b), values(a, b))
    assert known.at(point(*both).tobytes()) is None
    assert known.learn(point(*both), values(*both)).size


def instruction(*calls: Callable[[], Any]) -> Instruction:
    return Instruction("op", (), (), "here", calls)


def filled(array: np.ndarray, value: int) -> None:
    array[...] = value


def test_a_node_whose_numbers_are_no_affine_functions_is_bound() -> None:
    memory = np.zeros(1000, np.int64)

    def plan(n: int) -> Sized:
        array = np.ndarray((n,), np.int64, memory)
        steady, rounded = partial(filled, array, n), partial(filled, array, -(-n // 16))
        return Sized([instruction(steady), instruction(rounded)], 0, [array], [], [1000 - 8 * n])

    template = PlanTemplate(point(40), [1, 1, 1], plan(40), [memory.view(np.uint8)])
    for n in (50, 61, 73, 100, 99):
        assert template.learn(point(n), plan(n))
    assert template.apart == {1}
    prediction = template.predict(point(90).tobytes())
    assert prediction is not None
    assert (prediction.parts, prediction.beyond) == ({1}, ())
    bound = instruction()
    sized = template.plan(
        prediction.values, {1: [bound, bound]}, device=Device(), temporaries=(0, 0)
    )
    assert list(sized._instructions[1:]) == [bound, bound]
    (call,), (array,) = sized.instructions[0].calls, sized._inputs
    call()
    assert (memory == 90).sum() == 90
    assert array.shape == (90,)


def test_nodes_of_which_a_size_is_beyond_known_ones_are_bound_until_they_are_what_was_told() -> (
    None
):
    memory = np.zeros(1000, np.int64)

    def plan(a: int, b: int) -> Sized:
        """Return calls of which the second is another function of more than 100 rows."""
        first, second = (np.ndarray((n,), np.int64, memory, at) for n, at in ((a, 0), (b, 4000)))
        calls = partial(filled, first, a), partial(filled, second, min(b, 100))
        slack = [500 - a, 500 - b]
        return Sized([*map(instruction, calls)], 0, [first], [second], slack)

    buffers, read = [memory.view(np.uint8)], [0b01, 0b10, 0b11]
    template = PlanTemplate(point(40, 40), read, plan(40, 40), buffers)
    for a, b in ((50, 90), (61, 50), (73, 60), (100, 80), (99, 90), (51, 71), (52, 83)):
        template.learn(point(a, b), plan(a, b))
    for sizes, beyond in (
        ((130, 50), [0, 2]),
        ((130, 60), []),
        ((60, 130), [1, 2]),
        ((60, 130), [1, 2]),
        ((140, 99), [0, 1, 2]),
        ((140, 99), []),
    ):
        prediction = template.predict(point(*sizes).tobytes())
        assert prediction is not None
        assert list(prediction.beyond) == sorted(prediction.parts) == beyond
        if beyond:
            whole = plan(*sizes)
            bound = [whole.instructions[k] for k in beyond[:-1]]
            template.widen(point(*sizes), prediction, whole._replace(instructions=bound))
    assert template.predict(point(501, 50).tobytes()) is None  # it does not fit


def test_memory_that_an_instruction_has_alone_is_no_function_of_sizes() -> None:
    """Where it lies may look like one; what is there at other sizes belongs to something else."""
    memory, own = np.zeros(1000, np.int64), np.zeros((100, 4), np.int64)
    source = "def run(words):\n    pass\n"

    def plan(n: int) -> Sized:
        array = np.ndarray((n,), np.int64, memory)
        words = [address(array), address(own[n]), n]
        call = launch(source, words, array, own[n])
        return Sized([instruction(call)], 0, [array], [], [1000 - 8 * n])

    template = PlanTemplate(point(40), [1, 1], plan(40), [memory.view(np.uint8)])
    for n in (50, 61, 73, 99, 98, 97, 96):
        template.learn(point(n), plan(n))
    assert template.apart == {0}


def test_calls_of_a_template_share_the_arrays_that_are_equal_for_all_sizes() -> None:
    memory = np.zeros(1000, np.int64)

    def plan(n: int) -> Sized:
        def rows(count: int, begin: int = 0) -> np.ndarray:
            return np.ndarray((count,), np.int64, memory, 8 * begin)

        first, second, other = (partial(filled, rows(k), 1) for k in (n, n, 2 * n))
        moving = partial(filled, rows(n, 900 - n), 2)
        calls = instruction(first, second, other, moving)
        return Sized([calls], 0, [rows(n)], [rows(2 * n)], [memory.nbytes - 16 * n])

    template = PlanTemplate(point(40), [1, 1], plan(40), [memory.view(np.uint8)])
    for n in (50, 61, 73, 100, 99):
        assert template.learn(point(n), plan(n))
    prediction = template.predict(point(90).tobytes())
    assert prediction is not None
    sized = template.plan(prediction.values, {}, device=Device(), temporaries=(0, 0))
    (calls,) = (each.calls for each in sized.instructions)
    first, second, other, moving = (call.args[0] for call in calls)  # type: ignore[attr-defined]
    assert first is second is sized._inputs[0]
    assert other is sized.fetched(lent=1)[0]
    assert (len(first), len(other), len(moving)) == (90, 180, 90)
    for call in calls:
        call()
    assert np.flatnonzero(memory == 1).tolist() == list(range(180))
    assert np.flatnonzero(memory == 2).tolist() == list(range(810, 900))


def decoder(words: Any, label: Any) -> Any:
    """Return the scores of a decoder that attends to all words of a sentence in each round."""
    vectors = L.embedding(words, (50, 8))
    memory = L.fc(vectors, 6, act="tanh")
    rnn = L.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(vectors)
        around = rnn.static_input(memory)
        state = rnn.memory(shape=[8], value=0.1)
        context = attended(fluid, state, around, around)
        after = L.fc([context, word, state], 8, act="tanh")
        rnn.update_memory(state, after)
        rnn.output(after)
    return L.fc(L.sequence_last_step(rnn()), 3)


def texts(words: Any, label: Any) -> Any:
    """Return scores by windows, recurrences and sparse rows."""
    vectors = L.embedding(words, (50, 8), is_sparse=True)
    windows = L.sequence_conv(vectors, 7, 3, act="relu")
    states, _ = L.dynamic_lstm(L.fc(vectors, 16), 16, use_peepholes=False)
    gated = L.dynamic_gru(L.fc(vectors, 12), 4, is_reverse=True)
    several = windows, states, gated
    pools = [L.sequence_pool(x, kind) for x in several for kind in ("max", "average")]
    return L.fc(L.dropout(L.concat(pools, 1), 0.1), 3)


def losses(
    model: Callable[[Any, Any], Any], places: int = 1, sentences: int | None = None
) -> list[list[float]]:
    """Return the losses of steps on sentences of ever other lengths, some of one word, or of one sentence.

    ``sentences``: how many there are in each step (None: ever others).
    """
    main, startup, rng = fluid.Program(), fluid.Program(), np.random.RandomState(3)
    main.random_seed = startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words = fluid.data("words", [None, 1], "int64", lod_level=1)
        label = fluid.data("label", [None, 1], "int64")
        loss = L.mean(L.softmax_with_cross_entropy(model(words, label), label))
        fluid.optimizer.Adam(0.01).minimize(loss)
    exe, losses = fluid.Executor(fluid.CPUPlace()), []
    program: Any = main
    if places > 1:
        program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=loss.name, places=fluid.cpu_places(places)
        )
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for k in range(STEPS):
            few = places if k % 10 == 9 else rng.randint(3, 7)
            lengths = rng.randint(1, 9, sentences or few).tolist()
            if not k:  # all that follow fit into memory
                lengths = [9] * (sentences or 7)
            ids = rng.randint(0, 50, (sum(lengths), 1)).astype("int64")
            feed = {
                "words": fluid.create_lod_tensor(ids, [lengths], fluid.CPUPlace()),
                "label": rng.randint(0, 3, (len(lengths), 1)).astype("int64"),
            }
            (value,) = exe.run(program, feed=feed, fetch_list=[loss])
            losses.append(value.tolist())
    return losses


def test_rounds_of_new_sizes_take_sizes_from_elements_and_infer_no_shapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inferred, taken, infer = Counter[str](), list[Any](), Op.infer

    def counted(self: Op, inference: Inference) -> Any:
        inferred[self.type] += inference.exact
        return infer(self, inference)

    read = SizeReader.read
    monkeypatch.setattr(Op, "infer", counted)
    monkeypatch.setattr(SizeReader, "read", lambda *a: (taken.append(a), read(*a))[1])
    losses(decoder)
    assert len(taken) > 10 * max(inferred["shrink_rnn_memory"], inferred["sequence_expand"])


def test_loops_save_and_read_no_elements_of_what_gradients_read_shapes_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected, shaped, run = losses(decoder), Plan.shaped, Plan.run
    lost, left = Counter[tuple[int, ...]](), Counter[bool]()

    def without_elements(self: Plan, number: int) -> Any:
        array = np.full_like(shaped(self, number), np.nan)
        lost[array.shape[1:]] += 1
        return array

    def counted(self: Plan, feeds: Any, **options: Any) -> None:
        left.update(buffer is None for buffer in self._inputs)
        run(self, feeds, **options)

    monkeypatch.setattr(Plan, "shaped", without_elements)
    monkeypatch.setattr(Plan, "run", counted)
    assert losses(decoder) == expected
    # Of each round, a state and three values of attention
    assert lost[6,] == 3 * lost[8,] > 15 * STEPS
    assert left[True] > left[False] / 5


def test_levels_that_are_equal_are_computed_and_fed_once() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        words = fluid.data("words", [None, 4], lod_level=1)
        rnn, factors = L.DynamicRNN(), [words * factor for factor in (2.0, 3.0)]
        with rnn.block():
            word = rnn.step_input(words)
            one, other = (rnn.static_input(x) for x in factors)
            both = L.sequence_pool(one, "sum") + L.sequence_pool(other, "max")
            rnn.output(word + both)
        out = rnn()
    names = "words", "words@LOD0"
    program = compile_program(main, names, (out.name,), Target(), capabilities()).program
    around, inside = (
        [node for node in nodes if node.op == "lod_picked"]
        for nodes in (program.nodes, loop_of(program).nodes)
    )
    assert (len(around), len(inside)) == (1, 1)


def loop_of(program: ReplicaProgram) -> ReplicaProgram:
    """Return the block of a program's loop."""
    blocks = (node.attrs.get("block") for node in program.nodes)
    return ReplicaProgram.from_data(next(block for block in blocks if block))


def test_rounds_of_new_sizes_are_refused_where_operands_have_too_few_rows() -> None:
    main, startup, rng = fluid.Program(), fluid.Program(), np.random.RandomState(4)
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words = fluid.data("words", [None, 1], lod_level=1)
        x, last = fluid.data("x", [None, 4]), fluid.data("last", [1], "int64")
        table, total = L.lod_rank_table(words), L.fill_constant([4, 4], "float32", 0.0)
        step = L.fill_constant([1], "int64", 0)
        goes_on = L.less_than(step, last)
        loop = L.While(goes_on)
        with loop.block():
            rows = L.shrink_memory(x * 2.0, step, table)
            each = rows, L.sequence_pool(words, "sum")
            squares, zero = (L.matmul(y, y, transpose_x=True) for y in each)
            L.assign(L.elementwise_add(total + squares, L.reshape(zero, [1])), total)
            L.increment(step)
            L.less_than(step, last, cond=goes_on)
    exe, steps = fluid.Executor(fluid.CPUPlace()), 24

    def run(rows: int, count: int) -> None:
        ids = fluid.create_lod_tensor(np.zeros((2 * count, 1), "f4"), [[2] * count], exe.place)
        array = rng.standard_normal((rows, 4)).astype("f4")
        feed = {"words": ids, "x": array, "last": np.array([1])}
        (value,) = exe.run(main, feed=feed, fetch_list=[total])
        first = array[:count]
        np.testing.assert_allclose(value, 4 * first.T @ first, rtol=1e-4, atol=1e-4)

    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        run(40, 30)
        for rows in rng.randint(10, 40, steps):
            run(int(rows), int(rng.randint(5, min(rows, 29) + 1)))
        with pytest.raises(ExecutionError, match="25 sequences are longer than I, X has 15"):
            run(15, 25)
        run(27, 14)


@pytest.mark.parametrize("model", one_in(2, [decoder, texts]))
def test_losses_are_the_same_bits_as_those_of_plans_that_are_bound(
    model: Callable[[Any, Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, run = [], SizedPlan.run
    with monkeypatch.context() as patch:
        patch.setattr(SizedPlan, "run", lambda *a, **k: (runs.append(a), run(*a, **k))[1])
        by_template = losses(model)
    assert len(runs) >= STEPS // 4
    monkeypatch.setattr(PlanTemplate, "predict", lambda self, sizes: None)
    assert by_template == losses(model)


def test_few_shapes_tell_whether_threads_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas with several collectives could have a thread for them; most plans are not even measured."""
    monkeypatch.setattr(steps, "choose", lambda *a, **k: None)
    runs, measured, run, timed = [], set(), SizedPlan.run, Plan._run_timed
    with monkeypatch.context() as patch, rowlock.cluster(launcher="threads"):
        patch.setattr(SizedPlan, "run", lambda *a, **k: (runs.append(a), run(*a, **k))[1])
        patch.setattr(Plan, "_run_timed", lambda self: (measured.add(self), timed(self))[1])
        by_template = losses(texts, places=2)
    assert len(runs) >= STEPS // 4
    assert 2 <= len(measured) <= 2 * 16  # by two replicas, each of a few shapes
    monkeypatch.setattr(PlanTemplate, "predict", lambda self, sizes: None)
    with rowlock.cluster(launcher="threads"):
        assert by_template == losses(texts, places=2)


@pytest.mark.parametrize("model", one_in(2, [decoder, texts]))
def test_numbers_and_calls_are_those_of_plans_that_are_bound(
    model: Callable[[Any, Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, instance = [], Resizer._instance

    def checked(
        self: Resizer,
        template: PlanTemplate,
        sizes: Sizes,
        prediction: Prediction,
        complete: Any,
    ) -> Plan | None:
        plan = instance(self, template, sizes, prediction, complete)
        if plan is None:
            return None
        (_, fresh), beyond = self._fresh(complete()), template.predict(sizes.numbers).beyond
        for k, part in enumerate(_parts(fresh, template._buffers)):
            if k not in template.apart and k not in beyond:
                assert part.form == template._parts[k].form
                begin, end = template._begins[k : k + 2]
                assert part.numbers == prediction.values[begin:end].tolist()
        for k, (one, other) in enumerate(zip(plan.instructions, fresh.instructions, strict=True)):
            calls = [[c for c in i.calls if not isinstance(c, NumberedCall)] for i in (one, other)]
            own, bound = (_part(each, [], template._buffers) for each in calls)
            assert k in template.apart or own == bound
        arrays = (plan._inputs, plan._fetched), (tuple(fresh.inputs), tuple(fresh.fetched))
        own, bound = (_part(each, [], template._buffers) for each in arrays)
        assert own == bound
        compared.append(plan)
        return plan

    monkeypatch.setattr(Resizer, "_instance", checked)
    losses(model)
    assert len(compared) >= STEPS // 4


def recommender(words: Any, label: Any) -> Any:
    """Return scores by a GRU of which no row fills a line of memory, and rows of a table."""
    vectors = L.embedding(words, (50, 5), is_sparse=True)
    states = L.dynamic_gru(L.fc(vectors, 30), 10)
    return L.fc(L.sequence_last_step(states), 3)


def test_a_new_length_binds_nothing_where_all_numbers_follow_from_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    templates, plan = set[PlanTemplate](), PlanTemplate.plan

    def noted(self: PlanTemplate, *args: Any, **others: Any) -> SizedPlan:
        templates.add(self)
        return plan(self, *args, **others)

    monkeypatch.setattr(PlanTemplate, "plan", noted)
    losses(recommender, sentences=8)
    assert templates and not any(template.apart for template in templates)


def test_sizes_that_grow_have_all_values_placed_anew_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placed, bind = [], Holdings._bind
    monkeypatch.setattr(Holdings, "_bind", lambda *a: (placed.append(a), bind(*a))[1])
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words = fluid.data("words", [None, 1], "int64", lod_level=1)
        label = fluid.data("label", [None, 1], "int64")
        loss = L.mean(L.softmax_with_cross_entropy(recommender(words, label), label))
        fluid.optimizer.Adam(0.01).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        placed.clear()
        for rows in range(100, 1000, 10):
            ids = fluid.create_lod_tensor(np.zeros((rows, 1), "i8"), [[rows // 2] * 2], exe.place)
            exe.run(main, feed={"words": ids, "label": np.zeros((2, 1), "i8")}, fetch_list=[loss])
    assert len(placed) <= 10
