"""Metrics that the driver accumulates over batches from fetched arrays."""

from __future__ import annotations

import copy
import numbers
from typing import Any

import numpy as np

from ...strategies.errors import InvalidState, InvalidValue


class MetricBase:
    """A metric with a name; attributes without a leading underscore are its state."""

    def __init__(self, name: str | None) -> None:
        self._name = name if name is not None else type(self).__name__

    def __str__(self) -> str:
        return self._name

    def _state(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if not key.startswith("_")}

    def reset(self) -> None:
        """Set every number and array of the state to zero."""
        for key, value in self._state().items():
            if isinstance(value, (int, float, np.ndarray, np.generic)):
                setattr(self, key, value * 0 if isinstance(value, np.ndarray) else type(value)(0))
            else:
                setattr(self, key, None)

    def get_config(self) -> dict[str, Any]:
        """Return the name and a copy of the state."""
        return {"name": self._name, "states": copy.deepcopy(self._state())}

    def update(self, preds: Any, labels: Any) -> None:
        """Take a batch in. Every metric has its own."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it takes a batch in.")

    def eval(self) -> Any:
        """Return the metric over all batches. Every metric has its own."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is computed.")

    def _arrays(self, **arrays: Any) -> None:
        for argument, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise InvalidValue(
                    f"{self._name}: {argument} must be a NumPy array, got {type(array).__name__}."
                )

    def _numbers(self, **values: Any) -> None:
        for argument, value in values.items():
            single = isinstance(value, np.ndarray) and value.size == 1
            if not single and not isinstance(value, numbers.Real):
                raise InvalidValue(
                    f"{self._name}: {argument} must be a number, got {type(value).__name__}."
                )


def _item(value: Any) -> Any:
    """Return an array of one element as a number, other values as they are."""
    return value.item() if isinstance(value, np.ndarray) else value


def share(part: float, whole: float) -> float:
    """Return a part of a whole; 0 of nothing."""
    return part / whole if whole else 0.0


def chunk_measures(inferred: float, labelled: float, right: float) -> tuple[float, float, float]:
    """Return precision, recall and F1 of so many chunks."""
    precision, recall = share(right, inferred), share(right, labelled)
    return precision, recall, share(2 * precision * recall, precision + recall)


class CompositeMetric(MetricBase):
    """Several metrics of the same predictions and labels."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[MetricBase] = []

    def add_metric(self, metric: MetricBase) -> None:
        """Add a metric.

        Raises:
            InvalidValue: it is no metric.
        """
        if not isinstance(metric, MetricBase):
            raise InvalidValue(f"{self._name}: {metric!r} is no MetricBase.")
        self._metrics.append(metric)

    def update(self, preds: Any, labels: Any) -> None:
        """Give a batch to every metric."""
        for metric in self._metrics:
            metric.update(preds, labels)

    def reset(self) -> None:
        """Reset every metric."""
        for metric in self._metrics:
            metric.reset()

    def eval(self) -> list[Any]:
        """Return the value of every metric, in the order in which they were added."""
        return [metric.eval() for metric in self._metrics]


class _Binary(MetricBase):
    """Counts of predictions rounded to 0 or 1 ([batch, 1] in [0, 1]) against labels [batch, 1]."""

    def _count(self, preds: Any, labels: Any) -> tuple[int, int, int]:
        """Return how many positives are right, wrong, and missed."""
        self._arrays(preds=preds, labels=labels)
        predicted = np.rint(preds).astype(np.int64).reshape(-1) == 1
        positive = labels.astype(np.int64).reshape(-1) == 1
        if predicted.size != positive.size:
            raise InvalidValue(
                f"{self._name}: {predicted.size} predictions do not fit {positive.size} labels."
            )
        return (
            int((predicted & positive).sum()),
            int((predicted & ~positive).sum()),
            int((~predicted & positive).sum()),
        )


class Precision(_Binary):
    """The share of predicted positives that are positive."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp, self.fp = 0, 0

    def update(self, preds: np.ndarray, labels: np.ndarray) -> None:
        """Count a batch: predictions in [0, 1] and labels 0 or 1, both [batch, 1]."""
        right, wrong, _ = self._count(preds, labels)
        self.tp, self.fp = self.tp + right, self.fp + wrong

    def eval(self) -> float:
        """Return the precision, 0 without a predicted positive."""
        return share(self.tp, self.tp + self.fp)


