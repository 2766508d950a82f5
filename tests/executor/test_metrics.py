"""Metrics that the driver accumulates, beside what Paddle 1.8.5 gives for the same batches."""

from __future__ import annotations

import numpy as np
import pytest

import rowlock.fluid as fluid


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw three batches of probabilities [n, 1] and labels [n, 1]."""
    rng = np.random.RandomState(3)
    return [(rng.rand(n, 1).astype("float32"), rng.randint(0, 2, (n, 1))) for n in (7, 1, 12)]


def test_binary_metrics_and_their_composite() -> None:
    metric = fluid.metrics.CompositeMetric()
    precision, recall = fluid.metrics.Precision(), fluid.metrics.Recall()
    metric.add_metric(precision)
    metric.add_metric(recall)
    for preds, labels in batches():
        metric.update(preds, labels)
    assert metric.eval() == pytest.approx([0.4, 4 / 9])  # of Paddle 1.8.5
    assert precision.get_config() == {"name": "Precision", "states": {"tp": 4, "fp": 6}}
    metric.reset()
    assert metric.eval() == [0.0, 0.0]
    with pytest.raises(ValueError, match="preds must be a NumPy array, got list"):
        precision.update([1.0], np.ones((1, 1)))  # type: ignore[arg-type]


def test_auc() -> None:
    auc = fluid.metrics.Auc("auc")
    assert auc.eval() == 0.0
    for preds, labels in batches():
        auc.update(np.hstack([1 - preds, preds]), labels)
    assert auc.eval() == pytest.approx(AUC, abs=1e-12)
    auc.reset()
    assert auc.eval() == 0.0
    with pytest.raises(ValueError, match=r"probabilities in \[0, 1\]"):
        auc.update(np.array([[0.0, 1.5]]), np.array([[1]]))


AUC = 0.5252525252525252  # of Paddle 1.8.5


def test_means() -> None:
    accuracy, average = fluid.metrics.Accuracy(), fluid.average.WeightedAverage()
    for empty in (accuracy, average):
        with pytest.raises(RuntimeError, match="no mean"):
            empty.eval()
    for value, weight in ((2.0, 1), (np.array([4.0]), 2)):
        accuracy.update(value, weight)
        average.add(value, weight)
    assert accuracy.eval() == average.eval() == pytest.approx(10 / 3)
    with pytest.raises(ValueError, match="weight must not be negative"):
        accuracy.update(1.0, -1)


def test_chunks_and_edit_distances() -> None:
    chunks, edits = fluid.metrics.ChunkEvaluator(), fluid.metrics.EditDistance("edits")
    chunks.update(np.array([10]), 9, 8)
    chunks.update(3, 4, 2)
    precision, recall = 10 / 13, 10 / 13
    assert chunks.eval() == pytest.approx((precision, recall, 10 / 13))
    edits.update(np.array([[0.0], [2.0], [1.0]]), 3)
    edits.update(np.array([[0.0]]), np.array([1]))
    assert edits.eval() == (0.75, 0.5)
