"""Kernels are chosen by what one replica measured; all replicas run the choice, and it is measured once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.driver import choice
from rowlock.executor.kernels import measure as measuring
from rowlock.executor.kernels.capabilities import installed
from rowlock.executor.kernels.measure import Limit, Question, Timings, fastest, measure
from rowlock.executor.kernels.onednn.library import library
from tests.programs import on_places, own_programs

pytestmark = pytest.mark.skipif("onednn" not in installed(), reason="oneDNN is not installed")
ROWS, LENGTH, WIDTH = 8, 12, 16


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Measure anew, in a cache of the test's own."""
    monkeypatch.setenv("ROWLOCK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(measuring, "_known", {})
    yield


def of_words(words: Any) -> Any:
    """Return the largest of what windows over words make."""
    layers = fluid.layers
    vectors = layers.unsqueeze(fluid.embedding(words, (50, WIDTH)), [1])
    features = [
        layers.pool2d(layers.conv2d(vectors, 8, (size, WIDTH), act="relu"), global_pooling=True)
        for size in (3, 4)
    ]
    return layers.concat(features, 1)


def of_pixels(words: Any) -> Any:
    """Return what windows of 3 x 3 make of words as the channels of pixels."""
    vectors = fluid.embedding(words, (50, WIDTH * 4))
    hidden = fluid.layers.reshape(vectors, [-1, LENGTH, 8, 8])
    for channels in (16, 20):
        hidden = fluid.layers.conv2d(hidden, channels, 3, padding=1, act="relu")
    return fluid.layers.pool2d(hidden, pool_type="avg", global_pooling=True)


def text_cnn(
    places: int, steps: int = 3, launcher: str = "threads", net: Any = of_words, **switches: Any
) -> tuple[list[Any], Any]:
    """Return the losses of a net of convolutions over words, and the program that trained."""
    layers = fluid.layers
    with own_programs(5) as (main, startup):
        words = layers.data("words", [LENGTH], dtype="int64")
        label = layers.data("label", [1], dtype="int64")
        scores = layers.fc(net(words), 4)
        loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
        fluid.optimizer.SGD(0.1).minimize(loss)
    build = fluid.BuildStrategy(**switches)
    rng = np.random.default_rng(3)
    exe = fluid.Executor(fluid.CPUPlace())
    with rowlock.cluster(launcher=launcher), fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        program = on_places(main, places, loss, build=build)
        losses = []
        for _ in range(steps):
            feed = {
                "words": rng.integers(0, 50, (ROWS, LENGTH)),
                "label": rng.integers(0, 4, (ROWS, 1)),
            }
            losses.append(exe.run(program, feed=feed, fetch_list=[loss])[0])
        return losses, program.explain()


def said(report: Any) -> str:
    """Return the line about what was measured."""
    return next((n for n in report.graph.notes if n.startswith("measured kernels")), "")


def test_what_was_measured_is_known_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("WITHIN_S", "UNTIL_S"):  # enough for all of it on a busy host, too
        monkeypatch.setattr(choice, limit, 100.0)
    first, report = text_cnn(2, measure_kernels=True)
    assert "measured kernels: " in said(report) and " 0 known before" in said(report)
    monkeypatch.setattr(measuring, "_known", {})  # another process: the disk has it
    again, report = text_cnn(2, measure_kernels=True)
    assert "measured kernels: 0 of " in said(report) and " 0 left to the rule" in said(report)
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(
    ("kernel", "net"),
    [("windows", of_words), ("blocked", of_words), ("numpy", of_words), ("winograd", of_pixels)],
)
@pytest.mark.parametrize("places", [1, 2])
def test_every_replica_runs_the_choice(
    monkeypatch: pytest.MonkeyPatch, kernel: str, net: Any, places: int
) -> None:
    monkeypatch.setattr(
        choice, "fastest", lambda names, seconds: kernel if kernel in names else names[0]
    )
    losses, report = text_cnn(places, net=net, measure_kernels=True)
    by_rule, plain = text_cnn(places, net=net, measure_kernels=False)
    assert report.kernels[kernel] > plain.kernels.get(kernel, 0)
    assert said(plain) == ""
    np.testing.assert_allclose(losses, by_rule, rtol=2e-5)


def test_one_of_several_processes_measures(ray_cluster: None) -> None:
    losses, report = text_cnn(2, launcher="ray", measure_kernels=True)
    by_rule, _ = text_cnn(2, measure_kernels=False)
    assert "measured kernels: " in said(report)
    np.testing.assert_allclose(losses, by_rule, rtol=2e-5)


def test_the_rule_decides_where_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "WITHIN_S", 0.0)
    losses, report = text_cnn(1, measure_kernels=True)
    by_rule, plain = text_cnn(1, measure_kernels=False)
    assert "measured kernels: 0 of " in said(report)
    assert report.kernels == plain.kernels
    np.testing.assert_array_equal(losses, by_rule)


