"""Losses of ``paddle.nn.functional``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from ..functions import math as functions
from ..functions.creation import full_like
from ..functions.search import where
from ..functions.signatures import reordered
from ..graph.layers import chains, picks, trees, unary
from ..graph.layers import label_loss as label_losses
from ..graph.layers import loss as losses
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Floats, Integers, axis_of, check_variable
from ..graph.layers.helper import LayerHelper
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue, Unsupported
from .activations import log_softmax
from .common import linear


def reduced(loss: Variable, reduction: str) -> Variable:
    """Return the mean, the sum, or ("none") the losses themselves."""
    if reduction == "none":
        return loss
    return layers.reduce_mean(loss) if reduction == "mean" else layers.reduce_sum(loss)


def _with_ones(label: Variable, like: Variable, axis: int) -> Variable:
    """Return labels with a dimension of one element at ``axis``."""
    return layers.unsqueeze(label, [axis]) if label.ndim == like.ndim - 1 else label


def cross_entropy(
    input: Floats,
    label: Variable,
    weight: Variable | None = None,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
    soft_label: bool = False,
    axis: int = -1,
    use_softmax: bool = True,
    label_smoothing: float = 0.0,
    name: str | None = None,
) -> Variable:
    """Cross entropy of softmax(input), or of probabilities, and labels with or without the trailing 1.

    The mean is over the labels that are not ignored, weighted by ``weight`` (one number a class).
    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise InvalidValue(f"cross_entropy: label_smoothing is in [0, 1], got {label_smoothing!r}.")
    rank = input.ndim
    axis = axis_of(input, axis, "cross_entropy")
    if axis != rank - 1:
        order = [i for i in range(rank) if i != axis] + [axis]
        input = layers.transpose(input, order)
        label = layers.transpose(label, order) if label.ndim == rank else label
    bare = not soft_label and label.ndim == rank - 1
    classes = (input.shape or ())[-1]
    hard = None if soft_label else _with_ones(label, input, rank - 1)
    if label_smoothing and hard is not None:
        label = layers.one_hot_v2(layers.squeeze(hard, [rank - 1]), classes)
        soft_label = True
    if label_smoothing:
        label = label_smooth(label, None, label_smoothing)
    target = label if soft_label else hard
    assert target is not None
    loss = _entropy(input, target, soft_label, ignore_index, use_softmax)
    factors = _factors(loss, hard, target, weight, ignore_index)
    if factors is not None:
        loss = loss * factors
    if reduction == "mean" and factors is not None:
        total = layers.reduce_sum(factors)
        empty = layers.cast(total == 0.0, total.dtype)
        return layers.reduce_sum(loss) / (total + empty)
    loss = layers.squeeze(loss, [rank - 1]) if bare and reduction == "none" else loss
    return reduced(loss, reduction)


def _entropy(
    input: Variable, target: Variable, soft_label: bool, ignore_index: int, use_softmax: bool
) -> Variable:
    if use_softmax:
        entropy: Variable = losses.softmax_with_cross_entropy(
            input, target, soft_label, ignore_index
        )
        return entropy
    return losses.cross_entropy(input, target, soft_label, ignore_index)


def _factors(
    loss: Variable,
    hard: Variable | None,
    target: Variable,
    weight: Variable | None,
    ignore_index: int,
) -> Variable | None:
    """Return the weight of each loss, in its shape; None if all are 1."""
    if weight is not None:
        check_variable(weight, "weight", "cross_entropy")
    if hard is None:
        return None if weight is None else layers.reduce_sum(target * weight, -1, True)
    if weight is None and ignore_index < 0:
        return None
    counts = layers.cast(hard != ignore_index, loss.dtype)
    if weight is None:
        return counts
    classes_used = hard * layers.cast(counts, hard.dtype)  # an ignored label may be no class
    rows = layers.gather(weight, layers.reshape(classes_used, [-1]), overwrite=False)
    return layers.reshape(rows, [-1 if n < 0 else n for n in loss.shape or ()]) * counts


