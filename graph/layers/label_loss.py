"""Losses of labels and of pairs, and of rows and their classes."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, require_type
from ..program.variable import Variable
from .arguments import Floats, Integers, check_float, known_sizes, number
from .helper import LayerHelper, layer, layers
from .shape import fill_constant


def kldiv_loss(
    x: Floats, target: Floats, reduction: str = "mean", name: str | None = None
) -> Variable:
    """target * (log(target) - x), where x holds logarithms; shape [1] unless ``reduction`` is "none".

    "mean" divides by the elements, "batchmean" by the rows, "sum" by nothing.

    Raises:
        InvalidType: an operand holds no floats, or ``reduction`` is no string.
    """
    require_type(reduction, str, "kldiv_loss: reduction must be a string")
    inputs, attrs = {"X": x, "Target": target}, {"reduction": reduction}
    return layer("kldiv_loss", name, **inputs, **attrs)


def bce_loss(input: Floats, label: Floats, name: str | None = None) -> Variable:
    """Cross entropy of probabilities and labels in [0, 1], element by element; no logarithm is below -100."""
    return layer("bce_loss", name, x=input, label=label)


def rank_loss(label: Floats, left: Floats, right: Floats, name: str | None = None) -> Variable:
    """log(1 + exp(left - right)) - label (left - right). Burges et al., ICML 2005."""
    return layer("rank_loss", name, label=label, left=left, right=right)


def margin_rank_loss(
    label: Floats, left: Floats, right: Floats, margin: float = 0.1, name: str | None = None
) -> Variable:
    """max(0, margin - label (left - right))."""
    fields = {"label": label, "x1": left, "x2": right, "margin": margin}
    return layers("margin_rank_loss", name, "Out Activated", **fields)[0]


def smooth_l1(
    x: Floats,
    y: Floats,
    inside_weight: Floats | None = None,
    outside_weight: Floats | None = None,
    sigma: float | None = None,
) -> Variable:
    """Of each row the sum of distances, squared near zero and linear beyond 1 / sigma^2: [N, 1].

    Args:
        x, y: [N, ...], floats.
        inside_weight, outside_weight: like x; factors of the distances and of the losses, both or neither.
        sigma: 1 unless given.
    """
    sigma = 1.0 if sigma is None else sigma
    weights = {"inside_weight": inside_weight, "outside_weight": outside_weight}
    return layers("smooth_l1_loss", None, "Diff Out", x=x, y=y, **weights, sigma=sigma)[1]


def sigmoid_focal_loss(
    x: Floats, label: Integers, fg_num: Integers, gamma: float = 2.0, alpha: float = 0.25
) -> Variable:
    """Cross entropy of sigmoid(x), small where the class is clear. Lin et al., arXiv 1708.02002.

    Args:
        x: [N, C], floats: scores without the background.
        label: [N, 1], int32 or int64: classes from 1 to C; 0 is the background, -1 is left out.
        fg_num: [1], integer: what losses are divided by, if above 1.
    """
    return layer("sigmoid_focal_loss", x=x, label=label, fg_num=fg_num, gamma=gamma, alpha=alpha)


def teacher_student_sigmoid_loss(
    input: Floats,
    label: Floats,
    soft_max_up_bound: float = 15.0,
    soft_max_lower_bound: float = -15.0,
) -> Variable:
    """Cross entropy of sigmoid(input) with clicks and with a teacher's scores, both told by ``label``.

    -2: no click, -1: a click, neither with a score; z: no click and the score z, 1 + z: a click and z, for z in
    [0, 1). Beyond the bounds inputs have no gradient.
    """
    bounds = {"soft_max_up_bound": soft_max_up_bound, "soft_max_lower_bound": soft_max_lower_bound}
    return layer("teacher_student_sigmoid_loss", x=input, label=label, **bounds)


def label_smooth(
    label: Floats,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """(1 - epsilon) label + epsilon / classes, or + epsilon * prior_dist ([1, classes]).

    The label's gradient ends here.

    Raises:
        InvalidValue: ``epsilon`` is outside [0, 1].
    """
    if not 0.0 <= epsilon <= 1.0:
        raise InvalidValue(f"label_smooth: epsilon is in [0, 1], got {epsilon!r}.")
    label.stop_gradient = True
    return smoothed(label, prior_dist, epsilon, name)


def smoothed(
    label: Variable, prior_dist: Variable | None, epsilon: float, name: str | None
) -> Variable:
    """Append label_smooth."""
    inputs = {"X": label}
    if prior_dist is not None:
        check_float(prior_dist, "prior_dist", "label_smooth")
        inputs["PriorDist"] = prior_dist
    return layer("label_smooth", name, **inputs, epsilon=epsilon)


def bpr_loss(input: Floats, label: Integers, name: str | None = None) -> Variable:
    """The mean of log(1 + exp(score - the label's score)) over the other classes. arXiv 1511.06939.

    Args:
        input: [N, C], floats.
        label: [N, 1], int64.
    """
    return layer("bpr_loss", name, x=input, label=label)


def nll_loss(
    input: Variable,
    label: Variable,
    weight: Variable | None,
    ignore_index: int,
    reduction: str,
    name: str | None,
) -> Variable:
    """-weight * input at the label; [N, C] and [N], or [N, C, H, W] and [N, H, W]."""
    fields = {"x": input, "label": label, "weight": weight}
    attrs = {"ignore_index": ignore_index, "reduction": reduction}
    return layers("nll_loss", name, "Out Total_weight", "Total_weight", **fields, **attrs)[0]


def center_loss(
    input: Floats,
    label: Integers,
    num_classes: int,
    alpha: Any,
    param_attr: Any,
    update_center: bool = True,
) -> Variable:
    """Half the squared distance of each row from the center of its class: [N, 1]. Wen et al., ECCV 2016.

    In each step a center moves by alpha * sum(row - center) / (1 + count) of the rows of its class.

    Args:
        input: [N, D], floats.
        label: [N, 1], integers below ``num_classes``.
        alpha: a float or a Variable of one element.
        param_attr: of the centers, [num_classes, D].

    Raises:
        InvalidType: ``alpha`` is neither, or ``param_attr`` False.
    """
    helper = LayerHelper("center_loss")
    (width,) = known_sizes("center_loss", input, 1, "the width")
    centers = helper.create_parameter(param_attr, [num_classes, width], input.dtype)
    if centers is None:
        raise InvalidType(
            "center_loss: param_attr cannot be False: rows are compared with centers."
        )
    centers.stop_gradient = True
    if not isinstance(alpha, Variable):
        alpha = fill_constant([1], input.dtype, number(alpha, "alpha", "center_loss"))
    _, loss = helper.layers(
        "center_loss",
        "SampleCenterDiff Loss",
        x=input,
        label=label,
        centers=centers,
        center_update_rate=alpha,
        centers_out=centers,
        cluster_num=num_classes,
        need_update=update_center,
    )
    return loss
