"""Kernels are chosen by what one replica measured; all replicas run the choice, and it is measured once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
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
from rowlock.executor.kernels.measure import Question, fastest, measure
from rowlock.executor.kernels.onednn.library import library

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
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    layers = fluid.layers
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words = layers.data("words", [LENGTH], dtype="int64")
        label = layers.data("label", [1], dtype="int64")
        scores = layers.fc(net(words), 4)
        loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
        fluid.optimizer.SGD(0.1).minimize(loss)
    build = fluid.BuildStrategy()
    for name, value in switches.items():
        setattr(build, name, value)
    rng = np.random.default_rng(3)
    exe = fluid.Executor(fluid.CPUPlace())
    with rowlock.cluster(launcher=launcher), fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=loss.name, build_strategy=build, places=fluid.cpu_places(places)
        )
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
    monkeypatch.setattr(choice, "WITHIN_S", 100.0)  # enough for all of it on a busy host, too
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


def test_times_are_those_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_WORK", 1e5)  # whatever takes time is measured on few rows
    taken: list[int] = []
    trial = measuring._Trial

    def noted(question: Question, rows: int, *how: Any) -> Any:
        taken.append(rows)
        return trial(question, rows, *how)

    monkeypatch.setattr(measuring, "_Trial", noted)
    question = convolution(320, True, ["onednn", "numpy"])
    (seconds,), count = measure([question], "float32", 10.0, 0)
    assert count == 1 and set(seconds) == {"onednn", "numpy"} and taken == [14]
    taken.clear()
    measure([convolution(320, False, ["onednn", "numpy"])], "float32", 10.0, 0)
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
        measure([question], "float32", 10.0, 1)
        assert taken.pop() == rows
        taken.clear()


@pytest.mark.parametrize(("threads", "chosen"), [(1, "onednn"), (2, "numpy")])
def test_a_core_that_others_took_is_not_held_against_a_kernel(
    threads: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, worked = [0.0], [0.0]

    def call(seconds: float, work: float) -> None:
        passed[0] += seconds
        worked[0] += work

    clocks = {"perf_counter": lambda: passed[0], "process_time": lambda: worked[0]}
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=time.monotonic, **clocks))
    calls = {"onednn": partial(call, 0.05, 1e-4), "numpy": partial(call, 2e-3, 2e-3)}
    monkeypatch.setattr(measuring, "bind", lambda *how: [calls[how[-1]]])
    question = convolution(2, True, ["onednn", "numpy"])
    (seconds,), _ = measure([question], "float32", 10.0, threads)
    assert min(seconds, key=lambda name: seconds[name]) == chosen, seconds


def test_a_kernel_that_cannot_compute_it_after_all_is_left_out() -> None:
    question = convolution(2, True, ["onednn", "numpy"])
    odd = question._replace(attrs={**question.attrs, "groups": 3})
    (seconds,), _ = measure([odd], "float32", 10.0, 0)
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
    now, count = [0.0], Counter[str]()
    seconds = {"onednn": 0.003, "windows": 0.0025, "blocked": 0.0055, "numpy": 0.2}

    def call(name: str) -> None:
        count[name] += 1
        cold = (
            0.06 if name == "onednn" else 2e-3
        )  # the first of all has new memory and instructions
        now[0] += seconds[name] + (cold if count[name] == 1 else 0.0)

    clock = SimpleNamespace(monotonic=time.monotonic, process_time=lambda: now[0])
    monkeypatch.setattr(measuring, "time", clock)
    monkeypatch.setattr(measuring, "bind", lambda *how: [partial(call, how[-1])])
    question = convolution(2, True, list(seconds))
    ((times,), _) = measure([question], "float32", 10.0, 1)
    assert times["windows"] == pytest.approx(0.0025) and times["onednn"] == pytest.approx(0.003)
    assert count["numpy"] == 1 and count["blocked"] == 2, "far from the fastest"
    assert count["windows"] == count["onednn"] > 2, "not yet clear"
    seconds["onednn"], now[0] = 0.002, 0.0
    monkeypatch.setattr(measuring, "_known", {})
    count.clear()
    measure([question._replace(kernels=["onednn", "windows"])], "float32", 10.0, 1)
    assert count == {"onednn": 3, "windows": 3}, "the first is the fastest: nothing replaces it"


def test_a_few_slow_calls_do_not_replace_the_kernel_of_the_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond what is clearly slower a kernel is called again, until it is far beyond."""
    now, count = [0.0], Counter[str]()

    def call(name: str) -> None:
        count[name] += 1
        disturbed = name == "onednn" and count[name] <= 4
        now[0] += 2e-3 * (1.3 if disturbed else 1.0)

    clock = SimpleNamespace(monotonic=time.monotonic, process_time=lambda: now[0])
    monkeypatch.setattr(measuring, "time", clock)
    monkeypatch.setattr(measuring, "bind", lambda *how: [partial(call, how[-1])])
    question = convolution(2, True, ["onednn", "windows"])
    ((times,), _) = measure([question], "float32", 10.0, 1)
    assert fastest(question.kernels, times) == "onednn", times
