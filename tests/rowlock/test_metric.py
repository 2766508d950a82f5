"""``paddle.metric``, and layers that measure: what Paddle computes of the same batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import rowlock as paddle
import rowlock.fluid as fluid
from rowlock.strategies.errors import ExecutionError
from tests.programs import own_programs
from tests.reference import measures, metrics_2x


def test_accuracy_of_several_ranks_and_kinds_of_labels() -> None:
    rng = np.random.default_rng(3)
    scores = rng.random((6, 4)).astype(np.float32)
    labels = rng.integers(0, 4, (6, 1))
    measure = paddle.metric.Accuracy(topk=(1, 3))
    with own_programs() as (main, _):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1], "int64")
        hot = fluid.data("hot", [None, 4])
        fetches = [measure.compute(x, y), measure.compute(x, hot), paddle.metric.accuracy(x, y, 3)]
    feed = {"x": scores, "y": labels, "hot": np.eye(4, dtype=np.float32)[labels[:, 0]]}
    by_class, by_hot, top3 = fluid.Executor().run(main, feed=feed, fetch_list=fetches)
    order = np.argsort(-scores)[:, :3]
    np.testing.assert_array_equal(by_class, (order == labels).astype(np.float32))
    np.testing.assert_array_equal(by_hot, by_class)
    first, third = by_class[:, 0].mean(), by_class.any(axis=1).mean()
    assert measure.update(by_class) == pytest.approx([first, third])
    measure.update(np.zeros((2, 3), np.float32))
    assert measure.accumulate() == pytest.approx([first * 6 / 8, third * 6 / 8])
    assert float(top3[0]) == pytest.approx(third)
    assert measure.name() == ["acc_top1", "acc_top3"] and paddle.metric.Accuracy().name() == ["acc"]
    measure.reset()
    assert measure.accumulate() == [0.0, 0.0]


def test_precision_recall_and_area() -> None:
    preds = np.array([0.1, 0.5, 0.6, 0.7, 0.4], np.float32)
    labels = np.array([0, 1, 0, 1, 1])
    precision, recall = paddle.metric.Precision(), paddle.metric.Recall()
    for measure in (precision, recall):
        measure.update(preds, labels)
    assert (precision.accumulate(), recall.accumulate()) == pytest.approx((2 / 3, 2 / 3))
    area = paddle.metric.Auc()
    area.update(np.stack([1 - preds, preds], 1), labels.reshape(-1, 1))
    assert area.accumulate() == pytest.approx(4 / 6)
    with pytest.raises(ValueError, match="labels must be a NumPy array"):
        recall.update(preds, [1, 0])
    assert (precision.name(), recall.name(), area.name()) == ("precision", "recall", "auc")


def test_auc_layers_keep_counts_over_steps() -> None:
    with own_programs() as (main, startup):
        p, y = fluid.data("p", [None, 2]), fluid.data("y", [None, 1], "int64")
        total, last_two, states = fluid.layers.auc(p, y, num_thresholds=200, slide_steps=2)
        fluid.layers.auc(p, y, num_thresholds=200, slide_steps=0)
    assert [s.name for s in states] == [f"_generated_var_{i}" for i in range(4)]  # as in Paddle
    sizes = [v.shape for v in main.list_vars() if v.name.startswith("_generated_var")]
    assert sizes == 2 * [(604,)] + 6 * [(1, 201)]  # as Paddle has them after a step
    exe, rng = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(5)
    batches = []
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for _ in range(4):
            preds = rng.random((40, 2)).astype(np.float32)
            labels = (rng.random((40, 1)) + 0.3 * preds[:, 1:] > 0.6).astype(np.int64)
            batches.append((preds, labels))
            values = exe.run(main, feed={"p": preds, "y": labels}, fetch_list=[total, last_two])
            for value, since in zip(values, (0, -2), strict=True):
                by_hand = fluid.metrics.Auc("auc", num_thresholds=200)
                for one in batches[since:]:
                    by_hand.update(*one)
                assert float(value[0]) == pytest.approx(by_hand.eval(), rel=1e-12)
    with pytest.raises(TypeError, match="label must be a Variable of integers"):
        fluid.layers.auc(p, p)


MEASURES = json.loads((Path(__file__).parents[1] / "reference/measures.json").read_text())


@pytest.mark.parametrize("name", MEASURES["steps"])
def test_measures_of_steps_are_paddles(name: str) -> None:
    for step, numbers in zip(measures.measured(fluid, name), MEASURES["steps"][name], strict=True):
        for value, expected in zip(step, numbers, strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-7)


def test_one_variable_may_hold_the_counts_of_all_steps() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        one = fluid.layers.fill_constant([1, 1], "int32", 1)
        states = measures.state(fluid, "states", [2, 4])
        block = main.global_block()
        outs = {s: block.create_var(name=s) for s in ("BatchMetrics", "AccumMetrics")}
        block.append_op(
            type="precision_recall",
            inputs={
                "MaxProbs": fluid.layers.ones([1, 1], "float32"),
                "Indices": one,
                "Labels": one,
                "StatesInfo": states,
            },
            outputs={**outs, "AccumStatesInfo": states},
            attrs={"class_number": 2},
        )
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for step in range(1, 4):
            assert exe.run(main, fetch_list=[states])[0].tolist() == [
                [0, 0, step, 0],
                [step, 0, 0, 0],
            ]


def test_classes_out_of_range_are_refused() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        guess = fluid.data("guess", [None, 1], "int32")
        block = main.global_block()
        slots = ("BatchMetrics", "AccumMetrics", "AccumStatesInfo")
        block.append_op(
            type="precision_recall",
            inputs={
                "MaxProbs": fluid.layers.cast(guess, "float32"),
                "Indices": guess,
                "Labels": guess,
            },
            outputs={s: block.create_var(name=s) for s in slots},
            attrs={"class_number": 2},
        )
    with pytest.raises(ExecutionError, match="classes lie from 0 to 2, class_number is 2"):
        fluid.Executor(fluid.CPUPlace()).run(
            main, feed={"guess": np.array([[0], [2]], np.int32)}, fetch_list=["AccumMetrics"]
        )


def test_summary_counts_as_paddles() -> None:
    def rows(lines: list[str]) -> list[str]:
        table = [line for line in lines if line.startswith("|")]
        totals = (line.replace(" (", "(") for line in lines if line.startswith("Total"))
        return [*table, *totals]

    assert rows(measures.summary(fluid)) == rows(MEASURES["summary"])


LATER = json.loads((Path(__file__).parents[1] / "reference/metrics_2x.json").read_text())


def test_paddle_metric_gives_the_values_of_paddle_3() -> None:
    results = metrics_2x.results(paddle, paddle.static.Executor(paddle.CPUPlace()))
    assert results.keys() == LATER.keys()
    for name, values in results.items():
        assert json.dumps(values) == json.dumps(LATER[name]), name
