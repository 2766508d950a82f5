"""Connectionist temporal classification on a GPU, real or simulated: a launch for sequences of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.kernels.cuda import ctc
from rowlock.graph.ops.registry import OPS
from tests.conftest import one_in
from tests.ops.cuda_cases import assert_near, narrowed, refusal
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import Arrays, gradients, run

pytestmark = needs_compiler
OP = OPS["warpctc"]
CASES = [
    (lengths, classes, padded, kind, attrs)
    for lengths in ([(5, 2), (0, 0), (1, 3), (7, 4)], [(3, 3)], [(9, 0), (2, 1), (60, 40), (6, 5)])
    for classes in (3, 70)
    for padded in (False, True)
    for kind in ("float32", "float64")
    for attrs in ({"blank": 0}, {"blank": classes - 1, "norm_by_times": True})
]


def drawn(lengths: list[tuple[int, int]], classes: int, padded: bool) -> Arrays:
    """Return operands in double precision, of sequences of rows and labels; some labels come twice in a row."""
    rng, (steps, labels) = np.random.default_rng(classes), np.array(lengths).T
    if padded:
        shape, many = (max(steps) + 1, len(steps)), (len(steps), max(labels) + 1)
        return {
            "Logits": [2 * rng.standard_normal((*shape, classes))],
            "Label": [rng.integers(0, classes, many)],
            "LogitsLength": [steps],
            "LabelLength": [labels],
        }
    return {
        "Logits": [2 * rng.standard_normal((sum(steps), classes))],
        "Label": [rng.integers(0, classes, (sum(labels), 1)).astype("int32")],
        "Logits@LOD": [np.cumsum([0, *steps])],
        "Label@LOD": [np.cumsum([0, *labels])],
    }


def check(inputs: Arrays, kind: str, attrs: dict[str, Any]) -> None:
    near = 1e-5 if kind == "float32" else 1e-11
    dev, attrs = gpu(), {**OP.attrs, **attrs}
    exact = narrowed(narrowed(inputs, kind), "float64")
    expected = run(OP, exact, attrs)
    outputs = run(OP, narrowed(exact, kind), attrs, dev=dev, back_end="cuda")
    for slot, (array,) in outputs.items():
        assert_near(array, expected[slot][0], slot, near)
    shape = expected["Loss"][0].shape
    seeds: Arrays = {"Loss": [np.random.default_rng(1).standard_normal(shape)]}
    (slope,) = gradients(OP, exact, expected, seeds, attrs)["Logits"]
    sides = (narrowed(side, kind) for side in (exact, expected, seeds))
    (array,) = gradients(OP, *sides, attrs, dev=dev, back_end="cuda")["Logits"]
    assert_near(array, slope, "Logits", near)


@pytest.mark.parametrize(("lengths", "classes", "padded", "kind", "attrs"), one_in(4, CASES))
def test_paths_agree_with_those_in_double_precision(
    lengths: list[tuple[int, int]], classes: int, padded: bool, kind: str, attrs: dict[str, Any]
) -> None:
    check(drawn(lengths, classes, padded), kind, attrs)


def test_more_places_than_threads_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctc, "_MOST_THREADS", 32)
    check(drawn([(90, 40)], 50, False), "float32", {})


def test_a_path_without_room_is_left_to_the_array_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctc, "MOST_BYTES", 0)
    check(drawn([(5, 2), (4, 3)], 6, False), "float32", {})


def refused(inputs: Arrays) -> str:
    return refusal(OP, narrowed(inputs, "float32"), "cuda")


def test_what_does_not_fit_is_refused() -> None:
    by_lod, padded = (drawn([(5, 2), (4, 3)], 6, padded) for padded in (False, True))
    text = refused({**by_lod, "Logits@LOD": [np.array([0, 5, 8])]})
    assert "warpctc: the sequences of Logits end at row 8, and it has 9 rows" in text
    text = refused({**by_lod, "Label@LOD": [np.array([0, 5, 6])]})
    assert "warpctc: the sequences of Label end at row 6, and it has 5 rows" in text
    text = refused({**padded, "LogitsLength": [np.array([5, 7])]})
    assert "warpctc: LogitsLength 7 is outside the 6 steps of Logits" in text
    text = refused({**by_lod, "Label": [np.full((5, 1), 6)]})
    assert "warpctc: label 6 is outside the 6 classes of Logits" in text


def test_kernels_compile_for_a_gpu(launched: dict[str, Any]) -> None:
    check(drawn([(4, 2), (3, 1)], 3, False), "float32", {})
    assert_compile_for_a_gpu(launched)
