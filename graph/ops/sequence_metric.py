"""Measures and decoders of sequences of labels. Legend: B sequences, T labels of a padded one; N in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ...strategies.types import INTEGERS, VarType
from . import formula as f
from .lod import Lods, no_sequences
from .lod_levels import collapsed
from .operands import Array, Input, Offsets, Operands, Output, named
from .registry import Inference, Spec, Specs, define
from .rules import is_column, merge_dims, of_shape, same_shape
from .samples import sample
from .shapes import Sized

SCHEMES = {"plain": 1, "IOB": 2, "IOE": 2, "IOBES": 4}  # tags of a chunk type


def _labels(op: Inference, slot: str, length: str) -> int:
    """Check labels, [N, 1] in sequences or [B, T] with lengths; return how many sequences there are, or -1."""
    spec = op.spec(slot)
    op.require(spec.dtype in INTEGERS, f"{slot} must hold integers")
    if not op.has(length):
        op.require(
            is_column(spec.shape),
            f"{slot} must have one label in a row, [N, 1], or {length} must be given",
        )
        return op.sequences(slot)
    padded = len(spec.shape) == 2 or (len(spec.shape) == 3 and spec.shape[2] in (1, -1))
    op.require(padded, f"{slot} must be padded sequences [B, T], as {length} is given")
    counts = op.shape(length)
    fits = is_column(counts) and (counts[0] == spec.shape[0] or min(counts[0], spec.shape[0]) < 0)
    op.require(fits, f"{length} must have one number for each row of {slot}")
    return spec.shape[0]


# -- edit_distance ----------------------------------------------------------------------------------


class EditDistance(Operands):
    hyps: Input
    refs: Input
    hyps_length: Input | None
    refs_length: Input | None
    hyps_lod: Offsets
    refs_lod: Offsets
    sequence_num: Output
    out: Output
    normalized: bool = False


def distance_shape(op: Inference) -> Mapping[str, Specs]:
    """A distance for each pair, float32 [B, 1], and their number, int64 [1]."""
    counts = [_labels(op, "Hyps", "HypsLength"), _labels(op, "Refs", "RefsLength")]
    together = op.has("HypsLength") == op.has("RefsLength")
    op.require(together, "HypsLength and RefsLength must be given together")
    known = {count for count in counts if count >= 0}
    op.require(len(known) <= 1, f"Hyps has {counts[0]} sequences, Refs {counts[1]}")
    return {"Out": Spec((max(counts), 1), VarType.FP32), "SequenceNum": Spec((1,), VarType.INT64)}


_PAIR = "Hyps 0:3 [7 1], Hyps@LOD [3 0 4], Refs 0:3 [6 1], Refs@LOD [2 1 3]"
define(
    "edit_distance",
    EditDistance,
    distance_shape,
    lod=no_sequences,
    samples=(
        sample(_PAIR),
        sample(_PAIR, normalized=True),
        sample(
            "Hyps 0:3 [3 4], Refs 0:3 [3 5], HypsLength lengths [4 0 2], RefsLength lengths [3 2 5]",
            normalized=True,
        ),
    ),
    refuses=(
        sample(_PAIR, "Refs@LOD [2 4]"),
        sample(_PAIR, "Hyps [7 1]"),
        sample("Hyps 0:3 [7 1], Refs 0:3 [6 1]"),
    ),
)


# -- ctc_align --------------------------------------------------------------------------------------


class CtcAlign(Operands):
    input: Input
    input_length: Input | None
    input_lod: Offsets
    output: Output
    output_length: Output | None
    blank: int = 0
    merge_repeated: bool = True
    padding_value: int = 0


def aligned(a: CtcAlign) -> f.Results:
    """Drop blanks and, where ``merge_repeated``, labels that are equal to the one before."""
    labels = a.input.reshape(-1)
    if a.input_length is not None:
        return _aligned_rows(a, labels, a.input_length)
    # A -1 behind all labels is taken if none of these is left.
    ends = f.offsets(collapsed(labels, a.input_lod[-1], a.blank, a.merge_repeated))
    none = f.where(f.equal(ends[-1:], 0), 1, 0)
    labels = f.concatenate([labels, f.full((1,), -1, labels.dtype)])
    ends = f.concatenate([ends, ends[-1:] + none])
    return {"output": f.take(labels, f.sequence_of(ends, a.output.shape[0])).reshape(-1, 1)}


def _aligned_rows(a: CtcAlign, labels: Array, length: Array) -> f.Results:
    """Of padded sequences: what is left of a row, and padding behind it."""
    rows, columns = a.input.shape[:2]
    of = f"lengths that {columns} columns of Input have room for"
    length = f.checked(length.reshape(-1, 1), columns + 1, "length", of)
    starts, column = np.arange(rows + 1) * columns, f.table(np.arange(columns), "int64")
    stays = collapsed(labels, f.table(starts), a.blank, a.merge_repeated)
    stays = f.where(column < length, stays.reshape(rows, columns), 0).reshape(-1)
    before = f.offsets(stays)
    starts_left = f.take(before, starts)
    place = before[:-1].reshape(rows, columns) + (
        starts[:-1, None] - starts_left[:-1].reshape(-1, 1)
    )
    place = f.where(f.equal(stays, 1), place.reshape(-1), rows * columns)  # or behind all
    together = f.row_sums(place, labels, rows * columns + 1)[:-1].reshape(rows, columns)
    count = f.lengths(starts_left).reshape(-1, 1)
    output = f.where(column < count, together, a.padding_value).reshape(a.input.shape)
    return {"output": output, "output_length": count}


def left(labels: np.ndarray, ends: np.ndarray, blank: int, merged: bool) -> int:
    """Return how many labels are left without blanks and, if ``merged``, repetitions; a row of -1 if none."""
    count, labels = 0, labels.reshape(-1)
    for begin, end in pairwise(ends):
        part = labels[begin:end]
        new = part != np.concatenate([[blank], part[:-1]]) if merged else True
        count += int(((part != blank) & new).sum())
    return max(count, 1)


def align_shape(op: Inference) -> Mapping[str, Specs]:
    """What is left of [N, 1], or of [B, T] in as many columns, with lengths [B, 1]."""
    count = _labels(op, "Input", "InputLength")
    labels = op.spec("Input")
    if op.has("InputLength"):
        return {"Output": labels, "OutputLength": Spec((count, 1), VarType.INT64)}
    elements, ends = op.value("Input"), op.offsets("Input")
    rows = -1
    if elements is not None and ends is not None:
        rows = left(elements, ends, op.attr("blank"), op.attr("merge_repeated"))
    return {"Output": of_shape((rows, 1), labels)}


def align_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """What is left of a sequence stays one."""
    levels = op.of("Input")
    if not levels or op.uses("InputLength"):
        return {}
    attrs = {name: op.attrs[name] for name in ("blank", "merge_repeated")}
    operands = {"X": levels[-1:], "Rows": [op.value("Input")]}
    return {"Output": (op.level("lod_aligned", operands, attrs),)}


_PATHS = "Input 0:3 [9 1], Input@LOD [5 0 4]"
define(
    "ctc_align",
    CtcAlign,
    align_shape,
    reads_values=lambda attrs: ("Input", "Input@LOD"),
    reads_none_with="InputLength",
    lod=align_lod,
    formula=aligned,
    samples=(
        sample(_PATHS),
        sample(_PATHS, blank=2, merge_repeated=False),
        sample("Input 0:3 [3 5], InputLength lengths [5 0 3]", padding_value=-1),
    ),
    refuses=(sample("Input 0:3 [9 1]"), sample("Input 0:3 [3 5], InputLength lengths [5 0]")),
)


# -- chunk_eval -------------------------------------------------------------------------------------


class ChunkEval(Operands):
    inference: Input
    label: Input
    seq_length: Input | None
    inference_lod: Offsets
    label_lod: Offsets
    precision: Output
    recall: Output
    f1_score: Output = named("F1-Score")
    num_infer_chunks: Output
    num_label_chunks: Output
    num_correct_chunks: Output
    num_chunk_types: int = 1
    chunk_scheme: Literal["plain", "IOB", "IOE", "IOBES"] = "IOB"
    excluded_chunk_types: Sequence[int] = []


def _check_chunks(op: Inference) -> None:
    sequences, others = (_labels(op, slot, "SeqLength") for slot in ("Inference", "Label"))
    alike = merge_dims(sequences, others) is not None
    op.require(alike, f"Inference has {sequences} sequences, Label {others}")
    same_shape(op, "Inference", "Label")


def _tags(scheme: str, types: int = 2) -> str:
    labels = f"0:{types * SCHEMES[scheme] + 1} [12 1]"
    return f"Inference {labels}, Label {labels}, Inference@LOD [7 0 5], Label@LOD [7 0 5]"


define(
    "chunk_eval",
    ChunkEval,
    Sized(
        "Inference, Label "
        "-> Precision float32 [1], Recall float32 [1], F1-Score float32 [1], "
        "NumInferChunks int64 [1], NumLabelChunks int64 [1], NumCorrectChunks int64 [1]",
        _check_chunks,
    ),
    lod=no_sequences,
    samples=(
        *(sample(_tags(scheme), num_chunk_types=2, chunk_scheme=scheme) for scheme in SCHEMES),
        sample(_tags("IOB", 3), num_chunk_types=3, excluded_chunk_types=[1]),
        sample(
            "Inference 0:5 [3 5], Label 0:5 [3 5], SeqLength lengths [5 2 0]", num_chunk_types=2
        ),
    ),
    refuses=(
        sample("Inference 0:3 [4 1], Label 0:3 [4 1]"),
        sample(_tags("IOB"), "Label@LOD [7 5]", num_chunk_types=2),
    ),
)
