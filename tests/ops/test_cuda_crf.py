"""Conditional random fields on a GPU, real or simulated: a launch for all rows, of sequences of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.kernels.cublaslt import crf
from rowlock.graph.ops.registry import OPS
from tests.conftest import one_in
from tests.ops.cuda_cases import assert_near, narrowed, refusal
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import Arrays, gradients, run

pytestmark = needs_compiler
HOW = {"back_end": "cublaslt"}
CASES = [
    (lengths, tags, padded, kind)
    for lengths in ([3, 0, 4, 1], [1], [0, 9, 2, 0, 17, 5, 0])
    for tags in (2, 5, 40)
    for padded in (False, True)
    for kind in ("float32", "float64")
]


def drawn(lengths: list[int], tags: int, padded: bool) -> Arrays:
    """Return operands in double precision; what a padded batch holds behind lengths is no tag."""
    rng, count = np.random.default_rng(tags), len(lengths)
    shape = (count, max(lengths) + 1) if padded else (sum(lengths),)
    label = rng.integers(0, tags, shape)
    arrays = {
        "Emission": [rng.standard_normal((*shape, tags))],
        "Transition": [rng.standard_normal((tags + 2, tags))],
    }
    if padded:
        label[np.arange(shape[1]) >= np.array(lengths)[:, None]] = -1
        return {**arrays, "Label": [label], "Length": [np.array(lengths)]}
    lod = [np.cumsum([0, *lengths])]
    return {**arrays, "Label": [label[:, None]], "Emission@LOD": lod, "Label@LOD": lod}


def check(inputs: Arrays, kind: str) -> None:
    near = 1e-5 if kind == "float32" else 1e-11
    op, dev = OPS["linear_chain_crf"], gpu()
    exact = narrowed(narrowed(inputs, kind), "float64")
    expected = run(op, exact, op.attrs)
    outputs = run(op, narrowed(exact, kind), op.attrs, dev=dev, **HOW)
    for slot, (array,) in outputs.items():
        assert_near(array, expected[slot][0], slot, near)
    shape = expected["LogLikelihood"][0].shape
    seeds: Arrays = {"LogLikelihood": [np.random.default_rng(1).standard_normal(shape)]}
    slopes = gradients(op, exact, expected, seeds, op.attrs)
    sides = (narrowed(side, kind) for side in (exact, expected, seeds))
    for slot, grads in gradients(op, *sides, op.attrs, dev=dev, **HOW).items():
        for array, value in zip(grads, slopes[slot], strict=True):
            assert_near(array, value, slot, near)
    decoding = OPS["crf_decoding"]
    for slots in (exact, {s: v for s, v in exact.items() if "Label" not in s}):
        (path,) = run(decoding, narrowed(slots, kind), decoding.attrs, dev=dev, **HOW)[
            "ViterbiPath"
        ]
        np.testing.assert_array_equal(path, run(decoding, slots, decoding.attrs)["ViterbiPath"][0])


@pytest.mark.parametrize(("lengths", "tags", "padded", "kind"), one_in(4, CASES))
def test_chains_agree_with_those_in_double_precision(
    lengths: list[int], tags: int, padded: bool, kind: str
) -> None:
    check(drawn(lengths, tags, padded), kind)


def test_more_tags_than_threads_go_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crf, "_MOST_THREADS", 32)
    check(drawn([3, 5], 70, False), "float32")


def refused(inputs: Arrays) -> str:
    return refusal(OPS["linear_chain_crf"], narrowed(inputs, "float32"), "cublaslt")


def test_what_does_not_fit_is_refused() -> None:
    by_lod, padded = drawn([2, 3], 4, False), drawn([2, 3], 4, True)
    text = refused({**by_lod, "Emission@LOD": [np.array([0, 2, 4])]})
    assert "linear_chain_crf: the sequences of Emission end at row 4, and it has 5 rows" in text
    text = refused({**padded, "Length": [np.array([2, 9])]})
    assert "linear_chain_crf: Length 9 is outside the 4 steps of Emission" in text
    text = refused({**by_lod, "Label": [np.full((5, 1), 4)]})
    assert "linear_chain_crf: label 4 is outside the 4 tags of Emission" in text


def test_kernels_compile_for_a_gpu(launched: dict[str, Any]) -> None:
    check(drawn([2, 1], 3, False), "float32")
    assert_compile_for_a_gpu(launched)
