"""Layers that measure and decode sequences of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidType
from ...strategies.types import VarType
from ..program.variable import Variable
from .arguments import check_variable
from .helper import LayerHelper, layers
from .numbers import integer
from .shape import squeeze, topk


def _labels(x: Variable, argument: str, layer: str) -> None:
    check_variable(x, argument, layer)
    if x.dtype != VarType.INT64:
        raise InvalidType(f"{layer}: {argument} must hold int64, and {x.name!r} holds {x.dtype}.")


def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: Sequence[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """Count insertions, deletions and substitutions that make a sequence of labels its reference.

    Args:
        input, label: int64, sequences [N, 1], or padded [B, T] with lengths [B].
        normalized: divide by the length of the reference; a step fails where that is 0.
        ignored_tokens: are left out of both first.

    Returns:
        Distances, float32 [B, 1], and their number, int64 [1].
    """
    _labels(input, "input", "edit_distance")
    _labels(label, "label", "edit_distance")
    helper = LayerHelper("edit_distance")
    if ignored_tokens:
        attrs = {"tokens": list(ignored_tokens)}
        input, label = (
            helper.apply("sequence_erase", {"X": x}, attrs, dtype="int64") for x in (input, label)
        )
    inputs = {"Hyps": input, "Refs": label}
    if input_length is not None and label_length is not None:
        inputs |= {"HypsLength": input_length, "RefsLength": label_length}
    out = helper.new("float32", stop_gradient=True)
    count = helper.new("int64", stop_gradient=True)
    helper.append_op(
        "edit_distance", inputs, {"Out": out, "SequenceNum": count}, {"normalized": normalized}
    )
    return out, count


def ctc_greedy_decoder(
    input: Variable,
    blank: int,
    input_length: Variable | None = None,
    padding_value: int = 0,
    name: str | None = None,
) -> Any:
    """Return the labels of the best path: without blanks, repetitions merged.

    Args:
        input: probabilities [N, classes] in sequences, or padded [B, T, classes].
        input_length: how many steps of each padded row there are, [B] or [B, 1].

    Returns:
        Labels in sequences, int64 [n, 1]; one row of -1 if none is left. Or, of padded rows, [B, T] filled with
        ``padding_value``, and lengths [B, 1].
    """
    helper = LayerHelper("ctc_greedy_decoder", name)
    _, best = topk(input, 1)
    attrs: dict[str, Any] = {
        "merge_repeated": True,
        "blank": integer(blank, "blank", "ctc_greedy_decoder"),
    }
    out = helper.new("int64", stop_gradient=True)
    if input_length is None:
        helper.append_op("ctc_align", {"Input": best}, {"Output": out}, attrs)
        return out
    length = helper.new("int64", stop_gradient=True)
    attrs["padding_value"] = padding_value
    inputs = {"Input": squeeze(best, [2]), "InputLength": input_length}
    helper.append_op("ctc_align", inputs, {"Output": out, "OutputLength": length}, attrs)
    return out, length


def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Sequence[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, ...]:
    """Measure chunks (phrases of one type) by their labels: type * tags of a type + tag.

    Args:
        input, label: int64, sequences [N, 1], or padded [B, T] with lengths ``seq_length`` [B].
        chunk_scheme: ``plain`` (one tag a type), ``IOB`` (B, I), ``IOE`` (I, E) or ``IOBES`` (B, I, E, S).
        excluded_chunk_types: types that do not count.

    Returns:
        Precision, recall and F1, float32 [1]; how many chunks there are in ``input``, in ``label`` and in both,
        int64 [1].
    """
    _labels(input, "input", "chunk_eval")
    _labels(label, "label", "chunk_eval")
    inputs = {"Inference": input, "Label": label, "SeqLength": seq_length}
    attrs = {
        "num_chunk_types": integer(num_chunk_types, "num_chunk_types", "chunk_eval"),
        "chunk_scheme": chunk_scheme,
        "excluded_chunk_types": list(excluded_chunk_types or []),
    }
    results = "Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks"
    return layers("chunk_eval", None, results, results, **inputs, **attrs)