class Recall(_Binary):
    """The share of positives that are predicted positive."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp, self.fn = 0, 0

    def update(self, preds: np.ndarray, labels: np.ndarray) -> None:
        """Count a batch: predictions in [0, 1] and labels 0 or 1, both [batch, 1]."""
        right, _, missed = self._count(preds, labels)
        self.tp, self.fn = self.tp + right, self.fn + missed

    def eval(self) -> float:
        """Return the recall, 0 without a positive."""
        return share(self.tp, self.tp + self.fn)


class Accuracy(MetricBase):
    """The mean of batches' accuracies, weighted by their sizes."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.value, self.weight = 0.0, 0.0

    def update(self, value: Any, weight: float) -> None:  # Paddle's own parameters
        """Take a batch's accuracy in; ``weight`` is the batch's size.

        Raises:
            InvalidValue: not numbers, or a negative weight.
        """
        self._numbers(value=value, weight=weight)
        if _item(weight) < 0:
            raise InvalidValue(f"{self._name}: weight must not be negative, got {weight}.")
        self.value += _item(value) * _item(weight)
        self.weight += _item(weight)

    def eval(self) -> float:
        """Return the mean.

        Raises:
            InvalidState: no batch was taken in.
        """
        if self.weight == 0:
            raise InvalidState(f"{self._name}: update() took no batch in, so there is no mean.")
        return self.value / self.weight


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks, from counts."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks, self.num_label_chunks, self.num_correct_chunks = 0, 0, 0

    def update(  # type: ignore[override]  # Paddle's own parameters
        self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any
    ) -> None:
        """Take a batch's counts in: chunks predicted, labelled, and both."""
        self._numbers(
            num_infer_chunks=num_infer_chunks,
            num_label_chunks=num_label_chunks,
            num_correct_chunks=num_correct_chunks,
        )
        self.num_infer_chunks += int(_item(num_infer_chunks))
        self.num_label_chunks += int(_item(num_label_chunks))
        self.num_correct_chunks += int(_item(num_correct_chunks))

    def eval(self) -> tuple[float, float, float]:
        """Return precision, recall and F1."""
        return chunk_measures(self.num_infer_chunks, self.num_label_chunks, self.num_correct_chunks)


class EditDistance(MetricBase):
    """The mean edit distance of pairs of sequences, and the share of pairs that differ."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.total_distance, self.seq_num, self.instance_error = 0.0, 0, 0

    def update(self, distances: np.ndarray, seq_num: Any) -> None:  # Paddle's own
        """Take a batch in: ``distances`` [batch, 1] of ``seq_num`` pairs."""
        self._arrays(distances=distances)
        self._numbers(seq_num=seq_num)
        pairs = int(_item(seq_num))
        self.seq_num += pairs
        self.instance_error += pairs - int((distances == 0).sum())
        self.total_distance += float(distances.sum())

    def eval(self) -> tuple[float, float]:
        """Return the mean distance, and the share of pairs that differ.

        Raises:
            InvalidState: no batch was taken in.
        """
        if self.seq_num == 0:
            raise InvalidState(f"{self._name}: update() took no pair in, so there is no mean.")
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


class Auc(MetricBase):
    """The area under the ROC curve, from predictions counted in ``num_thresholds + 1`` bins."""

    def __init__(self, name: str | None, curve: str = "ROC", num_thresholds: int = 4095) -> None:
        super().__init__(name)
        if curve != "ROC":
            raise InvalidValue(f"{self._name}: curve must be 'ROC', got {curve!r}.")
        self._num_thresholds = num_thresholds
        self._positives = np.zeros(num_thresholds + 1)
        self._negatives = np.zeros(num_thresholds + 1)

    def reset(self) -> None:
        """Set all counts to zero."""
        self._positives[:] = 0
        self._negatives[:] = 0

    def update(self, preds: np.ndarray, labels: np.ndarray) -> None:
        """Count a batch: ``preds`` [batch, 2], the second of a row the probability of label 1.

        Raises:
            InvalidValue: not arrays, or a probability outside [0, 1].
        """
        self._arrays(preds=preds, labels=labels)
        scores = np.asarray(preds[:, 1], np.float64)
        if scores.size and not (scores.min() >= 0 and scores.max() <= 1):
            raise InvalidValue(f"{self._name}: preds must be probabilities in [0, 1].")
        bins = (scores * self._num_thresholds).astype(np.int64)
        positive = labels.reshape(-1).astype(bool)
        size = self._num_thresholds + 1
        self._positives += np.bincount(bins[positive], minlength=size)
        self._negatives += np.bincount(bins[~positive], minlength=size)

    def eval(self) -> float:
        """Return the area by trapezoids; 0 without both a positive and a negative."""
        # From the highest threshold down: how many positives and negatives lie above it.
        hits = np.concatenate([[0.0], np.cumsum(self._positives[::-1])])
        alarms = np.concatenate([[0.0], np.cumsum(self._negatives[::-1])])
        if not hits[-1] or not alarms[-1]:
            return 0.0
        area = (np.diff(alarms) * (hits[1:] + hits[:-1]) / 2).sum()
        return float(area / hits[-1] / alarms[-1])


class WeightedAverage:
    """The weighted mean of numbers or arrays."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set the counts back to zero."""
        self.numerator: Any = None
        self.denominator: Any = None

    def add(self, value: Any, weight: Any) -> None:
        """Add a number or an array with a weight.

        Raises:
            InvalidValue: not numbers.
        """
        if not isinstance(value, (numbers.Real, np.ndarray)):
            raise InvalidValue(
                f"WeightedAverage: value must be a number or an array, got {value!r}."
            )
        if not isinstance(weight, numbers.Real):
            raise InvalidValue(f"WeightedAverage: weight must be a number, got {weight!r}.")
        if self.numerator is None:
            self.numerator, self.denominator = value * weight, weight
        else:
            self.numerator = self.numerator + value * weight
            self.denominator += weight

    def eval(self) -> Any:
        """Return the mean.

        Raises:
            InvalidState: nothing was added.
        """
        if self.numerator is None:
            raise InvalidState("WeightedAverage: nothing was added, so there is no mean.")
        return self.numerator / self.denominator
