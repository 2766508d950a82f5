"""Losses that look at few of many classes. Legend: N rows, D wide, C classes, T true ones a row, S drawn.

With ``is_sparse`` the gradient of Weight is rows (``passes/sparse_rows.py``). Parameter servers are not built.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import formula as f
from .lod import no_sequences
from .operands import Array, Input, Operands, Output, Positive
from .registry import Op, define
from .rules import of_shape
from .samples import sample
from .shapes import Sized

UNIFORM, LOG_UNIFORM, CUSTOM = range(3)


class NceAttributes(Operands):
    num_total_classes: int = 0
    num_neg_samples: Positive = 10
    sampler: int = UNIFORM
    seed: int = 0
    is_sparse: bool = False
    remote_prefetch: bool = False
    trainer_id: int = 0
    height_sections: Sequence[int] = []
    epmap: Sequence[str] = []
    table_names: Sequence[str] = []
    custom_neg_classes: Sequence[int] = []


class Nce(NceAttributes):
    input: Input
    label: Input
    weight: Input
    bias: Input | None
    sample_weight: Input | None
    custom_dist_probs: Input | None
    custom_dist_alias: Input | None
    custom_dist_alias_probs: Input | None
    cost: Output
    sample_logits: Output
    sample_labels: Output


class NceGrad(Nce, reads="* sample_logits sample_labels"):
    d_cost: Input
    d_input: Output | None
    d_weight: Output | None
    d_bias: Output | None


_DRAWING = (
    f"sampler in {(UNIFORM, LOG_UNIFORM, CUSTOM)}; "
    "sampler must be 0 (uniform), 1 (log_uniform) or 2 (custom_dist)",
    f"sampler != {CUSTOM} or CustomDistProbs is not None; "
    "CustomDistProbs is missing (sampler is custom_dist)",
    f"sampler != {CUSTOM} or CustomDistProbs == (num_total_classes,); "
    "CustomDistProbs must have a number for each class",
    "prod(SampleWeight) == Input[0]; SampleWeight must be [N, 1]",
)


class NceRows(NceAttributes):
    """The gradient of Weight as rows: that of each class of each row, and its values."""

    input: Input
    sample_weight: Input | None
    custom_dist_probs: Input | None
    sample_logits: Input
    sample_labels: Input
    d_cost: Input
    rows: Output
    values: Output
    height: int = 0


def nce_slope(a: NceGrad | NceRows) -> Array:
    """Return the gradients of the scores, [N, T + S].

    With s the sigmoid of a score and p how often its class is drawn: -(1 - s) p / (s + p) of a true class,
    s (1 - s) / (s + p) of a drawn one.
    """
    s, labels = a.sample_logits, a.sample_labels
    columns = s.shape[1]
    p = drawn_share(a, labels, s.dtype) * a.num_neg_samples
    true = columns - a.num_neg_samples
    is_true = f.table([[k < true for k in range(columns)]])
    slope = (1 - s) * f.where(is_true, -p, s) / (s + p) * a.d_cost.reshape(-1, 1)
    if a.sample_weight is not None:
        slope = slope * a.sample_weight.reshape(-1, 1)
    return slope


def nce_gradient(a: NceGrad) -> f.Results:
    """Products of the scores' gradients with Weight and Input, which are what the scores are made of."""
    slope, labels = nce_slope(a), a.sample_labels
    (rows, columns), classes = labels.shape, a.num_total_classes
    of_classes = f.take(a.weight, labels)  # [N, T + S, D]
    x, deep = a.input.reshape(rows, 1, -1), slope.reshape(rows, columns, 1)
    d_bias = None
    if a.d_bias is not None:
        d_bias = f.row_sums(labels.reshape(-1), slope.reshape(-1, 1), classes)
        d_bias = d_bias.reshape(a.d_bias.shape)
    return {
        "d_input": (deep * of_classes).sum(1),
        "d_weight": f.row_sums(labels.reshape(-1), (deep * x).reshape(rows * columns, -1), classes),
        "d_bias": d_bias,
    }


def nce_rows(a: NceRows) -> f.Results:
    """A row for each class that a row of Input has: the gradient of its score times that row."""
    rows, columns = a.sample_labels.shape
    deep, x = nce_slope(a).reshape(rows, columns, 1), a.input.reshape(rows, 1, -1)
    values = (deep * x).reshape(rows * columns, -1)
    return {"rows": a.sample_labels.reshape(-1), "values": values}


def drawn_share(a: NceGrad | NceRows, labels: Array, dtype: Any) -> Array:
    """Return how likely classes are drawn at a time; that of log_uniform is Paddle's, for C - 1 classes."""
    if a.sampler == CUSTOM:
        assert a.custom_dist_probs is not None
        return f.take(a.custom_dist_probs.astype(dtype), labels)
    if a.sampler == UNIFORM:
        return f.full(labels.shape, 1 / a.num_total_classes, dtype)
    return f.log1p(1 / (labels.astype(dtype) + 1)) / math.log(a.num_total_classes)


