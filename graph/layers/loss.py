"""The losses that most programs use (cross entropies, squares, Huber), and accuracy."""

from __future__ import annotations

from typing import Any

from ..program.variable import Variable
from .helper import LayerHelper, constant_layers, layer, layers
from .shape import topk


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """(input - label)^2, element by element, of floats of one shape and type.

    Raises:
        ShapeError: shapes or types differ.
    """
    helper = LayerHelper("square_error_cost")
    difference = helper.layer("elementwise_sub", x=input, y=label)
    return helper.layer("square", x=difference)


def cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = -100
) -> Variable:
    """-log of the probability of the label: [N, ..., 1] from probabilities [N, ..., classes].

    Labels are integers [N, ..., 1], of which ``ignore_index`` costs 0; or with ``soft_label`` probabilities of
    the shape and type of ``input``. Of scores that are no probabilities yet take
    ``softmax_with_cross_entropy``.

    Raises:
        ShapeError: labels have another shape or type.
        ExecutionError: when the program runs, a label is no class.
    """
    fields = {"x": input, "label": label, "ignore_index": ignore_index}
    if soft_label:
        return layer("cross_entropy", **fields, soft_label=True)
    return layers("cross_entropy2", None, "Y XShape MatchX", **fields)[0]


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = -100,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Any:
    """Cross entropy of softmax(logits): [N, ..., 1], and the softmax if ``return_softmax``.

    Logits are floats [N, ..., classes], or have the classes at ``axis``. Labels are integers, of the same shape
    but for a 1 there, of which ``ignore_index`` costs 0; or with ``soft_label`` probabilities of the shape of
    ``logits``.

    Raises:
        ShapeError: labels have another shape or type, or ``axis`` is outside.
        ExecutionError: when the program runs, a label is no class.
    """
    softmax, loss = layers(
        "softmax_with_cross_entropy",
        None,
        "Softmax Loss",
        logits=logits,
        label=label,
        soft_label=soft_label,
        ignore_index=ignore_index,
        numeric_stable_mode=numeric_stable_mode,
        axis=axis,
    )
    return (loss, softmax) if return_softmax else loss


def sigmoid_cross_entropy_with_logits(
    x: Variable,
    label: Variable,
    ignore_index: int = -100,
    name: str | None = None,
    normalize: bool = False,
) -> Variable:
    """Cross entropy of sigmoid(x) and labels in [0, 1], element by element."""
    op_type = "sigmoid_cross_entropy_with_logits"
    return layer(op_type, name, x=x, label=label, ignore_index=ignore_index, normalize=normalize)


def log_loss(
    input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None
) -> Variable:
    """-label log(input + epsilon) - (1 - label) log(1 - input + epsilon)."""
    return layer("log_loss", name, predicted=input, labels=label, epsilon=epsilon)


def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """Squared near zero, linear beyond ``delta``."""
    return layers("huber_loss", None, "Residual Out", x=input, y=label, delta=delta)[1]


def mse_loss(input: Variable, label: Variable) -> Variable:
    """Mean of the squared difference."""
    from .shape import mean

    return mean(square_error_cost(input, label))


def accuracy(
    input: Variable, label: Variable, k: int = 1, correct: Any = None, total: Any = None
) -> Variable:
    """The share of samples whose label is among the ``k`` best scored: float32 [1].

    ``input`` are scores [N, classes], ``label`` integers [N, 1]. Given int32 [1] variables ``correct`` and
    ``total`` take the two numbers.

    Raises:
        ShapeError: labels are no integers, or there are fewer classes than ``k``.
    """
    best, indices = topk(input, k)
    results = "Accuracy Correct Total"
    fields = {"out": best, "indices": indices, "label": label, "correct": correct, "total": total}
    return constant_layers("accuracy", None, results, **fields)[0]
