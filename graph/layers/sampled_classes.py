"""Losses that look at few of many classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...strategies.errors import InvalidValue
from ..program.variable import Variable
from .arguments import Floats, Integers, check_variable, known_sizes
from .helper import LayerHelper
from .initializer import NumpyArrayInitializer

_SAMPLERS = ("uniform", "log_uniform", "custom_dist")


def nce(
    input: Floats,
    label: Integers,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Any = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Return the loss of noise-contrastive estimation, [N, 1], divided by ``num_neg_samples`` + 1.

    Creates a weight [num_total_classes, D] and, unless ``bias_attr`` is False, a bias [num_total_classes, 1].

    Args:
        input: [N, D].
        label: the true classes, int64 [N, T].
        sample_weight: multiplies the loss of each row, [N, 1].
        num_neg_samples: how many classes are drawn for each row, 10 unless told.
        sampler: how: "uniform", "log_uniform" (smaller ones more often), "custom_dist".
        custom_dist: how often each class is drawn, for "custom_dist".
        seed: other than 0: the same are drawn in each step.
        is_sparse: the gradient of the weight is rows; the bias's is dense.
    """
    if sampler not in _SAMPLERS:
        raise InvalidValue(f"nce: sampler is one of {', '.join(_SAMPLERS)}, got {sampler!r}.")
    if (sampler == "custom_dist") != (custom_dist is not None):
        raise InvalidValue(
            'nce: custom_dist goes with sampler="custom_dist", and must be variable there.'
        )
    helper = LayerHelper("nce", name)
    samples = 10 if num_neg_samples is None else num_neg_samples
    (width,) = known_sizes("nce", input, 1, "the width")
    weight = helper.create_parameter(param_attr, [num_total_classes, width], input.dtype)
    bias = helper.create_parameter(bias_attr, [num_total_classes, 1], input.dtype, is_bias=True)
    distribution = {}
    if custom_dist is not None:
        distribution = _distribution(helper, np.asarray(custom_dist, np.float64), num_total_classes)
    cost, *_ = helper.layers(
        "nce",
        "Cost SampleLogits SampleLabels",
        "SampleLogits SampleLabels",
        **distribution,
        input=input,
        label=label,
        weight=weight,
        bias=bias,
        sample_weight=sample_weight,
        num_total_classes=num_total_classes,
        num_neg_samples=samples,
        seed=seed,
        sampler=_SAMPLERS.index(sampler),
        is_sparse=is_sparse,
        remote_prefetch=is_sparse,
    )
    return cost / (samples + 1)


def _distribution(helper: LayerHelper, shares: Any, classes: int) -> dict[str, Variable]:
    """Create what Paddle's sampler reads: the shares, and Walker's tables of aliases (1977)."""
    if shares.shape != (classes,) or (shares < 0).any() or not shares.sum() > 0:
        raise InvalidValue(
            f"nce: custom_dist must have {classes} shares of 0 or more, one a class."
        )
    rest, alias = shares * classes, np.full(classes, -1)
    small, large = (list(np.flatnonzero(where)) for where in (rest < 1, rest > 1))
    while small and large:
        low, high = small.pop(0), large.pop(0)
        alias[low] = high
        rest[high] += rest[low] - 1
        if rest[high] != 1:
            (large if rest[high] > 1 else small).append(high)
    rest[small + large] = 1
    tables = {
        "CustomDistProbs": shares.astype("float32"),
        "CustomDistAlias": alias.astype("int32"),
        "CustomDistAliasProbs": rest.astype("float32"),
    }
    parameters: dict[str, Any] = {
        slot: helper.create_parameter(
            None,
            list(values.shape),
            str(values.dtype),
            default_initializer=NumpyArrayInitializer(values),
            stop_gradient=True,
        )
        for slot, values in tables.items()
    }
    for parameter in parameters.values():
        parameter.trainable = False
    return parameters


def sampled_softmax_with_cross_entropy(
    logits: Floats,
    label: Integers,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Return the cross entropy of softmax over the true class and ``num_samples`` drawn ones, [N, 1].

    Classes are drawn log-uniform, none twice, the same for all rows; logits are less the logarithm of how often
    a class is expected. Jean et al., arXiv 1412.2007.

    Args:
        logits: [N, C].
        label: int64 [N, num_true].
        remove_accidental_hits: drawn classes that are true ones do not count.
        customized_samples, customized_probabilities: [N, num_true + num_samples], true classes first, in place
            of those that are drawn.
        seed: other than 0: the same are drawn in each step.
    """
    layer = "sampled_softmax_with_cross_entropy"
    helper = LayerHelper("sample_logits")
    inputs = {"Logits": logits, "Labels": label}
    if use_customized_samples:
        for variable, argument in (
            (customized_samples, "customized_samples"),
            (customized_probabilities, "customized_probabilities"),
        ):
            check_variable(variable, argument, layer)
        inputs["CustomizedSamples"] = customized_samples  # type: ignore[assignment]  # checked above
        inputs["CustomizedProbabilities"] = customized_probabilities  # type: ignore[assignment]
    _, sampled_labels, _, sampled_logits, *_ = helper.layers(
        "sample_logits",
        "Samples SampledLabels Probabilities SampledLogits LogitsDim LabelsDim",
        **inputs,
        use_customized_samples=use_customized_samples,
        uniq=True,
        remove_accidental_hits=remove_accidental_hits,
        num_samples=num_samples,
        seed=seed,
    )
    soft_label = helper.layer("one_hot", x=sampled_labels, depth=num_samples + 1)
    operands = {"logits": sampled_logits, "label": soft_label}
    settings = {"soft_label": True, "numeric_stable_mode": False}
    _, loss = helper.layers("softmax_with_cross_entropy", "Softmax Loss", **operands, **settings)
    return loss / num_true
