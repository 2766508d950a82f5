"""The language of formulas: each primitive, its derivative, and that of the derivative."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from rowlock.executor.codegen.array_program import Means, bind_terms
from rowlock.executor.codegen.dimensions import view_has
from rowlock.executor.device.device import Device
from rowlock.executor.kernels.array.formula import ARRAY_MEANS
from rowlock.executor.kernels.capabilities import installed
from rowlock.executor.kernels.formulas import LLVM_MEANS
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops import formula as f
from rowlock.graph.ops.formula import Term, slopes_of
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import InvalidValue

MEANS = [ARRAY_MEANS, *([LLVM_MEANS] if "llvm" in installed() else [])]
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 2))
INDEX = np.array([[2, 0], [2, 1]])
PLAIN = np.array([0.5, -1, 2, 1], "float32")

# What is computed of x [3, 4] and y [4, 2] > 0; the same function of NumPy's arrays is the reference.
CASES: Mapping[str, Callable[..., Any]] = {
    "elementwise": lambda m, x, y: m.exp(x * 0.3) / (1 + x * x) - m.sqrt(x * x + 1) ** 3,
    "broadcast": lambda m, x, y: x * y.sum(1) + x[:, :1],
    "choice": lambda m, x, y: m.where(x > 0.1, x * x, -x) + m.maximum(x, 0.2),
    "statistics": lambda m, x, y: (x - x.mean(1, keepdims=True)) / x.max(0) + x.min(1)[:, None],
    "product": lambda m, x, y: m.tanh(x @ y) @ y.T,
    "batched": lambda m, x, y: x.reshape(3, 2, 2) @ y.reshape(2, 2, 2)[:1],
    "moved": lambda m, x, y: (
        m.concatenate([x.T[::-1], y * y], 1)[1:, ::2].transpose(1, 0).reshape(-1)
    ),
    "parts": lambda m, x, y: x[:, :2] * x[:, 2:] + x[:, 1:3] * x[:, ::-2] * y[0, 0],
    "turned": lambda m, x, y: (lambda p: (m.exp(p * 0.1) + p.T) * 0.5)(x @ x.T),
    "rows": lambda m, x, y: m.take(x * x, INDEX, 0) + m.take(x, INDEX, 1).sum((0, 1, 2)),
    "factors": lambda m, x, y: (
        m.inverse(x[:, :3] @ x[:, :3].T + m.table([[1, 0.5, 0], [0, 2, 0], [0, 0, 3.0]]))
        + m.cholesky(x @ x.T + m.table([[1, 0, 0], [0, 1, 0], [0, 0, 1.0]]))
    ),
    "plain arrays": lambda m, x, y: (
        PLAIN * x
        - x / PLAIN
        + m.where(x < PLAIN, x, PLAIN * 0.5)
        + m.maximum(x, PLAIN) @ PLAIN[:, None]
        + PLAIN[:3, None] @ x[:1]
    ),
    "one value": lambda m, x, y: (x * x).sum(),
    "nothing of x": lambda m, x, y: y * 2,
}


class Numpy:
    """NumPy under the names that formulas have."""

    exp, sqrt, where, maximum, tanh = np.exp, np.sqrt, np.where, np.maximum, np.tanh
    concatenate, take, table = np.concatenate, np.take, np.array
    inverse, cholesky = np.linalg.inv, np.linalg.cholesky


def computed(roots: list[Term], arrays: Mapping[str, Any], means: Means) -> list[Any]:
    dev = Device()
    outs = [np.full(root.shape, 7, root.dtype) for root in roots]
    steps = bind_terms(dev, "op", list(zip(roots, outs, strict=True)), arrays, means)
    for _ in range(2):
        for step in steps:
            step()
    return outs


def operands(dtype: str) -> tuple[dict[str, Any], list[Term]]:
    arrays = {"x": X.astype(dtype), "y": np.abs(Y).astype(dtype)}
    return arrays, [Term("arg", (), a.shape, a.dtype, name) for name, a in arrays.items()]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize("name", CASES)
def test_values_and_two_derivatives(name: str, means: Means, dtype: str) -> None:
    arrays, terms = operands(dtype)
    function = CASES[name]
    root = function(f, *terms)
    (value,) = computed([root], arrays, means)
    exact = function(Numpy, *operands("float64")[0].values())
    near = 1e-9 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(value, exact, rtol=near, atol=near)

    weights = RNG.standard_normal(root.shape).astype(dtype)
    first = slopes_of([(root, f.table(weights))], terms)
    known = [(t, d) for t, d in zip(terms, first, strict=True) if d is not None]
    slopes = computed([d for _, d in known], arrays, means)
    for (term, _), slope in zip(known, slopes, strict=True):
        assert_slope(
            lambda a: float((function(Numpy, *a.values()) * weights).sum()), term, slope, near
        )

    def of_slope(a: Mapping[str, Any]) -> float:
        squares = computed([d for _, d in known], a, ARRAY_MEANS)
        return sum(float((m * m).sum()) for m in squares)

    if dtype == "float64":
        second = slopes_of([(d, d + d) for _, d in known], terms)
        for term, d in zip(terms, second, strict=True):
            if d is not None:
                assert_slope(of_slope, term, computed([d], arrays, means)[0], 1e-4)


def assert_slope(total: Callable[[Any], float], term: Term, slope: Any, near: float) -> None:
    arrays, h = operands("float64")[0], 1e-6
    array = arrays[term.options]
    for place in np.ndindex(array.shape):
        value = array[place]
        array[place] = value + h
        up = total(arrays)
        array[place] = value - h
        difference = (up - total(arrays)) / (2 * h)
        array[place] = value
        assert slope[place] == pytest.approx(difference, rel=1e-4, abs=max(near, 1e-5) * 10)


def test_an_index_outside_the_rows_is_refused_when_it_comes() -> None:
    x = Term("arg", (), (3, 2), np.float32, "x")
    index = Term("arg", (), (2,), np.int64, "index")
    root = f.take(x, f.checked(index, 3, "index"), 0)
    with pytest.raises(InvalidValue, match=r"op: index 3 is outside the 3 rows \(0 to 2\)"):
        computed([root], {"x": np.ones((3, 2), "f4"), "index": np.array([0, 3])}, ARRAY_MEANS)


@pytest.mark.parametrize("seed", range(40))
def test_what_shapes_a_view_can_have(seed: int) -> None:
    """NumPy tells by copying where none can."""
    rng = np.random.default_rng(seed)
    x = np.zeros(rng.choice([1, 2, 3, 4, 6], 4)).transpose(rng.permutation(4))
    x = x[tuple(slice(None, None, int(step)) for step in rng.choice([1, 1, 1, 2, -1], 4))]
    x = np.broadcast_to(x, (2, *x.shape)) if seed % 4 == 0 else x
    left, shape = x.size, list[int]()
    while left > 1:
        shape.append(int(rng.choice([n for n in range(2, left + 1) if left % n == 0])))
        left //= shape[-1]
    for sizes in (shape, [1, *shape[::-1], 1], [x.size], [*x.shape, 1]):
        assert view_has(x, sizes) == np.may_share_memory(x, x.reshape(sizes)), (x.strides, sizes)


def test_gradients_of_parts_lie_beside_each_other() -> None:
    _, (x, _) = operands("float32")
    for root, fn in ((x[:, :2] * x[:, 2:], "place"), (x[:, :3] * x[:, 1:], "add")):
        (slope,) = slopes_of([(root, root)], [x])
        assert slope is not None and (slope.fn, len(slope.args)) == (fn, 2)


def test_statistics_are_one_loop_a_pass() -> None:
    """Mean, variance and result read the operand once each, on a back end of loops."""
    passes: list[int] = []

    def loops(dev: Any, outputs: Any, arrays: Any) -> Any:
        passes.append(len(outputs))
        return ARRAY_MEANS.loops(dev, outputs, arrays)

    x = Term("arg", (), (5, 8), np.float32, "x")
    mean = x.mean(1, keepdims=True)
    centred = x - mean
    inverse = 1 / f.sqrt((centred * centred).mean(1, keepdims=True) + 1e-5)
    result = centred * inverse
    computed(
        [result, inverse],
        {"x": np.ones((5, 8), "f4")},
        Means(loops, ARRAY_MEANS.rows, ARRAY_MEANS.row_sums, ARRAY_MEANS.row_of_largest),
    )
    assert passes == [1, 1, 1, 1, 1]  # sum, mean; sum of squares, inverse; result


@pytest.mark.parametrize("means", MEANS)
def test_memory_is_used_again_when_its_last_reader_is_done(means: Means) -> None:
    """A chain of products takes two arrays in turn, whatever its length."""
    x = RNG.standard_normal((64, 64)).astype("float32")
    chain: Any = Term("arg", (), x.shape, x.dtype, "x")
    for _ in range(5):
        chain = (chain @ chain) * 0.01
    dev, out = Device(), np.empty_like(x)
    for step in bind_terms(dev, "op", [(chain, out)], {"x": x}, means):
        step()
    expected = x
    for _ in range(5):
        expected = (expected @ expected) * np.float32(0.01)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-6)
    assert dev.scratch_bytes <= 2 * x.nbytes


def test_what_one_term_reads_is_not_stored_beside_it() -> None:
    """The normalised x is read twice, and kept; x less its mean is not."""
    x = RNG.standard_normal((64, 64)).astype("float32")
    inputs = {"X": [x], "Y@GRAD": [x.copy()]}
    for name in ("Scale", "Bias", "SavedMean", "SavedVariance"):
        inputs[name] = [np.ones(64, "float32")]
    outputs = {"X@GRAD": [np.empty_like(x)], "Scale@GRAD": [np.empty(64, "float32")]}
    dev = Device()
    bind("batch_norm_grad", inputs, outputs, OPS["batch_norm_grad"].attrs, dev)
    assert dev.scratch_bytes < 3.2 * x.nbytes  # and two of a loop


@pytest.mark.parametrize("means", MEANS)
def test_an_operand_is_copied_before_a_result_takes_its_place(means: Means) -> None:
    """The sum over one row is that row, and what is computed of it may lie in its memory."""
    row = RNG.standard_normal((1, 4)).astype("float32")
    x, total = row.copy(), np.empty(4, "float32")
    term: Any = Term("arg", (), x.shape, x.dtype, "x")
    for step in bind_terms(Device(), "op", [(term * 2, x), (term.sum(0), total)], {"x": x}, means):
        step()
    np.testing.assert_array_equal(total, row[0])
    np.testing.assert_array_equal(x, 2 * row)
