"""Metrics of Paddle 2.x: the program computes values of a batch (``compute``), the driver adds them up."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.layers.binary import equal
from ...graph.layers.shape import cast, reshape, topk
from ...graph.program.variable import Variable
from ...strategies.errors import InvalidValue
from .metrics import Auc as _AreaUnderCurve
from .metrics import share


class Metric(abc.ABC):
    """A measure over batches: ``update`` takes a batch in, ``accumulate`` returns the value so far."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget all batches."""

    @abc.abstractmethod
    def update(self, *args: Any) -> Any:
        """Add the results of :meth:`compute` for a batch."""

    @abc.abstractmethod
    def accumulate(self) -> Any:
        """Return the measure over all batches."""

    @abc.abstractmethod
    def name(self) -> Any:
        """Return the metric's name."""

    def compute(self, *args: Any) -> Any:
        """Return the variables that the program computes for :meth:`update`: by default the arguments."""
        return args


class Accuracy(Metric):
    """The share of samples whose label is among the k best scored, for each k of ``topk``."""

    def __init__(self, topk: Sequence[int] = (1,), name: str | None = None) -> None:
        self.topk, self.maxk = topk, max(topk)
        base = name or "acc"
        self._name = [f"{base}_top{k}" for k in topk] if self.maxk != 1 else [base]
        self.reset()

    def compute(self, pred: Variable, label: Variable, *args: Any) -> Variable:
        """Append ops that compute by sample and rank whether that guess is right: 1 or 0.

        Labels are classes, of shape [samples] or [samples, 1], or one-hot.
        """
        guesses = topk(pred, self.maxk)[1]
        shape = label.shape or ()
        by_class = len(shape) == 1 or shape[-1] == 1
        classes = reshape(label, [-1, 1]) if by_class else topk(label, 1)[1]
        return cast(equal(guesses, cast(classes, "int64")), "float32")

    def update(self, correct: Any, *args: Any) -> Any:  # Paddle's own
        """Add the results of ``compute``; return the accuracy of this batch."""
        correct = np.asarray(correct)
        samples = int(np.prod(correct.shape[:-1]))
        accuracies = []
        for i, k in enumerate(self.topk):
            hits = correct[..., :k].sum()
            accuracies.append(float(hits) / samples)
            self.total[i] += hits
            self.count[i] += samples
        return accuracies[0] if len(self.topk) == 1 else accuracies

    def reset(self) -> None:
        self.total = [0.0] * len(self.topk)
        self.count = [0] * len(self.topk)

    def accumulate(self) -> Any:
        """Return the accuracy over all batches, or a list of them, one for each k."""
        pairs = zip(self.total, self.count, strict=True)
        accuracies = [float(total) / count if count else 0.0 for total, count in pairs]
        return accuracies[0] if len(self.topk) == 1 else accuracies

    def name(self) -> list[str]:
        """Return a name for each k."""
        return self._name


class _Binary(Metric):
    """Counts of right and wrong binary predictions; a probability of a half and more predicts 1."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.reset()

    def reset(self) -> None:
        self.tp = self.fp = self.fn = 0

    def update(self, preds: Any, labels: Any) -> None:  # Paddle's own
        """Take in the probabilities that labels are 1, and the labels.

        Raises:
            InvalidValue: an argument is no array.
        """
        predicted, actual = (
            _array(type(self).__name__, a, v).reshape(-1)
            for a, v in (("preds", preds), ("labels", labels))
        )
        predicted = np.floor(predicted[: len(actual)] + 0.5).astype(np.int32) == 1
        self.tp += int((predicted & (actual == 1)).sum())
        self.fp += int((predicted & (actual != 1)).sum())
        self.fn += int((~predicted & (actual == 1)).sum())

    def name(self) -> str:
        return self._name


class Precision(_Binary):
    """Of the samples that are taken to be 1, the share that is."""

    def __init__(self, name: str = "precision") -> None:
        super().__init__(name)

    def accumulate(self) -> float:
        return share(self.tp, self.tp + self.fp)


class Recall(_Binary):
    """Of the samples that are 1, the share that is predicted as 1."""

    def __init__(self, name: str = "recall") -> None:
        super().__init__(name)

    def accumulate(self) -> float:
        return share(self.tp, self.tp + self.fn)


class Auc(Metric):
    """The area under the ROC curve, from counts by threshold."""

    def __init__(self, curve: str = "ROC", num_thresholds: int = 4095, name: str = "auc") -> None:
        self._counts = _AreaUnderCurve(name, curve, num_thresholds)
        self._name = name

    def update(self, preds: Any, labels: Any) -> None:  # Paddle's own
        """Take in two columns of probabilities, of which the second counts, and the labels.

        Raises:
            InvalidValue: an argument is no array.
        """
        preds, labels = _array("Auc", "preds", preds), _array("Auc", "labels", labels)
        self._counts.update(preds, labels.reshape(-1, 1))

    def reset(self) -> None:
        self._counts.reset()

    def accumulate(self) -> float:
        return float(self._counts.eval())

    def name(self) -> str:
        return self._name


def _array(metric: str, argument: str, value: Any) -> np.ndarray:
    is_tensor = hasattr(value, "numpy") and not isinstance(value, Variable)
    if not isinstance(value, np.ndarray) and not is_tensor:
        raise InvalidValue(
            f"{metric}: {argument} must be a NumPy array or a Tensor, got {type(value).__name__}."
        )
    return np.asarray(value)