def mse_loss(
    input: Variable,
    label: Variable,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """The squared difference."""
    return reduced(losses.square_error_cost(input, label), reduction)


def l1_loss(
    input: Variable,
    label: Variable,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """The absolute difference."""
    return reduced(unary.abs(input - label), reduction)


def smooth_l1_loss(
    input: Variable,
    label: Variable,
    reduction: Literal["mean", "sum", "none"] = "mean",
    delta: float = 1.0,
    is_huber: bool = True,
    name: str | None = None,
) -> Variable:
    """Squared near zero, linear beyond ``delta``; divided by ``delta`` unless ``is_huber``."""
    loss = losses.huber_loss(input, label, delta)
    return reduced(loss if is_huber else loss * (1.0 / delta), reduction)


def kl_div(
    input: Variable,
    label: Variable,
    reduction: Literal["mean", "sum", "none", "batchmean"] = "mean",
    log_target: bool = False,
    name: str | None = None,
) -> Variable:
    """label * (log(label) - input), where input holds logarithms; "batchmean" divides by the rows."""
    if not log_target:
        return label_losses.kldiv_loss(input, label, reduction, name)
    loss = unary.exp(label) * (label - input)
    if reduction == "batchmean":
        rows = layers.cast(layers.slice(layers.shape(input), [0], [0], [1]), loss.dtype)
        return layers.reduce_sum(loss) / rows
    return reduced(loss, reduction)


def binary_cross_entropy(
    input: Floats,
    label: Floats,
    weight: Variable | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """Cross entropy of probabilities and labels in [0, 1]; no logarithm is below -100."""
    loss = label_losses.bce_loss(input, label, name)
    loss = loss if weight is None else loss * weight
    return reduced(loss, reduction)


def binary_cross_entropy_with_logits(
    logit: Variable,
    label: Variable,
    weight: Variable | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean",
    pos_weight: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Cross entropy of sigmoid(logit) and labels in [0, 1]; ``pos_weight`` counts the positive ones."""
    if pos_weight is None:
        loss = losses.sigmoid_cross_entropy_with_logits(logit, label)
    else:
        # log(1 + exp(-x)) weighted beside (1 - label) x, so that large logits stay finite.
        factor = label * (pos_weight - 1.0) + 1.0
        loss = (1.0 - label) * logit - factor * unary.logsigmoid(logit)
    loss = loss if weight is None else loss * weight
    return reduced(loss, reduction)


def nll_loss(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    ignore_index: int = -100,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """The negative of the logarithm that stands in ``input`` [N, C, ...] at the label [N, ...].

    Raises:
        InvalidValue: the label has another number of dimensions; [N, 1] counts as [N].
    """
    rank = input.ndim
    if rank == 2 and (label.shape or ())[1:] == (1,):
        label = layers.squeeze(label, [1])
    if label.ndim != rank - 1:
        raise InvalidValue(f"nll_loss: input is {input!r}, so the label cannot be {label!r}.")
    sizes = [0 if size < 0 else size for size in label.shape or ()]
    if rank not in (2, 4):  # the op knows vectors of labels and images of them
        input = layers.reshape(input, [0, 0, 1, -1])
        label = layers.reshape(label, [0, 1, -1])
    loss = label_losses.nll_loss(input, label, weight, ignore_index, reduction, name)
    return loss if rank in (2, 4) or reduction != "none" else layers.reshape(loss, sizes)


def margin_ranking_loss(
    input: Variable,
    other: Variable,
    label: Variable,
    margin: float = 0.0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """max(0, margin - label * (input - other))."""
    loss = unary.relu(label * (other - input) + float(margin))
    return reduced(loss, reduction)


label_smooth = reordered(label_losses.label_smooth, "label prior_dist epsilon name")


def dice_loss(
    input: Variable, label: Variable, epsilon: float = 1e-5, name: str | None = None
) -> Variable:
    """1 - 2 sum(probability * label) / (sum(probability) + sum(label)), by sample."""
    hot = layers.one_hot_v2(layers.squeeze(label, [label.ndim - 1]), (input.shape or ())[-1])
    dims = list(range(1, input.ndim))
    shared = layers.reduce_sum(input * hot, dims)
    both = layers.reduce_sum(input, dims) + layers.reduce_sum(hot, dims)
    return layers.reduce_mean(1.0 - shared * 2.0 / (both + float(epsilon)))


def sigmoid_focal_loss(
    logit: Variable,
    label: Variable,
    normalizer: Variable | None = None,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: Literal["mean", "sum", "none"] = "sum",
    name: str | None = None,
) -> Variable:
    """Cross entropy of sigmoid(logit), small where the class is clear. Lin et al., arXiv 1708.02002."""
    entropy = losses.sigmoid_cross_entropy_with_logits(logit, label)
    chance = unary.sigmoid(logit)
    right = chance * label + (1.0 - chance) * (1.0 - label)
    weight = label * float(alpha) + (1.0 - label) * (1.0 - alpha)
    loss = entropy * weight * functions.pow(1.0 - right, float(gamma))
    loss = loss if normalizer is None else loss / normalizer
    return reduced(loss, reduction)


def npair_loss(
    anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002
) -> Variable:
    """Cross entropy of anchors' products with all positives, and the squared sizes of both."""
    from ..graph.layers.binary import matmul

    column = layers.reshape(labels, [-1, 1])
    same_label = layers.cast(column == layers.transpose(column, [1, 0]), anchor.dtype)
    target = same_label / layers.reduce_sum(same_label, 1, True)
    sizes = layers.reduce_mean(layers.reduce_sum(anchor * anchor, 1))
    sizes = sizes + layers.reduce_mean(layers.reduce_sum(positive * positive, 1))
    products = matmul(anchor, positive, transpose_y=True)
    entropy = losses.softmax_with_cross_entropy(products, target, soft_label=True)
    weighted = layers.reduce_mean(layers.reduce_sum(target * entropy, 0))
    return sizes * (0.25 * l2_reg) + weighted


def hsigmoid_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    weight: Variable,
    bias: Variable | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_sparse: bool = False,
    name: str | None = None,
) -> Variable:
    """The loss of binary decisions on the way to each class: [N, 1]. See ``fluid.layers.hsigmoid``.

    ``weight`` is [num_classes - 1, D], ``bias`` [num_classes - 1, 1]; with a tree of one's own [nodes, ...].

    Raises:
        InvalidValue: there are less than two classes.
    """
    if num_classes < 2:
        raise InvalidValue(f"hsigmoid_loss: num_classes must be 2 or more, got {num_classes}.")
    return trees.way_loss(
        input, label, num_classes, weight, bias, path_table, path_code, is_sparse,
        LayerHelper("hsigmoid_loss", name),
    )  # fmt: skip


def ctc_loss(
    log_probs: Variable,
    labels: Variable,
    input_lengths: Variable,
    label_lengths: Variable,
    blank: int = 0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    norm_by_times: bool = False,
    zero_infinity: bool = False,
) -> Variable:
    """Connectionist temporal classification, by sequence: [B] ("none"), or one number.

    Args:
        log_probs: logits [T, B, C]; softmax is applied here.
        labels: int32 [B, L].
        input_lengths, label_lengths: int64 [B].
        reduction: "mean" first divides each loss by its number of labels.
        norm_by_times: divide the gradient of each sequence by its steps.
        zero_infinity: changes nothing: where no path reads as the labels, the loss is 0.
    """
    loss = chains.warpctc(log_probs, labels, blank, norm_by_times, input_lengths, label_lengths)
    loss = layers.squeeze(loss, [-1])
    if reduction == "mean":
        loss = loss / layers.cast(label_lengths, loss.dtype)
    return reduced(loss, reduction)


def margin_cross_entropy(
    logits: Floats,
    label: Integers,
    margin1: float = 1.0,
    margin2: float = 0.5,
    margin3: float = 0.0,
    scale: float = 64.0,
    group: Any = None,
    return_softmax: bool = False,
    reduction: Literal["mean", "sum", "none"] | None = "mean",
) -> Any:
    """Cross entropy of softmax(scale * cosines), the label's moved to cos(margin1 t + margin2) - margin3.

    t is the angle of the label's cosine. The margins are, by turns, those of SphereFace (arXiv 1704.08063),
    ArcFace (1801.07698) and CosFace (1801.09414).

    Args:
        logits: cosines [N, classes], from -1 to 1.
        label: [N] or [N, 1].
        reduction: None, as "none": losses [N, 1].
        return_softmax: also return the softmax [N, classes].

    Raises:
        Unsupported: ``group`` is one: classes that are dealt to trainers are not built.
    """
    if group:
        raise Unsupported(
            "margin_cross_entropy: classes that are dealt to trainers are not built. Leave group out, so that "
            "each place has all classes."
        )
    label = _with_ones(label, logits, 1)
    if (margin1, margin2, margin3) != (1.0, 0.0, 0.0):
        hot = layers.one_hot_v2(layers.squeeze(label, [1]), (logits.shape or ())[-1])
        hot = hot if hot.dtype == logits.dtype else layers.cast(hot, logits.dtype)
        cosine = layers.reduce_sum(logits * hot, -1, True)
        angle = unary.acos(cosine) * float(margin1) + float(margin2)
        logits = logits + hot * (unary.cos(angle) - float(margin3) - cosine)
    loss, shares = losses.softmax_with_cross_entropy(
        logits * float(scale), label, return_softmax=True
    )
    loss = reduced(loss, reduction or "none")
    return (loss, shares) if return_softmax else loss


def adaptive_log_softmax_with_loss(
    input: Floats,
    label: Integers,
    head_weight: Variable,
    tail_weights: Sequence[Sequence[Variable]],
    cutoffs: Sequence[int],
    head_bias: Variable | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Log probabilities [N] of labels, and minus their mean: Grave and others, arXiv 1609.04309.

    The head tells frequent classes and clusters of rare ones, a cluster's two products its classes. Here all
    clusters are computed for all rows: a batch needs no sizes that only a step knows.

    Args:
        input: [N, D], floats.
        label: [N], integers from 0 to ``cutoffs[-1]`` - 1.
        head_weight: [D, cutoffs[0] + clusters].
        tail_weights: of each cluster [D, hidden] and [hidden, classes].
        cutoffs: where each cluster begins, and the number of classes.
        head_bias: [cutoffs[0] + clusters].

    Raises:
        InvalidValue: shapes or counts do not fit.
    """
    function, ends = "adaptive_log_softmax_with_loss", list(cutoffs)
    if input.ndim != 2 or label.ndim != 1 or len(tail_weights) != len(ends) - 1:
        raise InvalidValue(
            f"{function}: input must be [N, D], label [N], and cutoffs one more than tail_weights, got "
            f"{input!r}, {label!r}, {ends} and {len(tail_weights)}."
        )
    label = layers.unsqueeze(layers.cast(label, "int64"), [1])
    place, score = label, full_like(label, 0.0, input.dtype)
    for i, ((low, high), (first, second)) in enumerate(
        zip(pairwise(ends), tail_weights, strict=True)
    ):
        is_here = (label >= low) & (label < high)
        scores = log_softmax(linear(linear(input, first), second), axis=1)
        within = where(is_here, label - low, full_like(label, 0))
        score = where(is_here, picks.index_sample(scores, within), score)
        place = where(is_here, full_like(label, ends[0] + i), place)
    head = log_softmax(linear(input, head_weight, head_bias), axis=1)
    output = layers.squeeze(score + picks.index_sample(head, place), [1])
    return output, layers.reduce_mean(output) * -1.0


publish_definitions(__name__, withhold=(reduced,))
