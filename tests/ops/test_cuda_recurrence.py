"""LSTM, LSTMP and GRU on a GPU, real or simulated: one launch for all steps, whatever the lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.runtime import graph_can_hold
from rowlock.executor.kernels.cuda import time_steps
from rowlock.graph.ops.registry import OPS
from tests.conftest import one_in
from tests.ops.cuda_cases import (
    CUDA,
    assert_near,
    cases,
    check_forward,
    narrowed,
    refusal,
    steps_of,
    taken,
)
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import Arrays, gradients, run
from tests.ops.test_conformance import reference_of

pytestmark = needs_compiler
LENGTHS = ([3, 0, 4, 1], [1], [2, 2, 2], [0, 9, 2, 0, 17, 5, 0])
KINDS = ("sigmoid", "tanh", "relu", "identity")
GATES = {"lstm": 4, "lstmp": 4, "gru": 3}
CASES = [
    (name, lengths, kind, number)
    for name in GATES
    for lengths in LENGTHS
    for kind in KINDS
    for number in range(2)
]


def drawn(name: str, lengths: list[int], width: int, more: bool) -> Arrays:
    """Return operands in double precision; ``more``: with first states."""
    rng = np.random.default_rng(sum(lengths) + width)

    def normal(*shape: int) -> list[np.ndarray]:
        return [0.5 * rng.standard_normal(shape) / width**0.5]  # or states would grow and grow

    rows, count, back = sum(lengths), len(lengths), width + 2 if name == "lstmp" else width
    arrays = {
        "Input": normal(rows, GATES[name] * width),
        "Input@LOD": [np.cumsum([0, *lengths])],
        "Weight": normal(back, GATES[name] * width),
        "Bias": normal(1, 3 * width if name == "gru" else 7 * width),
    }
    if name == "lstmp":
        arrays["ProjWeight"] = normal(width, back)
    if more:
        arrays["H0"] = normal(count, back)
    if more and name != "gru":
        arrays["C0"] = normal(count, width)
    return arrays


def attributes(name: str, kind: str, more: bool) -> dict[str, Any]:
    attrs = {**OPS[name].attrs, "is_reverse": more, "gate_activation": kind}
    other = KINDS[(KINDS.index(kind) + 1) % 4]
    if name == "gru":
        return attrs | {"activation": other, "origin_mode": more}
    attrs |= {"cell_activation": other, "candidate_activation": KINDS[KINDS.index(kind) - 1]}
    if name == "lstmp":
        attrs |= {"proj_activation": kind}
        attrs |= {"cell_clip": 0.6, "proj_clip": 0.4} if more else {}
    return attrs


def check(name: str, inputs: Arrays, attrs: dict[str, Any], dtype: Any = "float32") -> None:
    """Hold results and gradients to those of NumPy in double precision."""
    op = OPS[name]
    how: dict[str, Any] = {"dev": gpu(), "back_end": "cublaslt"}
    exact = narrowed(narrowed(inputs, dtype), "float64")
    near = 3e-5 if dtype == "float32" else 1e-11
    expected, outputs = run(op, exact, attrs), run(op, narrowed(exact, dtype), attrs, **how)
    for slot, (array,) in outputs.items():
        assert_near(array, expected[slot][0], slot, near)
    rng = np.random.default_rng(5)
    seeds = {slot: [rng.standard_normal(v[0].shape)] for slot, v in expected.items()}
    seeds = {s: v for s, v in seeds.items() if s in ("Hidden", "Cell", "Projection")}
    slopes = gradients(op, exact, expected, seeds, attrs)
    arrays = (narrowed(side, dtype) for side in (exact, expected, seeds))
    for slot, grads in gradients(op, *arrays, attrs, **how).items():
        for array, value in zip(grads, slopes[slot], strict=True):
            assert_near(array, value, slot, near)


@pytest.mark.parametrize(("name", "lengths", "kind", "number"), one_in(8, CASES))
def test_all_steps_agree_with_those_in_double_precision(
    name: str, lengths: list[int], kind: str, number: int
) -> None:
    dtype = ("float32", "float64")[number]
    more = (KINDS.index(kind) + number) % 2 == 1
    check(name, drawn(name, lengths, 3, more), attributes(name, kind, more), dtype)


@pytest.mark.parametrize("name", GATES)
def test_more_cells_than_threads_go_round(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_steps, "_MOST_THREADS", 32)
    attrs = {**OPS[name].attrs}
    check(name, drawn(name, [2, 4], 37, True), attrs)
    if name != "gru":
        inputs = drawn(name, [2, 4], 37, True)
        inputs["Bias"] = [inputs["Bias"][0][:, : 4 * 37]]
        check(name, inputs, attrs | {"use_peepholes": False})


@pytest.mark.parametrize("name", GATES)
def test_a_graph_can_hold_the_two_launches(name: str) -> None:
    steps = steps_of(OPS[name], narrowed(drawn(name, [3, 1], 4, True), "float32"), "cublaslt")
    assert len(steps) == 2
    assert all(graph_can_hold(step, gpu().xp) for step in steps)


@pytest.mark.parametrize("name", GATES)
def test_sequences_that_do_not_end_with_the_rows_are_refused(name: str) -> None:
    inputs = narrowed(drawn(name, [3, 1], 4, False), "float32")
    inputs["Input@LOD"] = [np.array([0, 2, 6])]
    text = f"{name}: the sequences of Input end at row 6, and it has 4 rows"
    assert text in refusal(OPS[name], inputs, "cublaslt")


def test_wide_cells_are_left_to_steps_of_their_own() -> None:
    op, widths = OPS["gru"], (300, 1000)  # 1 and 12 MB of weights
    cases = [narrowed(drawn("gru", [1], width, False), "float32") for width in widths]
    assert [taken(op, inputs, op.attrs, "cublaslt") for inputs in cases] == [True, False]


def test_kernels_compile_for_a_gpu(launched: dict[str, Any]) -> None:
    for name in GATES:
        check(name, drawn(name, [2, 1], 3, True), {**OPS[name].attrs})
    assert_compile_for_a_gpu(launched)


@pytest.mark.parametrize(("name", "index"), cases("attention_lstm"))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_lstm_attends_to_its_sequence(name: str, index: int, dtype: str) -> None:
    check_forward(name, index, dtype)


def test_an_lstm_attends_to_long_sequences() -> None:
    """More rows, cells and elements than a block has threads; some sequences have no rows."""
    rng, op = np.random.default_rng(2), OPS["attention_lstm"]
    lengths, width, cells = (0, 300, 1, 0, 7, 0), 90, 70

    def normal(*shape: int) -> list[np.ndarray]:
        return [rng.standard_normal(shape) / 8]

    inputs = {
        "X": normal(sum(lengths), width),
        "X@LOD": [np.cumsum([0, *lengths])],
        "C0": normal(len(lengths), cells),
        "H0": normal(len(lengths), cells),
        "AttentionWeight": normal(width + cells, 1),
        "AttentionScalar": normal(1, 1),
        "LSTMWeight": normal(cells + width, 4 * cells),
        "LSTMBias": normal(1, 4 * cells),
    }
    results = run(op, inputs, op.attrs, dev=gpu(), **CUDA)
    for slot, values in reference_of(op, inputs, op.attrs).items():
        for array, value in zip(results[slot], values, strict=True):
            assert_near(array, value, slot)
    inputs["X@LOD"] = [inputs["X@LOD"][0] + 1]
    said = refusal(op, inputs, "cuda")
    assert "attention_lstm: the sequences of X end at row 309, and it has 308 rows" in said
