"""Measures of a model's answers."""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import INTEGERS, VarType
from .registry import Inference, Op, Spec, Specs, define
from .rules import merge_dims
from .samples import integers, normal, sample


def accuracy_shape(op: Inference) -> Mapping[str, Specs]:
    """One row of best guesses (Out, Indices) for each label."""
    indices, label = op.shape("Indices"), op.shape("Label")
    op.require(len(indices) == 2, "Indices must be a matrix: the best guesses of each sample")
    op.require(op.spec("Label").dtype in INTEGERS, "labels must be integers")
    fits = (
        len(label) == 2 and merge_dims(label[1], 1) and merge_dims(indices[0], label[0]) is not None
    )
    op.require(bool(fits), "Label must have shape [samples, 1]")
    return {
        "Accuracy": Spec((1,), VarType.FP32),
        "Correct": Spec((1,), VarType.INT32),
        "Total": Spec((1,), VarType.INT32),
    }


define(
    Op(
        type="accuracy",
        inputs=("Out", "Indices", "Label"),
        outputs=("Accuracy", "Correct", "Total"),
        shape=accuracy_shape,
        samples=(
            sample(
                {
                    "Out": normal(6, 2),
                    "Indices": integers(6, 2, high=4),
                    "Label": integers(6, 1, high=4),
                }
            ),
        ),
        refuses=(
            sample(
                {
                    "Out": normal(6, 2),
                    "Indices": integers(6, 2, high=4),
                    "Label": integers(5, 1, high=4),
                }
            ),
        ),
    )
)
