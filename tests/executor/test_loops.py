"""Compiled loops: layouts, broadcasts, sums, empty arrays, shared memory, and how exact the functions are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from rowlock.executor.codegen.loops import bind_loop, bind_loops
from rowlock.executor.device.device import Device
from rowlock.executor.kernels.array.gates import CellSteps
from rowlock.executor.kernels.array.gru import LAYOUT
from rowlock.executor.kernels.loops.cells import CompiledSteps, compiled_steps
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops import expr as e
from rowlock.graph.ops.gates import GruCells, gru_step
from rowlock.graph.ops.gru import Gru
from rowlock.graph.ops.loss import LEAST_SHIFT
from tests.conftest import one_in

X, Y = e.argument("x"), e.argument("y")
PRODUCT = X * Y + 0.25


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def channels_last(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def reversed_(array: np.ndarray) -> np.ndarray:
    return np.asfortranarray(array)


def gapped(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 3, -1)[..., ::3]


LAYOUTS: list[Callable[[np.ndarray], np.ndarray]] = [np.array, channels_last, reversed_, gapped]


# As tuples of one: each is a case of one shape.
BROADCAST = one_in(
    2, [((2, 3, 5, 4),), ((1, 3, 1, 1),), ((1, 1, 1, 4),), ((2, 1, 1, 1),), ((1, 1, 1, 1),)]
)


@pytest.mark.parametrize("other", BROADCAST)
def test_any_layout_any_broadcast_any_sum(other: tuple[int, ...]) -> None:
    x, y = floats(2, 3, 5, 4), floats(*other, seed=1)
    full = x.astype(float) * y + 0.25
    axes = tuple(i for i, size in enumerate(other) if size == 1)
    for first, out_layout in itertools.product(LAYOUTS, LAYOUTS):
        out, summed = out_layout(np.zeros_like(x)), np.full(other, np.nan, np.float32)
        for call in bind_loop([(PRODUCT, out), (PRODUCT, summed)], {"x": first(x), "y": y}):
            call()
        np.testing.assert_allclose(out, full, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(summed, full.sum(axes, keepdims=True), rtol=1e-5, atol=1e-5)


def test_results_in_the_place_of_operands() -> None:
    x, y = floats(7, 9), floats(7, 9, seed=1)
    expected = x * y + np.float32(0.25), x + y
    for call in bind_loop([(PRODUCT, x), (X + Y, y)], {"x": x, "y": y}):
        call()
    np.testing.assert_allclose((x, y), expected, rtol=1e-6)


def test_results_that_overlap_several_operands() -> None:
    memory = floats(40)
    x, y, out = memory[:16], memory[16:32], memory[8:24]
    (call,) = bind_loop([(X + Y, out)], {"x": x, "y": y})
    expected = memory.copy()
    for i in range(16):
        expected[8 + i] = expected[i] + expected[16 + i]
    call()
    np.testing.assert_array_equal(memory, expected)


def test_no_elements_no_dimensions_and_many_sets() -> None:
    empty, total = np.empty((0, 3), np.float32), np.full((1, 3), 7, np.float32)
    for call in bind_loop([(X + 1, empty), (X + 1, total)], {"x": empty}):
        call()
    assert not total.any(), "a sum of nothing is zero"
    sets: list[Any] = [(floats(n), np.empty(n, np.float32)) for n in (1, 5, 5000)]
    sets.append((np.full((), 3, np.float32), np.empty((), np.float32)))
    calls = bind_loops([([(X + X, out)], {"x": x}) for x, out in sets])
    assert len(calls) < len(sets)
    for call in calls:
        call()
    for x, out in sets:
        np.testing.assert_array_equal(out, x + x)


def test_long_sums_are_exact_enough_and_the_same_every_time() -> None:
    x = np.abs(floats(1, 1_000_003))
    sums = []
    for _ in range(2):
        out = np.empty((1, 1), np.float32)
        for call in bind_loop([(e.copy(X), out)], {"x": x}):
            call()
        sums.append(out[0, 0])
    assert sums[0] == sums[1] == pytest.approx(float(x.sum(dtype=float)), rel=1e-6)


FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "expm1": np.expm1, "tanh": np.tanh, "log": np.log, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt, "erf": np.vectorize(math.erf),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_right_to_two_units_in_the_last_place(name: str) -> None:
    draw = np.random.default_rng(0)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1e-45, 3e38]
    parts = (
        np.linspace(-110, 100, 20001), np.linspace(-5, 5, 20001), draw.standard_normal(2000) * 1e-3,
        10.0 ** draw.uniform(-44, 38, 5000), special,
    )  # fmt: skip
    x = np.concatenate(parts).astype(np.float32)
    out = np.empty_like(x)
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](x.astype(float))
        near = exact.astype(np.float32)
        for call in bind_loop([(e.call(name, X), out)], {"x": x}):
            call()
        units = np.abs(out - exact) / np.spacing(np.abs(near))
    finite = np.isfinite(near)
    assert units[finite].max() < 2
    np.testing.assert_array_equal(out[~finite], near[~finite])


def test_masked_scores_make_no_denormals() -> None:
    """Numbers below the least normal one take a processor many times as long: no share is so small."""
    x = floats(3, 40)
    x[:, 5:] -= np.array([[80.0], [98.0], [1e9]], "f4")
    out = np.empty_like(x)
    attrs = {"axis": -1}
    for call in bind("softmax", {"X": [x]}, {"Out": [out]}, attrs, Device(seed=0), "llvm"):
        call()
    powers = np.exp(np.maximum(x.astype(float) - x.max(1, keepdims=True), LEAST_SHIFT))
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=1e-5)
    assert out.min() > np.finfo(np.float32).tiny


def test_powers_of_what_is_special() -> None:
    special = [0, 1, 0.5, 2, 3, np.inf, np.nan, 1e-40, 1e38, 8388607, 16777217, 0.99999994]
    x, y = map(np.ravel, np.meshgrid(*[np.array([*special, *np.negative(special)], "f4")] * 2))
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(float), y.astype(float)).astype("f4")
    out = np.empty_like(x)
    for call in bind_loop([(e.Expr("power", (X, Y)), out)], {"x": x, "y": y}):
        call()
    np.testing.assert_array_max_ulp(out[~np.isnan(expected)], expected[~np.isnan(expected)], 1)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(out[known]), np.signbit(expected[known]))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        *[((70, 33), (1, 0)), ((2, 3, 65, 9), (0, 2, 3, 1)), ((3, 8, 1, 130), (3, 0, 2, 1))],
        *[((2, 9, 3, 4, 20), (2, 0, 3, 1, 4)), ((3, 7, 4, 33), (0, 2, 1, 3))],
    ],
)
def test_transposes_by_tiles_and_runs(shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x.flat[0] = np.nan
    out, back = np.zeros([shape[k] for k in axis], np.float32), np.zeros_like(x)
    attrs = {"axis": list(axis)}
    calls = bind("transpose", {"X": [x]}, {"Out": [out]}, attrs, Device(), "llvm")
    read = {"Out@GRAD": [out]}
    calls += bind("transpose_grad", read, {"X@GRAD": [back]}, attrs, Device(), "llvm")
    assert not any(getattr(call, "func", None) is np.copyto for call in calls)
    for call in calls:
        call()
    np.testing.assert_array_equal(out, x.transpose(axis))
    np.testing.assert_array_equal(back, x)
    cut = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), np.float32)[..., ::2]
    for call in bind("transpose", {"X": [cut]}, {"Out": [out]}, attrs, Device(), "llvm"):
        call()
    assert not out.any()


@pytest.mark.parametrize("join", ["max", "min"])
@pytest.mark.parametrize("shape", [(5, 1, 7), (1, 3000), (4, 1)])
def test_extremes_of_rows_and_columns_hand_nan_on(join: str, shape: tuple[int, ...]) -> None:
    x = floats(*(4 if n == 1 else n for n in shape))
    x[(0,) * x.ndim], x[(-1,) * x.ndim] = np.nan, -np.inf
    axes = tuple(i for i, n in enumerate(shape) if n == 1)
    out = np.full(shape, 7, np.float32)
    for call in bind_loop([(e.copy(X), out)], {"x": x}, join):
        call()
    expected = (np.max if join == "max" else np.min)(x, axes, keepdims=True)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("shape", [(19, 6), (3, 5, 4)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_sums_are_numpys_bits(
    shape: tuple[int, ...], reverse: bool, exclusive: bool
) -> None:
    x = floats(*shape)
    for axis in range(x.ndim):
        results = []
        for library in ("numpy", "llvm"):
            out = np.full(shape, np.nan, np.float32)
            attrs = {"axis": axis, "reverse": reverse, "exclusive": exclusive}
            for call in bind("cumsum", {"X": [x]}, {"Out": [out]}, attrs, Device(), library):
                call()
            results.append(out)
        np.testing.assert_array_equal(results[1], results[0])


def _gru_step(gates: np.ndarray) -> tuple[type, np.ndarray, np.ndarray]:
    """Return what computes a step of a GRU on these gates, the gates that it leaves, and its output."""
    kind, operands = GruCells("sigmoid", "tanh", False), SimpleNamespace(input=gates)
    cells: Any = compiled_steps(Device(), LAYOUT, 5, 2, cast(Gru, operands), [(gru_step, kind)])
    before, product, hidden = floats(2, 5, seed=1), floats(2, 5, seed=2), floats(2, 5)
    cells(gru_step, kind, gates=gates, before=before, product=product, hidden=hidden)
    return type(cells), gates, hidden


def test_cells_whose_operands_have_gaps_are_left_to_array_calls() -> None:
    gates = floats(2, 15)
    (compiled, *expected), (called, *results) = map(_gru_step, (gates.copy(), gapped(gates)))
    assert (compiled, called) == (CompiledSteps, CellSteps)
    for array, other in zip(expected, results, strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-6, atol=1e-6)
