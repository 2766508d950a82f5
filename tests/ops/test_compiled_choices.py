"""Compiled forms of what shape rules and kernels of boxes, labels and lists call return NumPy's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.capabilities import installed
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.box_choice import overlap, suppressed
from rowlock.graph.ops.largest import largest_first
from rowlock.graph.ops.locality_nms import merged
from rowlock.graph.ops.registry import OPS
from rowlock.graph.ops.selection import numbered
from rowlock.strategies.errors import InvalidValue, SequenceError

compiled = pytest.mark.skipif("llvm" not in installed(), reason="LLVM is not installed")
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]


def boxes(rng: np.random.Generator, count: int, special: bool) -> np.ndarray:
    first, size = rng.random((count, 2)) * 70, rng.random((count, 2)) * 30 - 2 * special
    result = np.concatenate([first, first + size], 1).astype("f4")
    if special:
        places = rng.integers(0, count, count // 9), rng.integers(0, 4, count // 9)
        result[places] = rng.choice(SPECIAL, count // 9)
    return result


@compiled
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(("count", "others"), [(1, 1), (7, 300), (300, 12)])
@pytest.mark.parametrize("settings", [(True, False), (False, False), (False, True)])
def test_overlaps(settings: Any, count: int, others: int, special: bool) -> None:
    rng = np.random.default_rng(count)
    operands = boxes(rng, count, special), boxes(rng, others, special), *settings
    assert overlap.compiled is not None
    loop = overlap.compiled(*operands)
    assert loop is not None
    with np.errstate(invalid="ignore", over="ignore"):
        np.testing.assert_array_equal(loop, overlap.plain(*operands))


@compiled
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("eta", [1.0, 0.9])
@pytest.mark.parametrize("most", [-1, 0, 1, 20])
def test_suppression(most: int, eta: float, special: bool) -> None:
    rng = np.random.default_rng(most + 2)
    assert suppressed.compiled is not None
    for count in (1, 70, 400):
        scores = rng.random(count).round(2).astype("f4")  # some are equal
        operands = boxes(rng, count, special), scores, 0.6, eta, count == 70, most
        loop = suppressed.compiled(*operands)
        assert loop is not None
        with np.errstate(invalid="ignore", over="ignore"):
            np.testing.assert_array_equal(loop, suppressed.plain(*operands))


@compiled
@pytest.mark.parametrize("normalized", [False, True])
def test_merging(normalized: bool) -> None:
    rng = np.random.default_rng(1)
    places = np.cumsum(rng.random((200, 2)) * 4, 0)
    near = np.concatenate([places, places + 9], 1).astype("f4")
    scores = rng.random(200).astype("f4")
    assert merged.compiled is not None
    sides = [(near.copy(), scores.copy()) for _ in range(2)]
    forms = merged.compiled, merged.plain
    stays = [form(*side, normalized, 0.3) for form, side in zip(forms, sides, strict=True)]
    assert stays[0] is not None and 1 < len(stays[0]) < 200
    for results in zip((stays[0], *sides[0]), (stays[1], *sides[1]), strict=True):
        np.testing.assert_array_equal(*results)


@compiled
@pytest.mark.parametrize(
    "x",
    [
        np.arange(20000) ** 2 % 501,
        np.arange(-50, 50, dtype="i4")[::3] // 7,
        np.array([2**62, -(2**62), 2**62, 0, -1]),
        np.array([0.5, *SPECIAL, 0.5, 1.5], "f4"),
    ],
)
def test_numbers_of_what_differs(x: np.ndarray) -> None:
    assert numbered.compiled is not None
    loop, plain = numbered.compiled(x), numbered.plain(x)
    assert loop is not None
    for one, other in zip(loop, plain, strict=True):
        np.testing.assert_array_equal(one, other)


def test_elements_that_no_loop_knows_are_left_to_numpy() -> None:
    wide = np.array([3.0, 1.0, 3.0])
    assert numbered(wide).first.tolist() == [0, 1]
    assert overlap(np.array([[0.0, 0, 1, 1]]), np.array([[0.0, 0, 1, 1]]), True).tolist() == [[1.0]]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("most", [-1, 0, 1, 70, 99])
def test_the_largest_come_first_and_equal_ones_in_their_order(most: int, dtype: str) -> None:
    rng = np.random.default_rng(3)
    scores = rng.standard_normal(70).round(1).astype(dtype)
    scores[rng.integers(0, 70, 20)] = rng.choice(SPECIAL, 20)
    expected = np.argsort(-scores, kind="stable")
    np.testing.assert_array_equal(
        largest_first(scores, most), expected if most < 0 else expected[:most]
    )


LABELS, ENDS = np.array([[0], [1], [2], [0], [3]]), np.array([0, 2, 5])
PAIRS = {"Hyps": LABELS, "Hyps@LOD": ENDS, "Refs": LABELS, "Refs@LOD": ENDS}
CHUNKS = {"Inference": LABELS, "Inference@LOD": ENDS, "Label": LABELS, "Label@LOD": ENDS}
RATIOS = dict.fromkeys(("Precision", "Recall", "F1-Score"), np.zeros(1, "f4"))
COUNTS = ("NumInferChunks", "NumLabelChunks", "NumCorrectChunks")
MEASURES = {**RATIOS, **dict.fromkeys(COUNTS, np.zeros(1, "i8"))}
DISTANCES = {"Out": np.zeros((2, 1), "f4"), "SequenceNum": np.zeros(1, "i8")}
PATH = {"ViterbiPath": np.zeros((5, 1), "i8")}
SCORES = {"Emission": np.zeros((5, 3), "f4"), "Emission@LOD": ENDS}


LONGER, OTHERS = np.array([0, 2, 6]), np.array([0, 3, 5])
NONE_LAST = np.array([0, 5, 5])
TYPES: dict[str, Any] = {"num_chunk_types": 2}
DISTANCE = "edit_distance", DISTANCES
CHUNK = "chunk_eval", MEASURES
CHAIN = {**SCORES, "Transition": np.zeros((5, 3), "f4")}
BAD: list[Any] = [
    (*DISTANCE, {**PAIRS, "Refs@LOD": LONGER}, {}, SequenceError, "Refs end at row 6"),
    (
        *DISTANCE,
        {**PAIRS, "Refs@LOD": NONE_LAST},
        {"normalized": True},
        InvalidValue,
        "reference 1 ",
    ),
    (*CHUNK, {**CHUNKS, "Label": LABELS + 3}, TYPES, InvalidValue, "label 5"),
    (*CHUNK, {**CHUNKS, "Label": LABELS - 1}, TYPES, InvalidValue, "label -1"),
    (
        *CHUNK,
        {**CHUNKS, "Label@LOD": OTHERS},
        TYPES,
        SequenceError,
        r"\[2, 3\], those of Label \[3, 2\]",
    ),
    ("crf_decoding", PATH, {**CHAIN, "Emission@LOD": LONGER}, {}, SequenceError, "end at row 6"),
]


@pytest.mark.parametrize("back_end", ["numpy", pytest.param("llvm", marks=compiled)])
@pytest.mark.parametrize(("op", "outputs", "inputs", "attrs", "error", "text"), BAD)
def test_what_is_bad_is_refused_alike(
    back_end: str, op: str, inputs: Any, outputs: Any, attrs: Any, error: Any, text: str
) -> None:
    slots = ({slot: [array] for slot, array in side.items()} for side in (inputs, outputs))
    steps = bind(op, *slots, {**OPS[op].attrs, **attrs}, Device(), back_end)
    with pytest.raises(error, match=text):
        for step in steps:
            step()


@compiled
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("judged", [False, True])
def test_the_best_chain_of_tags(judged: bool, padded: bool) -> None:
    rng = np.random.default_rng(5)
    rows, tags = (3, 6) if padded else (18,), 7
    # Some chains are as good as others
    x = rng.standard_normal((*rows, tags)).round(1).astype("f4")
    x.reshape(-1)[rng.integers(0, x.size, 3)] = [np.nan, np.inf, -np.inf]
    inputs = {"Emission": x, "Transition": rng.standard_normal((9, 7)).round(1).astype("f4")}
    inputs |= (
        {"Length": np.array([6, 0, 2])} if padded else {"Emission@LOD": np.array([0, 1, 1, 18])}
    )
    shape = rows if padded else (18, 1)
    inputs |= {"Label": rng.integers(0, 2, shape)} if judged else {}
    paths = []
    for back_end in ("llvm", "numpy"):
        path = np.full(shape, 9)
        slots = {slot: [array] for slot, array in inputs.items()}
        for step in bind("crf_decoding", slots, {"ViterbiPath": [path]}, {}, Device(), back_end):
            step()
        paths.append(path)
    np.testing.assert_array_equal(*paths)


@compiled
def test_samples_of_classes() -> None:
    weights = np.random.default_rng(2).random((19, 30)).astype("f4")
    weights /= weights.sum(1, keepdims=True)
    weights[0] = 0  # no sum is above what is drawn: it is the last class
    samples = []
    for back_end in ("llvm", "numpy"):
        out, attrs = np.full(19, -1), {**OPS["sampling_id"].attrs, "seed": 7}
        for step in bind(
            "sampling_id", {"X": [weights]}, {"Out": [out]}, attrs, Device(), back_end
        ):
            step()
        samples.append(out)
    np.testing.assert_array_equal(*samples)
    assert samples[0][0] == 29
