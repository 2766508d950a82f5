"""Compiled kernels do what NumPy's do: on samples, in both directions, on odd memory and on special values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.graph.ir.graph import Node, Value
from rowlock.graph.ops.elementwise import beside
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import InvalidValue
from tests.conftest import one_in, one_of_each
from tests.ops import harness
from tests.ops.harness import copies, draw, gradients, infer, run, run_strided, specs_of
from tests.ops.test_conformance import reference_of, seeds_of

NATIVE = sorted(op for op, back_end in KERNELS if back_end == "llvm")
DRAWN = {n for n in NATIVE if OPS[n].random}  # test_native_random.py has them
CASES = [(n, i) for n in NATIVE if n not in DRAWN for i in range(len(OPS[n].samples))]
BACKWARD = [
    (n, i)
    for n in sorted(OPS)
    if OPS[n].grad and OPS[n].grad.type in NATIVE  # type: ignore[union-attr]
    for i in range(len(OPS[n].samples))
]


def taken(name: str, inputs: harness.Arrays, attrs: dict[str, Any]) -> bool:
    """Tell whether the compiled kernel would be chosen for these operands."""
    op = OPS[name]
    specs = specs_of(inputs)
    results = infer(op, specs, attrs)
    node = Node(
        name,
        {s: tuple(Value(s, spec) for spec in many) for s, many in specs.items()},
        {s: tuple(Value(s, spec) for spec in many) for s, many in results.items()},
        attrs,
    )
    takes = KERNELS[name, "llvm"].takes
    return takes is None or takes(node)


def chosen(
    name: str, inputs: Any, outputs: Any, attrs: dict[str, Any], dev: Any, back_end: str = ""
) -> Any:
    """Bind the compiled kernel if it would be chosen, NumPy's otherwise."""
    operands = {slot: [a for a in many if a is not None] for slot, many in inputs.items()}
    return bind(
        name, inputs, outputs, attrs, dev, "llvm" if taken(name, operands, attrs) else back_end
    )


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "bind", chosen)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize(("name", "index"), one_of_each(CASES, 3))
def test_agrees_with_the_reference(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    if not taken(name, inputs, attrs):
        pytest.skip("left to NumPy")
    outputs, strided = run(op, inputs, attrs), None
    if not harness.updates(op):
        strided = run_strided(op, inputs, attrs)
    over = run(op, inputs, attrs, overwrite=True)
    for slot, values in reference_of(op, inputs, attrs).items():
        for k, value in enumerate(values):
            np.testing.assert_allclose(outputs[slot][k], value, rtol=2e-5, atol=2e-5)
            np.testing.assert_array_equal(over[slot][k], outputs[slot][k])
            if strided is not None:
                np.testing.assert_allclose(strided[slot][k], outputs[slot][k], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "index"), one_of_each(BACKWARD, 3))
def test_gradients_agree_with_numpys(
    name: str, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    outputs = run(op, inputs, attrs)
    seeds = {
        slot: [a.astype("float32") for a in many] for slot, many in seeds_of(op, outputs).items()
    }
    if not seeds:
        pytest.skip("integers have no slope")
    expected = gradients(op, copies(inputs), outputs, seeds, attrs)
    monkeypatch.setattr(harness, "bind", chosen)
    slopes = gradients(op, copies(inputs), outputs, seeds, attrs)
    for slot, grads in expected.items():
        for one, other in zip(grads, slopes[slot], strict=True):
            np.testing.assert_allclose(other, one, rtol=2e-5, atol=1e-6, err_msg=slot)
    drawn = random.choice(list(slopes))
    alone = gradients(op, inputs, outputs, seeds, attrs, only=drawn)
    for one, other in zip(slopes[drawn], alone[drawn], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


SPECIAL = np.float32(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-40, 88.9, -104.0]
)
MASK = np.uint8([0, 1])  # what dropout kept
SETTINGS: dict[str, dict[str, Any]] = {
    "clip": {"min": -1.0, "max": 1.0},
    "fused_elemwise_activation": {"functor_list": ["scale", "elementwise_add"], "scale": 2.0},
}
ELEMENTWISE = [n for n in NATIVE if OPS[n].scalar and OPS[n].aligned in (None, beside)]


@pytest.mark.parametrize("name", one_in(4, ELEMENTWISE))
def test_special_values_are_numpys(name: str) -> None:
    op = OPS[name]
    slots = [slot.name for slot in op.input_slots if not slot.optional]
    grid = np.meshgrid(*[MASK if slot == "Mask" else SPECIAL for slot in slots])
    inputs = {slot: [np.ascontiguousarray(a.ravel())] for slot, a in zip(slots, grid, strict=True)}
    attrs = {**op.attrs, **SETTINGS.get(name.partition("_grad")[0], {})}
    expected, ours = run(op, inputs, attrs), None
    out = {s: [np.empty_like(a) for a in many] for s, many in expected.items()}
    with np.errstate(all="ignore"):
        for step in bind(name, inputs, out, attrs, harness.Device(), "llvm"):
            step()
    for slot, (array,) in expected.items():
        (ours,) = out[slot]
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(array))
        least = 1e-6 if name.endswith("_grad_grad") else 1e-37  # terms of second order cancel
        near = np.isclose(ours, array, rtol=1e-5, atol=least, equal_nan=True)
        assert near.all(), (inputs, ours[~near], array[~near])


