"""Of boxes that overlap those with the highest scores stay: non-maximum suppression, class by class.

How many stay is known only in a step. Legend: N images, M boxes of an image, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...strategies.types import VarType
from .compiled import HostFunction
from .largest import largest_first
from .latest import latest
from .levels import computed, define_level
from .operands import Array, Input, Offsets, Operands, Output
from .registry import Inference, Spec, Specs, define
from .rules import hold_floats, known_operands, match, of_shape
from .samples import sample, table, uniform
from .shapes import Sized, counted

_AT_ONCE = 64  # boxes that are compared with all others


class MulticlassNms(Operands):
    b_boxes: Input
    scores: Input
    b_boxes_lod: Offsets
    out: Output
    background_label: int = 0
    score_threshold: float = 0.0
    nms_top_k: int = 0
    nms_threshold: float = 0.3
    nms_eta: float = 1.0
    keep_top_k: int = 0
    normalized: bool = True


class MulticlassNms2(MulticlassNms):
    index: Output | None


class MatrixNms(Operands):
    b_boxes: Input
    scores: Input
    out: Output
    index: Output
    background_label: int = 0
    score_threshold: float = 0.0
    post_threshold: float = 0.0
    nms_top_k: int = 0
    keep_top_k: int = 0
    normalized: bool = True
    use_gaussian: bool = False
    gaussian_sigma: float = 2.0


class Choice(NamedTuple):
    """What stays, by image, then class or score: class, score and box [K, 6], their numbers [K], images [K]."""

    rows: Array
    numbers: Array
    images: Array
    total: int  # of images

    @classmethod
    def joined(cls, parts: Sequence[tuple[Array, Array]], dtype: Any) -> Choice:
        """Return the choice of rows and numbers that were chosen image by image."""
        if not parts:
            return cls(np.zeros((0, 6), dtype), *(np.zeros(0, np.int64),) * 2, 0)
        rows, numbers = (np.concatenate(side) for side in zip(*parts, strict=True))
        images = np.repeat(np.arange(len(parts)), [len(own) for own, _ in parts])
        return cls(rows, numbers, images, len(parts))

    def offsets(self) -> Array:
        """Return where the boxes of each image begin and end; if none stays, there is one row for all."""
        if not len(self.rows):
            return np.array([0, 1])
        return self.ends()

    def ends(self) -> Array:
        """Return where the boxes of each image begin and end."""
        return np.searchsorted(self.images, np.arange(self.total + 1))


@HostFunction
def overlap(boxes: Array, others: Array, normalized: bool, nearby: bool = False) -> Array:
    """Return the intersection over union of boxes [K, 4] with others [L, 4]: [K, L].

    Without ``normalized`` the last pixels belong to boxes; with ``nearby`` also where they are less than
    a pixel apart.
    """
    if len(others) < len(boxes):  # NumPy's inner loops are the long ones
        return overlap(others, boxes, normalized, nearby).T
    end = others.dtype.type(0 if normalized else 1)
    least = end - (1 if nearby else 0)  # of the length of a side that two boxes share

    left, right = np.ascontiguousarray(boxes.T), np.ascontiguousarray(others.T)

    def areas(of: Array) -> Array:
        width, height = of[2] - of[0], of[3] - of[1]
        return np.where((width < 0) | (height < 0), 0, (width + end) * (height + end))

    def side(k: int) -> Array:
        length = np.minimum(left[k + 2][:, None], right[k + 2])
        length -= np.maximum(left[k][:, None], right[k])
        length += end
        length *= length >= least
        return length

    with np.errstate(invalid="ignore"):  # boxes that are not finite, or empty, share nothing
        shared = side(0)
        shared *= side(1)
        covered = areas(left)[:, None] + areas(right)
        covered -= shared
        shared /= covered
    np.fmax(shared, 0, out=shared)
    return shared


@HostFunction
def suppressed(
    boxes: Array,
    scores: Array,
    threshold: float,
    eta: float = 1.0,
    normalized: bool = True,
    most: int = -1,
) -> Array:
    """Return the numbers of the boxes [K, 4] that stay, best first, ``most`` of them (-1: all).

    The threshold is multiplied by ``eta`` below 1 whenever a box stays, while it is above a half.
    """
    order = largest_first(scores)
    boxes, left = boxes[order], np.arange(len(order))
    # The largest overlap of each box with one that stays
    shares = np.zeros(len(order), boxes.dtype)
    stay: list[int] = []
    while left.size and len(stay) != most:
        first, left = left[:_AT_ONCE], left[_AT_ONCE:]
        own, before = shares[first], len(stay)
        rows = overlap(boxes[first], boxes[first], normalized)
        for k, (number, row) in enumerate(zip(first.tolist(), rows, strict=True)):
            if len(stay) == most:
                return order[stay]
            if own[k] > threshold:
                continue
            stay.append(number)
            np.maximum(own, row, out=own)
            threshold *= eta if eta < 1 and threshold > 0.5 else 1
        if left.size and len(stay) > before:
            rows = overlap(boxes[stay[before:]], boxes[left], normalized)
            shares[left] = np.maximum(shares[left], rows.max(0))
            left = left[shares[left] <= threshold]
    return order[stay]


def _images(a: Any, levels: Sequence[Array]) -> Iterator[tuple[Array, Array, int]]:
    """Return boxes [M, 4] or [M, C, 4] and scores [C, M] of each image, and how many boxes stand before."""
    if a.scores.ndim == 3:
        for n, (boxes, scores) in enumerate(zip(a.b_boxes, a.scores, strict=True)):
            yield boxes, scores, n * len(boxes)
    elif levels:
        for begin, end in pairwise(levels[-1]):
            yield a.b_boxes[begin:end], a.scores[begin:end].T, int(begin)


def _candidates(a: Any, scores: Array) -> Iterator[tuple[int, Array, Array]]:
    """Yield each class with its scores [M], and the numbers of the best above the threshold, best first."""
    for label, own in enumerate(scores):
        above = np.flatnonzero(own > a.score_threshold)
        if label != a.background_label and above.size:
            yield label, own, above[largest_first(own[above], a.nms_top_k)]


@latest(MulticlassNms)
def chosen(a: Any) -> Choice:
    """Choose boxes: those above the score threshold, ``nms_top_k`` of each class, ``keep_top_k`` of all."""
    parts: list[tuple[Array, Array]] = []
    for boxes, scores, before in _images(a, a.b_boxes_lod):
        rows, numbers = [np.zeros((0, 6), a.scores.dtype)], [np.zeros(0, np.int64)]
        for label, own, at in _candidates(a, scores):
            places = boxes[:, label] if boxes.ndim == 3 else boxes
            stay = at[suppressed(places[at], own[at], a.nms_threshold, a.nms_eta, a.normalized)]
            labels = np.full((len(stay), 1), label, own.dtype)
            rows.append(np.concatenate([labels, own[stay, None], places[stay]], 1))
            whole = (before + stay) * len(scores) + label if boxes.ndim == 3 else before + stay
            numbers.append(whole)
        chosen_rows, chosen_numbers = np.concatenate(rows), np.concatenate(numbers)
        if -1 < a.keep_top_k < len(chosen_rows):
            best = largest_first(chosen_rows[:, 1], a.keep_top_k)
            best = best[np.argsort(chosen_rows[best, 0], kind="stable")]
            chosen_rows, chosen_numbers = chosen_rows[best], chosen_numbers[best]
        if boxes.ndim == 3:  # in the order of the operand, class by class
            order = np.lexsort((chosen_numbers, chosen_rows[:, 0]))
            chosen_rows, chosen_numbers = chosen_rows[order], chosen_numbers[order]
        parts.append((chosen_rows, chosen_numbers))
    return Choice.joined(parts, a.scores.dtype)


@latest(MatrixNms)
def decayed(a: Any) -> Choice:
    """Lower the scores of boxes by what better ones of their class cover: Wang et al., arXiv 2003.10152, 3.2.

    Of each image stay the ``keep_top_k`` best boxes whose scores are then above ``post_threshold``.
    """
    parts: list[tuple[Array, Array]] = []
    for boxes, scores, before in _images(a, ()):
        rows, numbers = [np.zeros((0, 6), a.scores.dtype)], [np.zeros(0, np.int64)]
        for label, own, at in _candidates(a, scores):
            left = own[at] * _decay(a, np.tril(overlap(boxes[at], boxes[at], a.normalized), -1))
            stay = left > a.post_threshold
            labels = np.full((stay.sum(), 1), label, own.dtype)
            rows.append(np.concatenate([labels, left[stay, None], boxes[at[stay]]], 1))
            numbers.append(before + at[stay])
        image_rows, image_numbers = np.concatenate(rows), np.concatenate(numbers)
        best = largest_first(image_rows[:, 1], a.keep_top_k)
        parts.append((image_rows[best], image_numbers[best]))
    return Choice.joined(parts, a.scores.dtype)


def _decay(a: Any, shares: Array) -> Array:
    """Return the factor of each score, from what boxes [K] have in common with better ones: [K, K] below."""
    most, dtype = shares.max(1), shares.dtype.type
    better = np.tri(len(shares), k=-1, dtype=bool)
    with np.errstate(divide="ignore", invalid="ignore"):  # a box that another hides decays nothing
        if a.use_gaussian:
            factors = np.exp((most**2 - shares**2) * dtype(a.gaussian_sigma))
        else:
            factors = (1 - shares) / (1 - most)
    return np.fmin.reduce(np.where(better, factors, dtype(1)), axis=1, initial=dtype(1))


def _known(op: Inference) -> Choice | None:
    """Return the choice, or None if the boxes are not known yet."""
    operands = known_operands(op, MulticlassNms)
    return None if operands is None else chosen(operands)


def _match_boxes(op: Inference) -> None:
    """Refuse boxes and scores of other numbers than each other."""
    rank = len(op.shape("Scores"))
    op.require(rank in (2, 3), "Scores must be [N, C, M], or [M, C] of sequences")
    if rank == 3:
        match(op, Scores="N C M", BBoxes="N M 4")
    else:
        match(op, Scores="M C", BBoxes="M C 4")


def nms_shape(op: Inference) -> Mapping[str, Specs]:
    """[K, 6]; if no box stays, one row [-1], or with Index none."""
    hold_floats(op, "BBoxes", "Scores")
    _match_boxes(op)
    if len(op.shape("Scores")) == 2:
        op.sequences("BBoxes")
    choice = _known(op)
    count = -1 if choice is None else len(choice.rows)
    index = op.op.type == "multiclass_nms2"
    shape = (1, 1) if count == 0 and not index else (count, 6)
    return {"Out": of_shape(shape, op.spec("BBoxes")), "Index": Spec((count, 1), VarType.INT32)}


def _sequences(op: Inference) -> int:
    _match_boxes(op)
    return sequences_of(_known(op))


def sequences_of(choice: Choice | None) -> int:
    """Return how many sequences the boxes are: one for each image; one if no box stays; -1: not known yet."""
    return -1 if choice is None else len(choice.offsets()) - 1


def chosen_rows(choice: Choice) -> Mapping[str, Any]:
    """Return the results of an op that chooses: the boxes that stay, or -1."""
    return {"out": choice.rows if len(choice.rows) else -1, "index": choice.numbers[:, None]}


_BOXES = table(
    [
        [[0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.5, 0.52], [0.6, 0.6, 0.9, 0.8], [0.1, 0.3, 0.4, 0.9]],
        [[0.0, 0.2, 0.3, 0.5], [0.3, 0.2, 0.5, 0.5], [0.3, 0.2, 0.5, 0.45], [0.7, 0.1, 0.9, 0.3]],
    ]
)
_DENSE = {"BBoxes": _BOXES, "Scores": uniform(2, 3, 4, low=0.2)}
_LISTS = "BBoxes uniform [5 2 4], Scores uniform [5 2]"
_TOP = {"nms_top_k": 10, "keep_top_k": 5, "score_threshold": 0.3}
_SAMPLES = (
    sample(_DENSE, **_TOP),
    sample(_DENSE, **{**_TOP, "keep_top_k": -1}, background_label=-1, nms_eta=0.9),
    sample(_LISTS, "BBoxes@LOD [2 3]", **_TOP, normalized=False),
)
_REFUSES = (
    sample({"BBoxes": _BOXES}, "Scores uniform [2 3 4 1]"),
    sample("BBoxes uniform [2 4 8], Scores uniform [2 3 4]"),
)

_READ = ("BBoxes", "Scores", "BBoxes@LOD")
_NONE_STAYS = sample(_DENSE, score_threshold=2.0)
for _type, _record in (("multiclass_nms", MulticlassNms), ("multiclass_nms2", MulticlassNms2)):
    define(
        _type,
        _record,
        nms_shape,
        host=lambda a: chosen_rows(chosen(a)),
        reads_values=lambda attrs: _READ,
        lod=computed("lod_of_choice", "Out Index"),
        samples=_SAMPLES,
        refuses=_REFUSES,
    )
define_level(
    "lod_of_choice",
    MulticlassNms,
    lambda a: chosen(a).offsets(),
    count=_sequences,
    reads_values=lambda attrs: _READ,
    samples=(*_SAMPLES, _NONE_STAYS),
    refuses=(sample("BBoxes uniform [1 4 4], Scores uniform [2 3 4]"),),
)
_DECAYED = (
    sample(_DENSE, **_TOP, post_threshold=0.2),
    sample(_DENSE, **{**_TOP, "keep_top_k": -1}, background_label=-1, use_gaussian=True),
    sample(_DENSE, **_TOP, normalized=False),
)
define(
    "matrix_nms",
    MatrixNms,
    Sized(
        "BBoxes floats [N M 4], Scores as BBoxes [N C M] -> Out [K 6], Index int32 [K 1]",
        counted(MatrixNms, lambda a: {"K": len(decayed(a).rows)}),
    ),
    host=lambda a: chosen_rows(decayed(a)),
    lod=computed("lod_of_decayed", "Out Index"),
    samples=_DECAYED,
    refuses=_REFUSES,
)
define_level(
    "lod_of_decayed",
    MatrixNms,
    lambda a: decayed(a).ends(),
    count=lambda op: op.shape("Scores")[0],
    samples=(*_DECAYED, _NONE_STAYS),
)
