"""Measures of sequences of labels on CPUs; chunks are counted on the host beside a GPU, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ....graph.ops.lod_levels import unlike
from ....graph.ops.operands import Array
from ....graph.ops.sequence_metric import SCHEMES, ChunkEval, EditDistance
from ....strategies.errors import InvalidValue, SequenceError
from ..registry import each_step


def _parts(op: str, slot: str, labels: Array, lod: list[Array], length: Any) -> list[Array]:
    """Return each sequence's labels.

    Raises:
        SequenceError: the sequences do not end where the labels do.
        InvalidValue: a length is outside the padded row.
    """
    if length is None:
        ends, flat = lod[-1], labels.reshape(-1)
        if not ends[-1] and flat.tolist() == [-1]:  # ``ctc_align`` has left no label
            flat = flat[:0]
        if ends[-1] != flat.size:
            raise SequenceError(
                f"{op}: the sequences of {slot} end at row {ends[-1]}, and it has {flat.size} rows"
            )
        return [flat[begin:end] for begin, end in pairwise(ends)]
    rows, counts = labels.reshape(labels.shape[:2]), length.reshape(-1)
    for count in counts[(counts < 0) | (counts > rows.shape[1])][:1]:
        raise InvalidValue(f"{op}: length {count} is outside the {rows.shape[1]} columns of {slot}")
    return [row[:count] for row, count in zip(rows, counts, strict=True)]


@each_step("edit_distance", on=("numpy",))
def edit_distance(a: EditDistance) -> None:
    """Insertions, deletions and substitutions from a sequence to its reference (Levenshtein, 1966)."""
    hyps = _parts("edit_distance", "Hyps", a.hyps, a.hyps_lod, a.hyps_length)
    refs = _parts("edit_distance", "Refs", a.refs, a.refs_lod, a.refs_length)
    lengths = np.array([ref.size for ref in refs])
    if a.normalized and not lengths.all():
        raise InvalidValue(
            f"edit_distance: reference {lengths.argmin()} is empty, so the distance cannot be divided by its "
            f"length. Leave it out, or say normalized=False."
        )
    a.out[:, 0] = _distances(hyps, refs) / (lengths if a.normalized else 1)
    a.sequence_num[...] = len(refs)


def _distances(hyps: Sequence[Array], refs: Sequence[Array]) -> Array:
    """Return the distance of each pair, all pairs a label at a time."""
    ends, lengths = (np.array([part.size for part in parts]) for parts in (hyps, refs))
    steps = np.arange(lengths.max(initial=0) + 1)
    labels = np.zeros((len(refs), len(steps) - 1), refs[0].dtype if refs else np.int64)
    for row, ref in zip(labels, refs, strict=True):
        row[: ref.size] = ref
    costs = np.tile(steps, (len(refs), 1))  # from nothing to the first so many of refs
    for done in range(ends.max(initial=0)):
        (under_way,) = (ends > done).nonzero()
        own = np.array([hyps[k][done] for k in under_way.tolist()])[:, None]
        changed = costs[under_way, :-1] + (labels[under_way] != own)
        costs[under_way, 1:] = np.minimum(costs[under_way, 1:] + 1, changed)
        costs[under_way, 0] = done + 1
        insertions = np.minimum.accumulate(costs[under_way] - steps, 1)
        costs[under_way] = insertions + steps
    return costs[np.arange(len(refs)), lengths]


@each_step("chunk_eval", on=("numpy",))
def chunk_eval(a: ChunkEval) -> None:
    """Count chunks of both, and those of one type, first and last label."""
    counts = [0, 0, 0]
    lods = (a.inference_lod, a.label_lod)
    if a.seq_length is None and not np.array_equal(lods[0][-1], lods[1][-1]):
        raise SequenceError(unlike("chunk_eval", "Inference", lods[0][-1], "Label", lods[1][-1]))
    pairs = (
        _parts("chunk_eval", slot, labels, lod, a.seq_length)
        for slot, labels, lod in zip(
            ("Inference", "Label"), (a.inference, a.label), lods, strict=True
        )
    )
    for inferred, labelled in zip(*pairs, strict=True):
        guesses, chunks = (set(_chunks(tags.tolist(), a)) for tags in (inferred, labelled))
        for k, group in enumerate((guesses, chunks, guesses & chunks)):
            counts[k] += len(group)
    said, meant, right = counts
    precision, recall = right / said if said else 0.0, right / meant if meant else 0.0
    a.precision[...], a.recall[...] = precision, recall
    a.f1_score[...] = 2 * precision * recall / (precision + recall) if right else 0.0
    a.num_infer_chunks[...], a.num_label_chunks[...] = said, meant
    a.num_correct_chunks[...] = right


def _chunks(tags: list[int], a: ChunkEval) -> Iterator[tuple[int, int, int]]:
    """Return type, begin and end of each chunk: tag = type * tags of a type + position in the chunk."""
    count, other = SCHEMES[a.chunk_scheme], a.num_chunk_types
    kind, start, before = other, 0, -1
    for i, tag in enumerate([*tags, other * count]):
        if not 0 <= tag <= other * count:
            raise InvalidValue(f"chunk_eval: label {tag} is outside the {other * count + 1} labels")
        new, position = divmod(tag, count)
        if kind != other and _ends(a.chunk_scheme, before, position, kind != new):
            if kind not in a.excluded_chunk_types:
                yield kind, start, i
            kind = other
        if new != other and kind == other:
            kind, start = new, i
        before = position


def _ends(scheme: str, before: int, position: int, changed: bool) -> bool:
    """Tell whether a chunk ends before a label, by the position of this label and of the one before."""
    if changed:
        return True
    if scheme == "IOB":
        return position == 0
    if scheme == "IOE":
        return before == 1
    if scheme == "IOBES":
        return position in (0, 3) or before in (2, 3)
    return False