_X = "Input [4 3], Label 0:6 [4 1], Weight [6 3]"
_FIXED = {"num_total_classes": 6, "num_neg_samples": 3, "custom_neg_classes": [0, 2, 2]}
_SCORES = "Input [4 3], SampleLogits 0.1:1.0 [4 5], SampleLabels 0:6 [4 5], Cost@GRAD [4 1]"
_SHARES = {"num_total_classes": 6, "num_neg_samples": 3, "height": 6}
define(
    "nce",
    Nce,
    Sized(
        "Input floats [N D], Label integers [N ...], Weight [num_total_classes D] "
        "-> Cost [N 1], SampleLogits [N T+num_neg_samples], SampleLabels int64 [N T+num_neg_samples]",
        "len(Label) < 3; Label must be [N, T]",
        "T = prod(Label[1:])",
        "prod(Bias) == num_total_classes; Bias must have an element for each class",
        "len(custom_neg_classes) in (0, num_neg_samples); "
        "custom_neg_classes must be num_neg_samples classes",
        "every(0 <= k < num_total_classes for k in custom_neg_classes); "
        "custom_neg_classes must be some of the classes",
        "not epmap; rows on parameter servers are not built",
        *_DRAWING,
    ),
    random=True,
    by_place=lambda attrs: not attrs["custom_neg_classes"],
    samples=(
        sample(_X, "Bias [6 1]", **_FIXED),
        sample(_X, "SampleWeight uniform [4 1]", sampler=LOG_UNIFORM, **_FIXED),
        sample(_X, "Label 0:6 [4 2], CustomDistProbs distribution [6]", sampler=CUSTOM, **_FIXED),
    ),
    slope=Op("nce_grad", NceGrad, formula=nce_gradient),
)
define(
    "nce_rows",
    NceRows,
    Sized(
        "Input floats [N D], SampleLabels integers [N classes], SampleLogits as Input [N classes], "
        "Cost@GRAD as Input [N 1?] -> Rows int64 [N*classes], Values as Input [N*classes D]",
        "classes >= num_neg_samples; SampleLabels must have a column for each class that is drawn",
        *_DRAWING,
    ),
    formula=nce_rows,
    lod=no_sequences,
    samples=(
        sample(_SCORES, "SampleWeight uniform [4 1]", **_SHARES),
        sample(_SCORES, sampler=LOG_UNIFORM, **_SHARES),
        sample(_SCORES, "CustomDistProbs distribution [6]", sampler=CUSTOM, **_SHARES),
    ),
)


class SampleLogits(Operands):
    logits: Input
    labels: Input
    customized_samples: Input | None
    customized_probabilities: Input | None
    samples: Output
    probabilities: Output
    logits_dim: Output
    labels_dim: Output
    sampled_logits: Output
    sampled_labels: Output
    use_customized_samples: bool = False
    uniq: bool = True
    remove_accidental_hits: bool = True
    num_samples: int = 0
    seed: int = 0


class SampleLogitsGrad(SampleLogits, reads="samples logits_dim labels_dim"):
    d_sampled_logits: Input
    d_logits: Output


def sample_logits_gradient(a: SampleLogitsGrad) -> f.Results:
    """Add to the picked logits, in their rows."""
    assert a.d_logits is not None
    rows, classes = a.d_logits.shape
    place = f.table([[row * classes] for row in range(rows)], "int64") + a.samples
    d = f.row_sums(place.reshape(-1), a.d_sampled_logits.reshape(-1, 1), rows * classes)
    return {"d_logits": d.reshape(rows, classes)}


_GIVEN = (
    "Logits [3 6], Labels 0:6 [3 1], CustomizedSamples 0:6 [3 4], "
    "CustomizedProbabilities 0.1:1.0 [3 4]"
)
define(
    "sample_logits",
    SampleLogits,
    Sized(
        "Logits floats [N C], Labels integers [N T], "
        "CustomizedSamples [N T+num_samples], CustomizedProbabilities [N T+num_samples] "
        "-> Samples int64 [N T+num_samples], Probabilities [N T+num_samples], LogitsDim [N C 0], "
        "LabelsDim [N T 0], SampledLogits [N T+num_samples], SampledLabels int64 [N T]",
        "uniq; samples that repeat (uniq=False) are not built",
        "0 < num_samples <= C; num_samples must be above 0 and at most the classes",
        "not use_customized_samples or CustomizedSamples is not None; "
        "CustomizedSamples is missing (use_customized_samples is True)",
        "not use_customized_samples or CustomizedProbabilities is not None; "
        "CustomizedProbabilities is missing (use_customized_samples is True)",
    ),
    random=True,
    samples=(
        sample(_GIVEN, use_customized_samples=True, num_samples=3),
        sample("Logits [3 6], Labels 0:6 [3 2]", num_samples=4),
    ),
    slope=Op(
        "sample_logits_grad",
        SampleLogitsGrad,
        lambda op: {"Logits@GRAD": of_shape(op.shape("LogitsDim")[:-1], op.spec("LogitsDim"))},
        formula=sample_logits_gradient,
    ),
)