def test_a_flag_switches_for_programs_without_strategies() -> None:
    assert said(text_cnn(1)[1]) == "", "tests choose by rule"
    fluid.set_flags({"FLAGS_measure_kernels": True})
    try:
        assert said(text_cnn(1)[1]) != ""
    finally:
        fluid.set_flags({"FLAGS_measure_kernels": False})


def test_factors_are_rounded_by_whatever_kernel_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dnnl = library()
    if dnnl is None or not dnnl.rounds:
        pytest.skip("no products in bfloat16 here")
    asked: list[str] = []

    def last(names: Any, seconds: Any) -> str:
        asked.extend(names)
        return str(names[-1])

    monkeypatch.setattr(choice, "fastest", last)
    for net in (of_words, of_pixels):
        losses, _ = text_cnn(1, net=net, measure_kernels=True, cpu_math="bfloat16")
        by_rule, _ = text_cnn(1, net=net, measure_kernels=False, cpu_math="bfloat16")
        np.testing.assert_allclose(losses, by_rule, rtol=0.03)
    assert "blocked" in asked and not {"numpy", "winograd"} & {*asked}, "they round no factors"


def convolution(rows: int, varies: bool, kernels: list[str]) -> Question:
    """Return the question about a convolution of one channel."""
    x, w, y = (
        ([rows, 1, 32, 16], 5, "", varies),
        ([8, 1, 3, 16], 5, "", False),
        ([rows, 8, 30, 1], 5, "", varies),
    )
    attrs = {"strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1], "groups": 1}
    return Question("conv2d", attrs, {"Input": [x], "Filter": [w]}, {"Output": [y]}, kernels)


def measured(*questions: Question, threads: int = 1, within: float = 60.0) -> Timings:
    """Measure within so many seconds of the processor, and ten of a clock for each."""
    return measure(questions, "float32", threads, Limit(within, 10 * within))


class Clocks:
    """A thread's clock and the wall's, which fakes of kernels' calls move by what they take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, others: float = 0.0) -> None:
        """``others`` take so many times as long of the processor as the thread."""
        self.worked, self.passed, self.compiled, self._others = 0.0, 0.0, 0.0, others
        clocks = {"thread_time": lambda: self.worked, "perf_counter": lambda: self.passed}
        monkeypatch.setattr(
            measuring, "time", SimpleNamespace(monotonic=lambda: self.passed, **clocks)
        )
        monkeypatch.setattr(measuring, "compiling_s", lambda: self.compiled)

    def work(self, seconds: float, passed: float | None = None) -> None:
        """Let the thread work, and the clock show more than that."""
        self.worked += seconds
        self.passed += seconds * (1 + self._others) if passed is None else passed

    def compile(self, seconds: float) -> None:
        """Let the thread work on compiling."""
        self.compiled += seconds
        self.work(seconds)


def of_rows(counts: Iterable[int]) -> list[Question]:
    """Return questions that differ by their rows."""
    return [convolution(rows, True, ["onednn", "numpy"]) for rows in counts]


@pytest.mark.parametrize(("others", "answered"), [(0.0, 8), (4.0, 8), (99.0, 2)])
def test_what_others_take_of_the_processor_leaves_few_shapes_unknown(
    others: float, answered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread's own seconds are the limit, and those of a clock ten times as many."""
    clocks = Clocks(monkeypatch, others)
    monkeypatch.setattr(measuring, "bind", lambda *how: [partial(clocks.work, 1e-3)])
    answers = measured(*of_rows(range(1, 9)), within=0.1)
    assert [bool(seconds) for seconds in answers.seconds] == [k < answered for k in range(8)]
    assert answers.measured == answered and answers.worked == pytest.approx(clocks.worked)
    assert answers.worked < 0.1 and answers.compiled == 0.0


def test_compiling_uses_up_no_time_of_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)

    def bind(*how: Any) -> list[Any]:
        clocks.compile(0.05)
        return [partial(clocks.work, 1e-3)]

    monkeypatch.setattr(measuring, "bind", bind)
    answers = measured(*of_rows(range(1, 5)), within=0.1)
    assert answers.measured == 4
    assert answers.compiled == pytest.approx(0.4) and answers.worked < 0.1


