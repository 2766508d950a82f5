"""Layers that measure a model's answers."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidType, InvalidValue
from ...strategies.types import FLOATS, INTEGERS, VarType
from ..program import unique_name
from ..program.variable import Variable
from .helper import LayerHelper, constant_layers
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
    zero = ConstantInitializer(0.0)
    states = [
        _persistable(helper, shape, VarType.INT64, zero) for shape in (slid, slid, whole, whole)
    ]
    for out, (positive, negative), steps in (
        (batch, states[:2], slide_steps),
        (total, states[2:], 0),
    ):
        helper.layers(
            "auc",
            "",
            predict=input,
            label=label,
            stat_pos=positive,
            stat_neg=negative,
            AUC=out,
            stat_pos_out=positive,
            stat_neg_out=negative,
            curve=curve,
            num_thresholds=num_thresholds,
            slide_steps=steps,
        )
    return total, batch, states


def _persistable(
    helper: LayerHelper, shape: list[int], dtype: VarType, first: ConstantInitializer
) -> Variable:
    name = unique_name.generate("_generated_var")
    return helper.create_global(name, shape, dtype, first, stop_gradient=True)


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
    results = "OutMeanIou OutWrong OutCorrect"
    fields = {"predictions": input, "labels": label, "num_classes": num_classes}
    return constant_layers("mean_iou", None, results, **fields)


def ctr_metric_bundle(input: Variable, label: Variable) -> tuple[Variable, ...]:
    """Add up, over all steps, what measures of predicted clicks are made of, in persistables of one float32.

    They are the squares and the sizes of errors, the predictions, their sigmoids, the labels and the rows: a
    mean is a quotient by the last. Each place of a parallel program adds up its rows.

    Args:
        input: predictions, float32 [N, 1].
        label: 0 or 1, float32 [N, 1].

    Returns:
        Sums of squared errors, of errors' sizes, of predictions, of sigmoids, of labels, and the rows.

    Raises:
        InvalidType: an argument holds no float32.
        InvalidValue: their shapes differ.
    """
    for argument, operand in (("input", input), ("label", label)):
        if not isinstance(operand, Variable) or operand.dtype != VarType.FP32:
            raise InvalidType(
                f"ctr_metric_bundle: {argument} must be a Variable of float32, got {operand!r}."
            )
    if input.shape != label.shape:
        raise InvalidValue(
            f"ctr_metric_bundle: input and label must have one shape, got {input.shape} and {label.shape}."
        )
    helper = LayerHelper("ctr_metric_bundle")
    zero = ConstantInitializer(0.0, force_cpu=True)
    sizes, squares, chances, sigmoids, clicks, rows = (
        _persistable(helper, [1], VarType.FP32, zero) for _ in range(6)
    )

    def computed(op_type: str, **fields: Any) -> Variable:
        name = unique_name.generate("_generated_var")
        out = helper.block.create_var(name=name, dtype="float32", stop_gradient=True)
        helper.layers(op_type, "", **fields, out=out)
        return out

    def add(op_type: str, x: Variable, total: Variable) -> None:
        helper.layers("elementwise_add", "", x=computed(op_type, x=x), y=total, out=total)

    errors = computed("elementwise_sub", x=input, y=label)
    add("squared_l2_norm", errors, squares)
    add("l1_norm", errors, sizes)
    add("reduce_sum", input, chances)
    add("reduce_sum", computed("sigmoid", x=input), sigmoids)
    add("reduce_sum", label, clicks)
    ones = {"shape": [-1, 1], "dtype": VarType.FP32, "value": 1.0}
    add("reduce_sum", computed("fill_constant_batch_size_like", input=label, **ones), rows)
    return squares, sizes, chances, sigmoids, clicks, rows
