"""Chains of tags and alignments of labels, over sequences (LoD) or padded batches."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidValue
from ..program.variable import Variable
from .arguments import Floats, Integers, known_sizes
from .helper import LayerHelper, layers
from .param_attr import ParamAttr


def linear_chain_crf(
    input: Floats, label: Integers, param_attr: Any = None, length: Variable | None = None
) -> Variable:
    """Return the negative log-likelihood of each sequence of tags, [sequences, 1].

    Creates the scores of transitions, [tags + 2, tags]: of the first tag, of the last, of j after i.

    Args:
        input: scores of tags, [N, tags] with one level of sequences, or [B, T, tags] with ``length``.
        label: the tags, [N, 1], or [B, T].
        length: how many steps of each row count, [B, 1].
    """
    helper = LayerHelper("linear_chain_crf")
    (tags,) = known_sizes("linear_chain_crf", input, 1 if length is None else 2, "the tags")
    transition = helper.create_parameter(param_attr, [tags + 2, tags], input.dtype)
    results = "Alpha EmissionExps TransitionExps LogLikelihood"
    fields = {"emission": input, "transition": transition, "label": label, "length": length}
    return helper.layers("linear_chain_crf", results, **fields)[-1]


def crf_decoding(
    input: Floats, param_attr: Any, label: Variable | None = None, length: Variable | None = None
) -> Variable:
    """Return the best tags of each sequence, int64; with ``label`` 1 where they are the same, else 0.

    Args:
        input: see :func:`linear_chain_crf`.
        param_attr: names the transitions that ``linear_chain_crf`` created.

    Returns:
        [N, 1] with the sequences of ``input``, or [B, T] with ``length``: 0 behind the end.

    Raises:
        InvalidValue: there is no such parameter.
    """
    helper = LayerHelper("crf_decoding")
    settings = ParamAttr.of(param_attr)
    name = None if settings is None else settings.name
    block = helper.main_program.global_block()
    if not name or not block.has_var(name):
        raise InvalidValue(
            f"crf_decoding: param_attr must name the transitions of linear_chain_crf, and the program has no "
            f"{name!r}: give both layers ParamAttr(name=...)."
        )
    inputs = {"Emission": input, "Transition": block.var(name), "Label": label, "Length": length}
    return helper.constant_layers("crf_decoding", "ViterbiPath", **inputs)[0]


def warpctc(
    input: Floats,
    label: Integers,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """Return the loss of connectionist temporal classification of each sequence, [sequences, 1].

    It is 0, and has no gradient, where no path reads as the labels.

    Args:
        input: logits, which softmax is not applied to yet: [N, C] with sequences, or [T, B, C] with lengths.
        label: [M, 1] with sequences, or [B, L] with lengths.
        blank: the class that stands between labels.
        norm_by_times: divide the gradient of each sequence by its steps; the loss stays.
        input_length, label_length: both, or neither: [B].
    """
    inputs = {"Logits": input, "Label": label}
    if input_length is not None and label_length is not None:
        inputs |= {"LogitsLength": input_length, "LabelLength": label_length}
    attrs = {"blank": blank, "norm_by_times": norm_by_times}
    return layers("warpctc", None, "WarpCTCGrad Loss", **inputs, **attrs)[1]
