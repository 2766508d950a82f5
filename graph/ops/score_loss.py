"""The loss of scores without their softmax: its gradient is made from the scores again.

``softmax_with_cross_entropy`` keeps a softmax in the precision of its scores. In bfloat16 a probability above
0.998 is 1, and the gradient of its score is lost. Here a row keeps one number, the logarithm of its sum of
exponentials, in float32.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import LOW, VarType
from . import formula as f
from .loss import FUSED, Labels, check_labels
from .operands import Input, Operands, Output
from .registry import Inference, Op, Spec, Specs, define
from .samples import sample

SCORE_LOSS = "cross_entropy_of_scores"


def score_loss_shape(op: Inference) -> Mapping[str, Specs]:
    """One loss and one LogSum per row; LogSum, and the loss where it is ``wide``, are not in low precision."""
    logits = op.spec("Logits")
    rows = check_labels(op, logits, op.spec("Label"), False, -1)
    kind = VarType.FP32 if logits.dtype in LOW else logits.dtype
    loss = Spec(rows, kind if op.attr("wide") else logits.dtype)
    return {"Loss": loss, "LogSum": Spec((*logits.shape[:-1], 1), kind)}


class ScoreLoss(Operands):
    logits: Input
    label: Input
    loss: Output
    log_sum: Output
    ignore_index: int = -100
    wide: bool = False


class ScoreLossGrad(ScoreLoss, reads="* log_sum"):
    d_loss: Input
    d_logits: Output


def _loss(a: ScoreLoss) -> f.Results:
    top = a.logits.max(-1, keepdims=True)
    logs = f.log(f.exp(a.logits - top).sum(-1, keepdims=True))
    labels = Labels.of(FUSED, a, a.logits.shape)
    loss = f.where(labels.ignored, 0, logs - (labels.picked(a.logits) - top))
    return {"loss": loss, "log_sum": logs + top}


def _slope(a: ScoreLossGrad) -> f.Results:
    """(exp(logits - log_sum) - label) * d."""
    shares, labels = f.exp(a.logits - a.log_sum), Labels.of(FUSED, a, a.logits.shape)
    return {"d_logits": labels.slope(shares, a.d_loss.reshape(a.log_sum.shape))}


define(
    SCORE_LOSS,
    ScoreLoss,
    score_loss_shape,
    formula=_loss,
    samples=(
        sample("Logits [4 5], Label 0:5 [4 1]"),
        sample("Logits [4 5], Label 0:5 [4 1]", ignore_index=1),
        sample("Logits [2 3 8], Label 0:8 [2 3 1]", wide=True),
        sample("Logits [4 5], Label 0:5 [4]"),
    ),
    refuses=(sample("Logits [4 5], Label 0:5 [3]"), sample("Logits [4 5], Label [4 1]")),
    slope=Op(
        f"{SCORE_LOSS}_grad", ScoreLossGrad, formula=_slope, in_place={"Logits@GRAD": "Logits"}
    ),
)
