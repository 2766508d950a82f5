"""Losses that look at few of many classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...strategies.errors import InvalidValue
from ..program.variable import Variable
from .arguments import Floats, Integers, check_variable
from .helper import LayerHelper
from .initializer import NumpyArrayInitializer
from .numbers import integer

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
        is_sparse: the gradient of the weight is rows on CPU places; the bias's is dense.
    """
    if sampler not in _SAMPLERS:
        raise InvalidValue(f"nce: sampler is one of {', '.join(_SAMPLERS)}, got {sampler!r}.")
    if (sampler == "custom_dist") != (custom_dist is not None):
        raise InvalidValue(
            'nce: custom_dist goes with sampler="custom_dist", and must be variable there.'
        )
    helper = LayerHelper("nce", name)
    classes = integer(num_total_classes, "num_total_classes", "nce")
    samples = 10 if num_neg_samples is None else integer(num_neg_samples, "num_neg_samples", "nce")
    assert input.shape is not None
    weight = helper.create_parameter(param_attr, [classes, input.shape[1]], input.dtype)
    bias = helper.create_parameter(bias_attr, [classes, 1], input.dtype, is_bias=True)
    inputs = {
        "Input": input,
        "Label": label,
        "Weight": weight,
        "Bias": bias,
        "SampleWeight": sample_weight,
    }
    if custom_dist is not None:
        inputs |= _distribution(helper, np.asarray(custom_dist, np.float64), classes)
    outputs = {
        "Cost": helper.new(input.dtype),
        "SampleLogits": helper.new(input.dtype, stop_gradient=True),
        "SampleLabels": helper.new("int64", stop_gradient=True),
    }
    attrs = {
        "num_total_classes": classes,
        "num_neg_samples": samples,
        "seed": integer(seed, "seed", "nce"),
        "sampler": _SAMPLERS.index(sampler),
        "is_sparse": is_sparse,
        "remote_prefetch": is_sparse,
    }
    helper.append_op("nce", inputs, outputs, attrs)
    return outputs["Cost"] / (samples + 1)


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
    helper, samples = LayerHelper("sample_logits"), integer(num_samples, "num_samples", layer)
    inputs = {"Logits": logits, "Labels": label}
    if use_customized_samples:
        for variable, argument in (
            (customized_samples, "customized_samples"),
            (customized_probabilities, "customized_probabilities"),
        ):
            check_variable(variable, argument, layer)
        inputs["CustomizedSamples"] = customized_samples  # type: ignore[assignment]  # checked above
        inputs["CustomizedProbabilities"] = customized_probabilities  # type: ignore[assignment]
    whole = ("Samples", "SampledLabels")
    slots = (*whole, "Probabilities", "SampledLogits", "LogitsDim", "LabelsDim")
    outputs = {slot: helper.new("int64" if slot in whole else logits.dtype) for slot in slots}
    helper.append_op(
        "sample_logits",
        inputs,
        outputs,
        {
            "use_customized_samples": use_customized_samples,
            "uniq": True,
            "remove_accidental_hits": remove_accidental_hits,
            "num_samples": samples,
            "seed": integer(seed, "seed", layer),
        },
    )
    soft_label = helper.apply(
        "one_hot", {"X": outputs["SampledLabels"]}, {"depth": samples + 1}, dtype=logits.dtype
    )
    losses = {"Softmax": helper.new(logits.dtype), "Loss": helper.new(logits.dtype)}
    helper.append_op(
        "softmax_with_cross_entropy",
        {"Logits": outputs["SampledLogits"], "Label": soft_label},
        losses,
        {"soft_label": True, "numeric_stable_mode": False},
    )
    return losses["Loss"] / num_true