def _steps(name: str, inputs: Any, outputs: Any, **attrs: Any) -> None:
    settings = {**OPS[name].attrs, **attrs}
    for step in bind(name, inputs, outputs, settings, harness.Device(), "llvm"):
        step()


@pytest.mark.parametrize("wrong", [-1, 5, 2**40])
def test_what_is_no_label_and_no_row_is_refused(wrong: int) -> None:
    x, label = np.ones((2, 5), np.float32), np.array([[1], [wrong]])
    outputs = {"Softmax": [np.empty_like(x)], "Loss": [np.empty((2, 1), np.float32)]}
    with pytest.raises(InvalidValue, match=f"label {wrong} is outside the 5 classes"):
        _steps("softmax_with_cross_entropy", {"Logits": [x], "Label": [label]}, outputs)
    rows = {"Out": [np.empty((2, 5), np.float32)]}
    with pytest.raises(InvalidValue, match=f"index {wrong} is outside the 5 rows"):
        _steps("lookup_table", {"W": [np.eye(5, dtype=np.float32)], "Ids": [label]}, rows)


def test_rows_of_any_length() -> None:
    """Around the width of a vector, with labels that are ignored and results in the operand's place."""
    draw = np.random.default_rng(0)
    for n in (1, 2, 7, 8, 15, 16, 17, 33, 100):
        x = draw.standard_normal((3, n)).astype(np.float32) * 20
        exact = np.exp(x.astype(float) - x.max(1, keepdims=True))
        exact /= exact.sum(1, keepdims=True)
        label = np.array([[0], [n - 1], [-100]])
        soft, loss = x.copy(), np.empty((3, 1), np.float32)
        outputs = {"Softmax": [soft], "Loss": [loss]}
        _steps("softmax_with_cross_entropy", {"Logits": [soft], "Label": [label]}, outputs)
        np.testing.assert_allclose(soft, exact, rtol=2e-5, atol=1e-7)
        expected = [-np.log(exact[0, 0]), -np.log(exact[1, n - 1]), 0.0]
        np.testing.assert_allclose(loss.ravel(), expected, rtol=1e-5, atol=1e-5)


# Op, shapes and attributes, among them every way in which a kernel goes through memory.
WAYS: list[tuple[str, dict[str, tuple[int, ...]], dict[str, Any]]] = [
    *(("softmax", {"X": shape}, {"axis": 1}) for shape in [(3, 7, 40), (5, 33, 2), (2, 1, 9)]),
    *(
        ("layer_norm", {"X": (rows, width), "Scale": (width,), "Bias": (width,)}, {})
        for rows, width in [(1, 5000), (1, 1), (3, 1025), (700, 2), (65, 33)]
    ),
    *(
        ("transpose2", {"X": shape}, {"axis": list(order)})
        for shape, order in [
            *(((few, 20, 37), (2, 1, 0)) for few in range(2, 9)),
            *(((37, 20, few), (2, 1, 0)) for few in range(2, 9)),
            *(((3, 4, 5, 33), order) for order in [(3, 0, 2, 1), (1, 3, 0, 2), (3, 2, 1, 0)]),
            *(((9, 8, 5, run), (0, 2, 1, 3)) for run in (1, 7, 16, 17)),
        ]
    ),
    *(
        ("pool2d", {"X": shape}, {"ksize": window, **more})
        for shape, window, more in [
            ((2, 3, 9, 21), [4, 4], {"adaptive": True}),
            ((2, 3, 9, 50), [2, 3], {"adaptive": True}),
            ((2, 3, 9, 21), [3, 2], {"strides": [2, 1], "paddings": [1, 1]}),
            ((2, 3, 9, 21), [9, 20], {"strides": [1, 1]}),
        ]
    ),
]


