"""Layers that measure a model's answers."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidType, InvalidValue
from ...strategies.types import FLOATS, INTEGERS, VarType
from ..program import unique_name
from ..program.variable import Variable
from .helper import LayerHelper
from .initializer import ConstantInitializer


def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[Variable, Variable, list[Variable]]:
    """Return the area under the ROC curve of all steps, of the last ``slide_steps``, and the counts of both.

    The last column of ``input`` is the probability that the label is not 0. Persistables store the counts by
    threshold; each place of a parallel program counts its rows. ``topk`` is not used, as in Paddle.

    Raises:
        InvalidType: ``input`` is not floating point, or ``label`` not an integer.
        InvalidValue: another ``curve`` than ROC (Paddle 1.8 computes ROC for it), or a bad number.
    """
    for argument, operand, kinds in (("input", input, FLOATS), ("label", label, INTEGERS)):
        if not isinstance(operand, Variable) or operand.dtype not in kinds:
            kind = "floating point" if argument == "input" else "integers"
            raise InvalidType(f"auc: {argument} must be a Variable of {kind}, got {operand!r}.")
    if curve != "ROC":
        raise InvalidValue(f"auc: curve must be 'ROC', got {curve!r}.")
    if num_thresholds < 1 or slide_steps < 0:
        raise InvalidValue(
            f"auc: num_thresholds must be positive and slide_steps not negative, got {num_thresholds} and "
            f"{slide_steps}."
        )
    helper = LayerHelper("auc")
    length = num_thresholds + 1
    total = helper.new("float64", stop_gradient=True)
    batch = helper.new("float64", stop_gradient=True)
    whole = [1, length]
    slid = [(1 + slide_steps) * length + 1] if slide_steps else whole
    states = [_counts(helper, shape) for shape in (slid, slid, whole, whole)]
    for out, (positive, negative), steps in (
        (batch, states[:2], slide_steps),
        (total, states[2:], 0),
    ):
        helper.append_op(
            "auc",
            {"Predict": input, "Label": label, "StatPos": positive, "StatNeg": negative},
            {"AUC": out, "StatPosOut": positive, "StatNegOut": negative},
            {"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps},
        )
    return total, batch, states


def _counts(helper: LayerHelper, shape: list[int]) -> Variable:
    return helper.create_global(
        unique_name.generate("_generated_var"),
        shape,
        VarType.INT64,
        ConstantInitializer(0.0),
        stop_gradient=True,
    )


def mean_iou(input: Variable, label: Variable, num_classes: int) -> tuple[Variable, ...]:
    """Return the mean intersection over union of classes, and by class the wrong and the right answers.

    Raises:
        InvalidType: ``input`` or ``label`` is no Variable of integers.
    """
    for argument, operand in (("input", input), ("label", label)):
        if not isinstance(operand, Variable) or operand.dtype not in INTEGERS:
            raise InvalidType(
                f"mean_iou: {argument} must be a Variable of integers, got {operand!r}."
            )
    helper = LayerHelper("mean_iou")
    kinds: dict[str, Any] = {"OutMeanIou": "float32", "OutWrong": "int32", "OutCorrect": "int32"}
    outputs = {slot: helper.new(dtype, stop_gradient=True) for slot, dtype in kinds.items()}
    inputs = {"Predictions": input, "Labels": label}
    helper.append_op("mean_iou", inputs, outputs, {"num_classes": num_classes})
    return tuple(outputs.values())
