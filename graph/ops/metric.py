"""Measures of a model's answers."""

from __future__ import annotations

from .operands import Input, Inputs, Operands, Output, Positive, named
from .registry import define
from .samples import Sample, sample, uniform
from .shapes import Sized


class Accuracy(Operands):
    out: Input
    indices: Input
    label: Input
    accuracy: Output
    correct: Output
    total: Output


define(
    "accuracy",
    Accuracy,
    Sized(
        "Indices [N K], Label integers [N 1] -> Accuracy float32 [1], Correct int32 [1], Total int32 [1]"
    ),
    samples=(sample("Out [6 2], Indices 0:4 [6 2], Label 0:4 [6 1]"),),
)


def _auc_sample(steps: int) -> Sample:
    size = (1 + steps) * 8 + 1 if steps else 8
    return sample(
        f"Predict uniform [9 2], Label 0:2 [9 1], StatPos 0:1 [{size}], StatNeg 0:1 [{size}]",
        num_thresholds=7,
        slide_steps=steps,
    )


class Auc(Operands):
    predict: Input
    label: Input
    stat_pos: Input
    stat_neg: Input
    auc: Output = named("AUC")
    stat_pos_out: Output
    stat_neg_out: Output
    curve: str = "ROC"
    num_thresholds: int = 2**13 - 1
    slide_steps: int = 1


define(
    "auc",
    Auc,
    Sized(
        "Predict floats [N columns], Label integers [N ...], StatPos int64, StatNeg int64 "
        "-> AUC float64 [1], StatPosOut as StatPos, StatNegOut as StatNeg",
        "buckets = num_thresholds + 1",
        "size = (1 + slide_steps) * buckets + 1",  # the last counts the steps, where they slide
        "sizes = (size,) if slide_steps else (buckets, size)",
        "prod(StatPos) in sizes; StatPos must hold as many numbers of int64",
        "prod(StatNeg) in sizes; StatNeg must hold as many numbers of int64",
    ),
    in_place={"StatPosOut": "StatPos", "StatNegOut": "StatNeg"},
    samples=(_auc_sample(0), _auc_sample(1), _auc_sample(3)),
)


class MeanIou(Operands):
    predictions: Input
    labels: Input
    in_wrongs: Inputs | None
    in_corrects: Inputs | None
    in_mean_iou: Inputs | None
    out_mean_iou: Output
    out_wrong: Output
    out_correct: Output
    num_classes: Positive = 0


define(
    "mean_iou",
    MeanIou,
    Sized(
        "Predictions integers [...], Labels integers [...], InWrongs int32 [num_classes], "
        "InCorrects int32 [num_classes], InMeanIou float32 [1] "
        "-> OutMeanIou float32 [1], OutWrong int32 [num_classes], OutCorrect int32 [num_classes]"
    ),
    samples=(sample("Predictions 0:3 [5 4], Labels 0:3 [5 4]", num_classes=5),),
)


_GUESSES = "MaxProbs uniform [9 1], Indices 0:3 [9 1], Labels 0:3 [9 1]"


class PrecisionRecall(Operands):
    max_probs: Input
    indices: Input
    labels: Input
    weights: Input | None
    states_info: Input | None
    batch_metrics: Output
    accum_metrics: Output
    accum_states_info: Output
    class_number: Positive = 0


define(
    "precision_recall",
    PrecisionRecall,
    Sized(
        "MaxProbs floats [N 1], Weights as MaxProbs [N 1], Indices integers [N 1], Labels integers [N 1], "
        "StatesInfo as MaxProbs [class_number 4] "
        "-> BatchMetrics float64 [6], AccumMetrics float64 [6], AccumStatesInfo [class_number 4]"
    ),
    samples=(
        sample(_GUESSES, class_number=4),
        sample(_GUESSES, "Weights uniform [9 1], StatesInfo uniform [4 4]", class_number=4),
    ),
)

PAIRS = ("PositivePair", "NegativePair", "NeutralPair")
_PAIRS_BEFORE = tuple(f"Accumulate{slot}" for slot in PAIRS)


_RANKED = "Score uniform [9 2], Label uniform [9 1], QueryID 0:3 [9 1]"


class PositiveNegativePair(Operands):
    score: Input
    label: Input
    query_id: Input = named("QueryID")
    accumulate_positive_pair: Input | None
    accumulate_negative_pair: Input | None
    accumulate_neutral_pair: Input | None
    weight: Input | None
    positive_pair: Output
    negative_pair: Output
    neutral_pair: Output | None
    column: int = -1


define(
    "positive_negative_pair",
    PositiveNegativePair,
    Sized(
        "Score floats [N K], Label as Score [N 1], Weight as Score [N 1], QueryID integers [N 1], "
        + ", ".join(f"{slot} as Score [1]" for slot in _PAIRS_BEFORE)
        + " -> "
        + ", ".join(f"{slot} [1]" for slot in PAIRS),
        "-K <= column < K; column is none of Score's",
        f"({_PAIRS_BEFORE[0]} is None) == ({_PAIRS_BEFORE[1]} is None) == ({_PAIRS_BEFORE[2]} is None); "
        f"{', '.join(_PAIRS_BEFORE)} must be given together",
    ),
    samples=(
        sample(_RANKED),
        sample(_RANKED, "Weight uniform [9 1]", dict.fromkeys(_PAIRS_BEFORE, uniform(1)), column=0),
    ),
)
