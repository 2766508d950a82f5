"""Losses of ``paddle.nn.functional`` that compare tensors with each other, with signs, or distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

from ..functions import math as functions
from ..functions.counting import cumprod
from ..functions.creation import full_like
from ..functions.places import put_along_axis
from ..functions.search import where
from ..graph.layers import binary, picks, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Floats, Integers, check_float
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from .common import pairwise_distance
from .losses import reduced


def _alike(layer: str, **operands: Variable) -> None:
    """Refuse operands that are no Variables of floats, or of several shapes."""
    first = next(iter(operands.values()))
    for argument, x in operands.items():
        check_float(x, argument, layer)
        if x.shape != first.shape:
            raise InvalidValue(
                f"{layer}: {argument} is {x!r}, and must have the shape of {first!r}."
            )


def cosine_embedding_loss(
    input1: Variable,
    input2: Variable,
    label: Variable,
    margin: float = 0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """1 - cos of rows whose label is 1, max(cos - margin, 0) of those whose label is -1.

    Args:
        input1, input2: [N, D] or [D], floats.
        label: [N], numbers.
    """
    layer = "cosine_embedding_loss"
    _alike(layer, input1=input1, input2=input2)
    if label.ndim != 1 or input1.ndim > 2:
        raise InvalidValue(
            f"{layer}: label must be [N] and inputs [N, D], got {label!r}, {input1!r}."
        )
    lengths = [layers.reduce_sum(unary.square(x), dim=[-1]) + 10e-12 for x in (input1, input2)]
    cosine = layers.reduce_sum(input1 * input2, dim=[-1]) / unary.sqrt(lengths[0] * lengths[1])
    label = layers.cast(label, input1.dtype)
    same = layers.cast(label == 1.0, input1.dtype) * (1.0 - cosine)
    other = layers.cast(label == -1.0, input1.dtype) * unary.relu(cosine - float(margin))
    return reduced(same + other, reduction)


def triplet_margin_loss(
    input: Variable,
    positive: Variable,
    negative: Variable,
    margin: float = 1.0,
    p: float = 2.0,
    epsilon: float = 1e-6,
    swap: bool = False,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """max(distance to ``positive`` - distance to ``negative`` + margin, 0), of rows [N, D], in the p-norm.

    With ``swap`` the distance from ``positive`` to ``negative`` counts where that is less: Balntas et al., BMVC
    """
    distance = partial(pairwise_distance, p=p, epsilon=epsilon)
    how = (distance, margin, swap, reduction)
    return triplet_margin_with_distance_loss(input, positive, negative, *how)


def triplet_margin_with_distance_loss(
    input: Variable,
    positive: Variable,
    negative: Variable,
    distance_function: Callable[[Variable, Variable], Variable] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """:func:`triplet_margin_loss` with the distance that a function computes; the 2-norm unless given."""
    layer = "triplet_margin_with_distance_loss"
    if margin < 0:
        raise InvalidValue(f"{layer}: margin must not be below 0, got {margin}.")
    _alike(layer, input=input, positive=positive, negative=negative)
    distance = pairwise_distance if distance_function is None else distance_function
    far = distance(input, negative)
    if swap:
        far = binary.elementwise_min(far, distance(positive, negative))
    near = distance(input, positive)
    return reduced(unary.relu(near - far + float(margin)), reduction)


def soft_margin_loss(
    input: Floats,
    label: Variable,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """log(1 + exp(-label * input)), where labels are -1 or 1."""
    layer = "soft_margin_loss"
    if input.shape != label.shape:
        raise InvalidValue(f"{layer}: label is {label!r}, and must have the shape of {input!r}.")
    signed = layers.cast(label, input.dtype) * input
    return reduced(-unary.logsigmoid(signed), reduction)


def multi_label_soft_margin_loss(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """The cross entropy of labels 0 or 1 with sigmoid(input), by weight; its mean over the last dimension."""
    layer = "multi_label_soft_margin_loss"
    _alike(layer, input=input, label=label)
    loss = -(label * unary.logsigmoid(input) + (1.0 - label) * unary.logsigmoid(-input))
    if weight is not None:
        check_float(weight, "weight", layer)
        loss = loss * weight
    return reduced(layers.reduce_mean(loss, dim=[-1]), reduction)


def poisson_nll_loss(
    input: Variable,
    label: Variable,
    log_input: bool = True,
    full: bool = False,
    epsilon: float = 1e-8,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """exp(input) - label * input; without ``log_input`` input - label * log(input + epsilon).

    With ``full`` Stirling's formula for log(label!) is added where the label is above 1.
    """
    layer = "poisson_nll_loss"
    if epsilon <= 0:
        raise InvalidValue(f"{layer}: epsilon must be above 0, got {epsilon}.")
    _alike(layer, input=input, label=label)
    rate = unary.exp(input) if log_input else input
    loss = rate - label * (input if log_input else unary.log(input + float(epsilon)))
    if full:
        above = binary.elementwise_max(label, full_like(label, 1.0))
        stirling = above * unary.log(above) - above + 0.5 * unary.log(2 * math.pi * above)
        loss = loss + where(label > 1.0, stirling, full_like(label, 0.0))
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Variable,
    label: Variable,
    variance: Floats,
    full: bool = False,
    epsilon: float = 1e-6,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """(log(variance) + (input - label)^2 / variance) / 2; no variance counts as less than ``epsilon``.

    ``variance`` is like ``input``, or has one number (or dimension) for its last dimension. ``full`` adds
    log(2 pi) / 2.
    """
    layer = "gaussian_nll_loss"
    _alike(layer, input=input, label=label)
    shape, have = tuple(input.shape or ()), tuple(variance.shape or ())
    if have != shape and have == shape[:-1]:
        variance = layers.unsqueeze(variance, [-1])
    elif have not in (shape, (*shape[:-1], 1)):
        raise InvalidValue(f"{layer}: variance is {variance!r}, which does not fit {input!r}.")
    variance = functions.clip(variance, float(epsilon))
    loss = (unary.log(variance) + unary.square(input - label) / variance) * 0.5
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return reduced(loss, reduction)


def hinge_embedding_loss(
    input: Floats,
    label: Floats,
    margin: float = 1.0,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """input where the label is 1, max(margin - input, 0) where it is -1, else 0."""
    zero = full_like(input, 0.0)
    loss = where(label == 1.0, input, zero)
    loss = loss + where(label == -1.0, unary.relu(float(margin) - input), zero)
    return reduced(loss, reduction)


def multi_margin_loss(
    input: Floats,
    label: Variable,
    p: int = 1,
    margin: float = 1.0,
    weight: Variable | None = None,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """The mean over the other classes of max(margin - input[label] + input, 0)^p, by the label's weight.

    Args:
        input: [N, classes], floats.
        label: [N], integers.
        weight: [classes].
    """
    layer = "multi_margin_loss"
    classes = (input.shape or (-1,))[-1]
    if input.ndim != 2 or classes < 1:
        raise InvalidValue(f"{layer}: input must be [N, classes], classes known, not {input!r}.")
    label = layers.reshape(label, [-1, 1])
    gap = float(margin) - picks.index_sample(input, label) + input
    powers = unary.pow(unary.relu(gap), float(p))
    loss = layers.reduce_mean(powers, dim=[1]) - float(margin) ** p / classes
    if weight is not None:
        check_float(weight, "weight", layer)
        loss = loss * layers.reshape(layers.gather(weight, label, overwrite=False), [-1])
    return reduced(loss, reduction)


def multi_label_margin_loss(
    input: Floats,
    label: Integers,
    reduction: Literal["mean", "sum", "none"] = "mean",
    name: str | None = None,
) -> Variable:
    """Sums of max(1 - input[label] + input[other], 0) over labels and other classes, by the number of classes.

    Args:
        input: [N, classes], floats.
        label: [N, labels]: numbers of classes; what stands behind the first -1 does not count.
    """
    layer = "multi_label_margin_loss"
    classes = (input.shape or (-1,))[-1]
    if input.ndim != 2 or classes < 1 or label.ndim != 2:
        raise InvalidValue(
            f"{layer}: input must be [N, classes], classes known, and label [N, labels], got {input!r}, "
            f"{label!r}."
        )
    counts = cumprod(layers.cast(label != -1, "int64"), 1)
    is_label, places = layers.cast(counts, input.dtype), layers.cast(label, "int64") * counts
    labels = put_along_axis(full_like(input, 0.0), places, is_label, 1, "add")
    is_other = layers.cast(labels < 0.5, input.dtype)
    gaps = layers.unsqueeze(input, [1]) - layers.unsqueeze(picks.index_sample(input, places), [2])
    losses = (
        unary.relu(gaps + 1.0) * layers.unsqueeze(is_other, [1]) * layers.unsqueeze(is_label, [2])
    )
    return reduced(layers.reduce_sum(losses, dim=[1, 2]) * (1.0 / classes), reduction)


publish_definitions(__name__)
