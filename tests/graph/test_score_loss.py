"""Losses of scores in low precision keep their digits, and so do the gradients of sure predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock import static
from rowlock.graph.ir.graph import Graph
from rowlock.graph.ir.reader import from_program
from rowlock.graph.ops.score_loss import SCORE_LOSS
from rowlock.graph.passes.target import Target
from rowlock.graph.pipeline import run_pipeline
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.types import VarType
from tests.ops.gpu import needs_compiler
from tests.programs import own_programs

L = fluid.layers
CLASSES = 4
WRONG = np.float32([[10.0625, 0, 0.5, 0], [0, 9.75, 0.25, 0]])[:, [1, 0, 2, 3]]  # losses near 10
SURE = np.float32([[8, 0, 0, 0], [0, 8, 0, 0]])  # a probability of 0.99899


def program(level: str, dtype: str = "bfloat16", **more: Any) -> tuple[Any, Any, Any, Any]:
    """Return scores that are what is fed, and their loss, trained."""
    with own_programs() as (main, startup):
        x, label = fluid.data("x", [None, CLASSES]), fluid.data("label", [None, 1], "int64")
        same = fluid.initializer.NumpyArrayInitializer(np.eye(CLASSES, dtype="float32"))
        scores = L.fc(x, CLASSES, param_attr=fluid.ParamAttr("w", same), bias_attr=False)
        loss = L.mean(L.softmax_with_cross_entropy(scores, label))
        optimizer = fluid.optimizer.SGD(1.0)
        if level != "O0":
            optimizer = static.amp.decorate(optimizer, level=level, dtype=dtype, **more)
        optimizer.minimize(loss)
    return main, startup, loss, optimizer


def step(
    place: Any, level: str, compiled: bool, fed: np.ndarray = SURE, **more: Any
) -> tuple[Any, np.ndarray]:
    """Return the loss of a step, and how it moved the weights."""
    main, startup, loss, optimizer = program(level, **more)
    exe, scope = fluid.Executor(place), fluid.Scope()
    feed = {"x": fed, "label": np.array([[0], [1]])}
    with fluid.scope_guard(scope), rowlock.cluster(launcher="threads"):
        exe.run(startup)
        if level == "O2":
            optimizer.amp_init(place)
        run = fluid.CompiledProgram(main) if compiled else main
        (cost,) = exe.run(run, feed=feed, fetch_list=[loss])
        name = next(n for n in ("w_fp32_master_0", "w") if scope.find_var(n) is not None)
        weights = np.array(scope.find_var(name).get_tensor()).astype("f4")
    return cost, weights - np.eye(CLASSES, dtype="f4")


def changed(level: str, **more: Any) -> Graph:
    main, _, loss, _ = program(level, **more)
    target = Target(strategy=BuildStrategy(), fetches=(loss.name,))
    return run_pipeline(from_program(main, ["x", "label"]), target)[0]


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("compiled", [False, True])
@needs_compiler
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_sure_prediction_is_still_learned_from(
    level: str, compiled: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWLOCK_SIMULATED_GPUS", "1")
    place = fluid.CPUPlace() if device == "cpu" else fluid.CUDAPlace(0)
    _, exact = step(place, "O0", compiled)
    assert abs(exact[0, 0]) > 0.003
    _, moved = step(place, level, compiled)
    np.testing.assert_allclose(moved, exact, rtol=1e-2, atol=1e-6)


def test_neither_scores_nor_softmax_lie_in_memory_in_single_precision() -> None:
    """At level O1 the loss reads the scores as the product made them."""
    graph = changed("O1")
    ops = [node.op for node in graph.nodes]
    assert ops.count(SCORE_LOSS) == ops.count(f"{SCORE_LOSS}_grad") == 1
    wide = [
        value
        for node in graph.nodes
        for value in node.writes()
        if value.spec.dtype == VarType.FP32 and value.spec.shape[-1:] == (CLASSES,)
        and value.spec.shape[0] == -1
    ]  # fmt: skip
    assert not wide


def test_a_loss_that_is_kept_single_is_single_to_the_end() -> None:
    lists = static.amp.CustomOpLists(custom_black_list={"softmax_with_cross_entropy", "mean"})
    single, moved = step(fluid.CPUPlace(), "O2", True, amp_lists=lists)
    exact, expected = step(fluid.CPUPlace(), "O0", True)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, exact, rtol=1e-5)
    np.testing.assert_allclose(moved, expected, rtol=1e-2, atol=1e-6)
    assert SCORE_LOSS in {node.op for node in changed("O2", amp_lists=lists).nodes}


@needs_compiler
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_loss_of_low_scores_does_not_move_in_steps(
    dtype: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWLOCK_SIMULATED_GPUS", "1")
    place = fluid.CPUPlace() if device == "cpu" else fluid.CUDAPlace(0)
    for compiled in (False, True):
        cost, _ = step(place, "O2", compiled, dtype=dtype, fed=WRONG)
        exact, _ = step(place, "O0", compiled, fed=WRONG)
        assert cost.dtype == np.float32
        np.testing.assert_allclose(cost, exact, rtol=1e-6)


@pytest.mark.parametrize("reduce", [L.mean, L.reduce_mean, L.reduce_sum])
def test_who_else_reads_a_loss_reads_it_rounded(reduce: Any) -> None:
    with own_programs() as (main, _):
        x, label = fluid.data("x", [None, CLASSES]), fluid.data("label", [None, 1], "int64")
        rows = L.softmax_with_cross_entropy(L.fc(x, CLASSES), label)
        loss = reduce(rows)
        both = L.elementwise_add(loss, reduce(L.square(rows)))
        static.amp.decorate(fluid.optimizer.SGD(1.0), level="O2", dtype="bfloat16").minimize(both)
    target = Target(strategy=BuildStrategy(), fetches=(loss.name, both.name))
    graph = run_pipeline(from_program(main, ["x", "label"]), target)[0]
    kinds = {name: graph.fetched(name).spec.dtype for name in (loss.name, rows.name, both.name)}
    assert list(kinds.values()) == [VarType.FP32, VarType.FP32, VarType.BF16]


def test_what_others_read_is_left() -> None:
    graph = changed("O0")
    assert SCORE_LOSS not in {node.op for node in graph.nodes}
