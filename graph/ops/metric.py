"""Measures of a model's answers."""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import FLOATS, INTEGERS, VarType
from .registry import Inference, Op, Spec, Specs, define
from .rules import merge_dims, product
from .samples import Sample, integers, normal, sample, uniform


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


def auc_shape(op: Inference) -> Mapping[str, Specs]:
    """One label for each row of Predict; the counts of both kinds keep shape and type."""
    predict, label = op.spec("Predict"), op.spec("Label")
    op.require(predict.dtype in FLOATS, "Predict must hold probabilities, which are floating point")
    op.require(len(predict.shape) == 2, "Predict must be a matrix: the last column is what counts")
    op.require(label.dtype in INTEGERS, "labels must be integers")
    op.require(
        bool(label.shape) and merge_dims(predict.shape[0], label.shape[0]) is not None,
        "Label must have one element for each row of Predict",
    )
    buckets, steps = op.attr("num_thresholds") + 1, op.attr("slide_steps")
    size = (1 + steps) * buckets + 1 if steps else buckets
    for slot in ("StatPos", "StatNeg"):
        op.require(
            product(op.shape(slot)) == size and op.spec(slot).dtype == VarType.INT64,
            f"{slot} must hold {size} numbers of int64",
        )
    return {
        "AUC": Spec((1,), VarType.FP64),
        "StatPosOut": op.spec("StatPos"),
        "StatNegOut": op.spec("StatNeg"),
    }


def _auc_sample(steps: int) -> Sample:
    size = (1 + steps) * 8 + 1 if steps else 8
    counts = integers(size, high=1)
    operands = {"Predict": uniform(9, 2), "Label": integers(9, 1, high=2)}
    return sample(
        {**operands, "StatPos": counts, "StatNeg": counts}, num_thresholds=7, slide_steps=steps
    )


define(
    Op(
        type="auc",
        inputs=("Predict", "Label", "StatPos", "StatNeg"),
        outputs=("AUC", "StatPosOut", "StatNegOut"),
        attrs={"curve": "ROC", "num_thresholds": 2**13 - 1, "slide_steps": 1},
        shape=auc_shape,
        in_place={"StatPosOut": "StatPos", "StatNegOut": "StatNeg"},
        samples=(_auc_sample(0), _auc_sample(1), _auc_sample(3)),
        refuses=(
            sample(
                {
                    "Predict": uniform(4, 2),
                    "Label": integers(4, 1, high=2),
                    "StatPos": integers(5, high=1),
                    "StatNeg": integers(5, high=1),
                },
                num_thresholds=7,
                slide_steps=0,
            ),
        ),
    )
)


def mean_iou_shape(op: Inference) -> Mapping[str, Specs]:
    """Labels and predictions of one shape; two counts for each class."""
    predictions, labels = op.spec("Predictions"), op.spec("Labels")
    for spec in (predictions, labels):
        op.require(spec.dtype in INTEGERS, "predictions and labels must be integers")
    op.require(
        len(predictions.shape) == len(labels.shape)
        and all(
            merge_dims(p, q) is not None
            for p, q in zip(predictions.shape, labels.shape, strict=True)
        ),
        "predictions and labels must have one shape",
    )
    counts = Spec((op.attr("num_classes"),), VarType.INT32)
    op.require(op.attr("num_classes") > 0, "num_classes must be positive")
    return {"OutMeanIou": Spec((1,), VarType.FP32), "OutWrong": counts, "OutCorrect": counts}


define(
    Op(
        type="mean_iou",
        inputs=("Predictions", "Labels"),
        outputs=("OutMeanIou", "OutWrong", "OutCorrect"),
        attrs={"num_classes": 0},
        shape=mean_iou_shape,
        samples=(
            sample(
                {"Predictions": integers(5, 4, high=3), "Labels": integers(5, 4, high=3)},
                num_classes=5,
            ),
        ),
        refuses=(
            sample(
                {"Predictions": integers(5, 4, high=3), "Labels": integers(5, 3, high=3)},
                num_classes=5,
            ),
        ),
    )
)