def test_each_start_goes_on_where_the_one_before_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a question that takes all the time is answered when its turn comes."""
    clocks = Clocks(monkeypatch)
    monkeypatch.setattr(measuring, "bind", lambda *how: [partial(clocks.work, 0.3)])
    questions = of_rows(range(1, 4))
    for known in range(1, 4):
        answers = measured(*questions, within=0.1)
        assert [bool(seconds) for seconds in answers.seconds] == [k < known for k in range(3)]
        assert answers.measured == 1
        monkeypatch.setattr(measuring, "_known", {})  # another process: the disk has them
    assert measured(*questions, within=0.1).measured == 0


def test_what_is_not_begun_in_time_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    monkeypatch.setattr(measuring, "bind", lambda *how: [partial(clocks.work, 0.013)])
    answers = measured(*of_rows(range(1, 4)), within=0.1)
    assert [bool(seconds) for seconds in answers.seconds] == [True, False, False]
    assert answers.worked == pytest.approx(8 * 0.013), "no kernel is begun beyond the limit"


def test_a_first_call_that_finds_everything_new_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, count = Clocks(monkeypatch), Counter[str]()

    def call(name: str) -> None:
        count[name] += 1
        clocks.work(0.02 if name == "winograd" and count[name] == 1 else 1e-3)

    monkeypatch.setattr(measuring, "bind", lambda *how: [partial(call, how[-1])])
    (seconds,) = measured(convolution(2, True, ["onednn", "winograd"])).seconds
    assert seconds == pytest.approx({"onednn": 1e-3, "winograd": 1e-3})


def operand(*shape: int) -> Any:
    """Return an array of float32 as a question has it."""
    return list(shape), 5, "", False


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "multiply_adds"),
    [
        *(
            (
                "conv2d",
                {"Input": (2, 8, 9, 9), "Filter": (6, 8 // groups, 3, 3)},
                {"Output": (2, 6, 4, 4)},
                {"groups": groups},
                2 * 6 * 16 * 9 * 8 // groups,
            )
            for groups in (1, 2)
        ),
        (
            "conv2d_grad",
            {"Input": (2, 8, 9, 9), "Filter": (6, 8, 3, 3), "Output@GRAD": (2, 6, 4, 4)},
            {"Filter@GRAD": (6, 8, 3, 3)},
            {},
            2 * 6 * 16 * 9 * 8,
        ),
        (
            "conv2d_transpose",
            {"Input": (2, 8, 4, 4), "Filter": (8, 6, 3, 3)},
            {"Output": (2, 6, 9, 9)},
            {},
            2 * 6 * 16 * 9 * 8,
        ),
        ("mul", {"X": (7, 5), "Y": (5, 3)}, {"Out": (7, 3)}, {}, 105),
        (
            "mul_grad",
            {"X": (7, 5), "Y": (5, 3), "Out@GRAD": (7, 3)},
            {"X@GRAD": (7, 5), "Y@GRAD": (5, 3)},
            {},
            210,
        ),
        ("matmul", {"X": (4, 7, 5), "Y": (4, 5, 3)}, {"Out": (4, 7, 3)}, {}, 420),
        ("matmul", {"X": (4, 7, 5), "Y": (5, 3)}, {"Out": (4, 7, 3)}, {}, 420),
        ("pool2d", {"X": (2, 8, 9, 9)}, {"Out": (2, 8, 4, 4)}, {}, 0),
    ],
)
def test_the_work_of_a_question_is_that_of_its_products(
    op: str, inputs: Any, outputs: Any, attrs: Any, multiply_adds: int
) -> None:
    slots = [{s: [operand(*shape)] for s, shape in side.items()} for side in (inputs, outputs)]
    question = Question(op, attrs, *slots, ["onednn", "numpy"])
    assert question.multiply_adds == pytest.approx(multiply_adds)


def test_products_weigh_more_than_what_moves_as_much_memory() -> None:
    images = {"X": [operand(32, 64, 32, 32)], "Out@GRAD": [operand(32, 64, 16, 16)]}
    pool = Question("pool2d_grad", {}, images, {"X@GRAD": [operand(32, 64, 32, 32)]}, [])
    images = {"Input": [operand(32, 64, 32, 32)], "Filter": [operand(64, 64, 3, 3)]}
    convolution = Question("conv2d", {}, images, {"Output": [operand(32, 64, 32, 32)]}, [])
    assert convolution.work > 3 * pool.work > 0


def test_what_takes_long_to_measure_comes_after_what_is_as_large_a_part_of_a_step() -> None:
    """Of large filters as many rows are computed as weigh as much."""

    def of(channels: int, side: int) -> Question:
        image = [32, channels, side, side], 5, "", True
        slots = {"Input": [image], "Filter": [operand(channels, channels, 3, 3)]}
        return Question("conv2d", {}, slots, {"Output": [image]}, ["onednn", "winograd"])

    shallow, deep = of(64, 32), of(512, 4)
    assert shallow.work == deep.work
    assert shallow.sample < deep.sample == 32 and shallow.cost < deep.cost / 3


def test_times_are_those_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_WORK", 5e5)  # whatever takes time is measured on few rows
    taken: list[int] = []
    trial = measuring._Trial

    def noted(question: Question, rows: int, *how: Any) -> Any:
        taken.append(rows)
        return trial(question, rows, *how)

    monkeypatch.setattr(measuring, "_Trial", noted)
    question = convolution(320, True, ["onednn", "numpy"])
    answers = measured(question, threads=0)
    (seconds,) = answers.seconds
    assert answers.measured == 1 and set(seconds) == {"onednn", "numpy"} and taken == [43]
    taken.clear()
    measured(convolution(320, False, ["onednn", "numpy"]), threads=0)
    assert taken == [1], "what has no batch is measured whole"


def test_large_filters_are_measured_on_as_many_rows_as_weigh_as_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []

    class Trial:
        def __init__(self, question: Question, rows: int, *how: Any) -> None:
            taken.append(rows)

        def begin(self, kernel: str) -> None:
            pass

        def repeated(self) -> dict[str, float]:
            return {}

    monkeypatch.setattr(measuring, "_Trial", Trial)
    for size, rows in ((4, 32), (8, 18), (16, 3)):
        channels = 2048 // size
        x, w = ([32, channels, size, size], 5, "", True), ([channels] * 2 + [3, 3], 5, "", False)
        question = Question("conv2d", {}, {"Input": [x], "Filter": [w]}, {"Output": [x]}, ["numpy"])
        measured(question)
        assert taken.pop() == rows
        taken.clear()


@pytest.mark.parametrize(("threads", "chosen"), [(1, "onednn"), (2, "numpy")])
def test_a_core_that_others_took_is_not_held_against_a_kernel(
    threads: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    calls = {
        "onednn": partial(clocks.work, 1e-4, 0.05),
        "numpy": partial(clocks.work, 2e-3, 2e-3),
    }
    monkeypatch.setattr(measuring, "bind", lambda *how: [calls[how[-1]]])
    question = convolution(2, True, ["onednn", "numpy"])
    (seconds,) = measured(question, threads=threads).seconds
    assert min(seconds, key=lambda name: seconds[name]) == chosen, seconds


def test_a_kernel_that_cannot_compute_it_after_all_is_left_out() -> None:
    question = convolution(2, True, ["onednn", "numpy"])
    odd = question._replace(attrs={**question.attrs, "groups": 3})
    (seconds,) = measured(odd, threads=0).seconds
    assert seconds == {} and fastest(odd.kernels, seconds) == "onednn"


def test_only_what_is_clearly_faster_replaces_what_comes_before_it() -> None:
    names = ["onednn", "windows", "numpy"]
    assert fastest(names, {"onednn": 1.0, "windows": 2.0, "numpy": 0.95}) == "onednn"
    assert fastest(names, {"onednn": 1.0, "windows": 0.55, "numpy": 0.5}) == "windows"
    assert fastest(names, {"onednn": 1.0, "windows": 0.6, "numpy": 0.5}) == "numpy"
    assert fastest(names, {"numpy": 0.5}) == "onednn", "what was not timed cannot be compared"


def test_calls_are_spent_on_kernels_that_are_near_the_fastest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, count = Clocks(monkeypatch), Counter[str]()
    seconds = {"onednn": 0.003, "windows": 0.0025, "blocked": 0.0055, "numpy": 0.2}

    def call(name: str) -> None:
        count[name] += 1
        # The first of all has new memory and instructions
        cold = 0.06 if name == "onednn" else 2e-3
        clocks.work(seconds[name] + (cold if count[name] == 1 else 0.0))

    monkeypatch.setattr(measuring, "bind", lambda *how: [partial(call, how[-1])])
    question = convolution(2, True, list(seconds))
    (times,) = measured(question).seconds
    assert times["windows"] == pytest.approx(0.0025) and times["onednn"] == pytest.approx(0.003)
    assert count["numpy"] == 1 and count["blocked"] == 2, "far from the fastest"
    assert count["windows"] == count["onednn"] > 2, "not yet clear"
    seconds["onednn"] = 0.002
    monkeypatch.setattr(measuring, "_known", {})
    count.clear()
    measured(question._replace(kernels=["onednn", "windows"]))
    assert count == {"onednn": 3, "windows": 3}, "the first is the fastest: nothing replaces it"


def test_a_few_slow_calls_do_not_replace_the_kernel_of_the_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond what is clearly slower a kernel is called again, until it is far beyond."""
    clocks, count = Clocks(monkeypatch), Counter[str]()

    def call(name: str) -> None:
        count[name] += 1
        disturbed = name == "onednn" and count[name] <= 4
        clocks.work(2e-3 * (1.3 if disturbed else 1.0))

    monkeypatch.setattr(measuring, "bind", lambda *how: [partial(call, how[-1])])
    question = convolution(2, True, ["onednn", "windows"])
    (times,) = measured(question).seconds
    assert fastest(question.kernels, times) == "onednn", times
