"""Layers that measure and decode sequences of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..program.variable import Variable
from .arguments import Int64
from .helper import LayerHelper, constant_layers
from .shape import squeeze, topk


def edit_distance(
    input: Int64,
    label: Int64,
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
    helper = LayerHelper("edit_distance")
    if ignored_tokens:
        tokens = list(ignored_tokens)
        input, label = (helper.layer("sequence_erase", x=x, tokens=tokens) for x in (input, label))
    fields = {"hyps": input, "refs": label, "normalized": normalized}
    if input_length is not None and label_length is not None:
        fields |= {"hyps_length": input_length, "refs_length": label_length}
    results = "Out SequenceNum"
    distances, count = helper.constant_layers("edit_distance", results, **fields)
    return distances, count


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
    attrs = {"merge_repeated": True, "blank": blank}
    if input_length is None:
        return helper.constant_layers("ctc_align", "Output", input=best, **attrs)[0]
    results = "Output OutputLength"
    inputs = {"input": squeeze(best, [2]), "input_length": input_length}
    attrs["padding_value"] = padding_value
    out, length = helper.constant_layers("ctc_align", results, **inputs, **attrs)
    return out, length


def chunk_eval(
    input: Int64,
    label: Int64,
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
    inputs = {"Inference": input, "Label": label, "SeqLength": seq_length}
    attrs = {
        "num_chunk_types": num_chunk_types,
        "chunk_scheme": chunk_scheme,
        "excluded_chunk_types": list(excluded_chunk_types or []),
    }
    results = "Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks"
    return constant_layers("chunk_eval", None, results, **inputs, **attrs)