@pytest.mark.parametrize(("name", "shapes", "attrs"), WAYS)
def test_every_way_agrees_with_numpys(
    name: str,
    shapes: dict[str, tuple[int, ...]],
    attrs: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numbers of which many are equal: the first one of several largest counts."""
    op, rng = OPS[name], np.random.default_rng(0)
    inputs = {
        slot: [rng.integers(-4, 5, shape).astype("float32")] for slot, shape in shapes.items()
    }
    attrs = {**op.attrs, **attrs}
    outputs = run(op, inputs, attrs)
    seeds = {
        slot: [a.astype("float32") for a in many] for slot, many in seeds_of(op, outputs).items()
    }
    slopes = gradients(op, copies(inputs), outputs, seeds, attrs)
    monkeypatch.setattr(harness, "bind", chosen)
    near = {"rtol": 2e-5, "atol": 2e-4 if name == "layer_norm" else 1e-6}
    pairs = [(slopes, gradients(op, copies(inputs), outputs, seeds, attrs))]
    if name in NATIVE:
        pairs.append((outputs, run(op, inputs, attrs)))
    for theirs, ours in pairs:
        for slot, arrays in theirs.items():
            for one, other in zip(arrays, ours[slot], strict=True):
                np.testing.assert_allclose(other, one, **near, err_msg=slot)


@pytest.mark.parametrize("name", ["arg_max", "arg_min"])
@pytest.mark.parametrize(
    "shape", [(50, 1), (50, 4), (50, 7), (50, 64), (50, 65), (9, 5, 3), (9, 5, 8), (2, 3, 1100)]
)
def test_places_of_extremes_are_numpys(name: str, shape: tuple[int, ...]) -> None:
    """The first of equal ones, of which the zeros are two; the first nan, whatever its sign."""
    x = np.random.default_rng(0).choice(SPECIAL, shape)
    x[: len(x) // 2][np.isnan(x[: len(x) // 2])] = -0.0
    x[-1][np.isnan(x[-1])] = -np.float32(np.nan)
    for axis in range(x.ndim):
        for dtype in (np.int64, np.int32):
            exact = getattr(np, name.replace("_", ""))(x, axis)
            out = np.full(exact.shape, 7, dtype)
            _steps(name, {"X": [x]}, {"Out": [out]}, axis=axis)
            np.testing.assert_array_equal(out, exact)


def test_one_hot_rows_of_any_length() -> None:
    """An index outside of the row is refused, or marks nothing."""
    for count, depth in [(1, 1), (7, 3), (3000, 3), (5, 9000)]:
        x = np.random.default_rng(0).integers(0, depth, count)
        out = np.full((count, depth), 7, np.float32)
        for index in (x, x.astype(np.int32)):
            _steps("one_hot_v2", {"X": [index]}, {"Out": [out]}, depth=depth)
            np.testing.assert_array_equal(out, np.eye(depth, dtype=np.float32)[x])
        x[0] = depth
        with pytest.raises(InvalidValue, match=f"index {depth} is outside the {depth} classes"):
            _steps("one_hot_v2", {"X": [x]}, {"Out": [out]}, depth=depth)
        _steps("one_hot_v2", {"X": [x]}, {"Out": [out]}, depth=depth, allow_out_of_range=True)
        assert not out[0].any()
        assert (out[1:].sum(1) == 1).all()


@pytest.mark.parametrize("name", ["cross_entropy", "cross_entropy2"])
def test_labels_that_are_special(name: str) -> None:
    """Rows that are ignored, probabilities of 0 and nan: as in NumPy. What is no class is refused."""
    x = np.random.default_rng(2).random((4, 5), np.float32)
    label = np.array([[1], [-100], [0], [4]])
    x[0, 1], x[3, 4] = 0.0, np.nan
    grad = OPS[name].grad
    assert grad is not None
    rounds = []
    for back_end in ("numpy", "llvm"):
        columns = {slot: [np.full((4, 1), 7, np.float32)] for slot in ("Y", "MatchX", "Y@GRAD")}
        slopes, reads = {"X@GRAD": [np.full_like(x, 7)]}, {"X": [x], "Label": [label]}
        outputs = {
            slot.name: columns[slot.name] for slot in OPS[name].output_slots if slot.name in columns
        }
        known = {**reads, **columns}
        read = {slot: known[slot] for slot in grad.reads() if slot in known}
        dev = harness.Device()
        with np.errstate(all="ignore"):
            for step in bind(name, reads, outputs, OPS[name].attrs, dev, back_end):
                step()
            for step in bind(grad.type, read, slopes, OPS[grad.type].attrs, dev, back_end):
                step()
        arrays = (a for reads in (*outputs.values(), slopes["X@GRAD"]) for a in reads)
        rounds.append([a.copy() for a in arrays])
        label[2] = 5
        with pytest.raises(InvalidValue, match=f"{name}: label 5 is outside the 5 classes"):
            for step in bind(grad.type, read, slopes, OPS[grad.type].attrs, dev, back_end):
                step()
        label[2] = 0
    for one, other in zip(*rounds, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
