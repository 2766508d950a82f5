"""Walks every declared op and checks what the declaration promises."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowlock.executor.capabilities import capabilities
from rowlock.executor.device import Device
from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.graph.ops.registry import OPS, Inference, Op, Spec
from rowlock.graph.ops.samples import Draw, Sample
from rowlock.strategies.errors import ShapeError
from rowlock.strategies.types import FLOATS, to_numpy, to_var_type
from tests.ops.reference import REFERENCE

capabilities()  # imports every declaration and kernel
PROTOS = json.loads((Path(__file__).parents[1] / "reference" / "op_attrs.json").read_text())
COLLECTIVES = {"fused_all_reduce"}  # run by the executor on its group
RANDOM = {name for name, op in OPS.items() if op.random}  # checked in test_random.py
FORWARD = sorted(n for n, op in OPS.items() if op.samples and n not in COLLECTIVES | RANDOM)
GRADS = sorted({op.grad.type for op in OPS.values() if op.grad})
CASES = [(name, i) for name in FORWARD for i in range(len(OPS[name].samples))]
DIFFERENTIABLE = [(n, i) for n, i in CASES if OPS[n].grad and OPS[n].grad.type not in COLLECTIVES]

Arrays = dict[str, list[Any]]


def draw(op: Op, sample: Sample, dtype: Any, seed: int = 0) -> tuple[Arrays, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    inputs: Arrays = {}
    for slot, drawn in sample.inputs.items():
        many = drawn if isinstance(drawn, list) else [drawn]
        assert all(isinstance(one, Draw) for one in many)
        inputs[slot] = [one.array(rng, dtype) for one in many]
    attrs = {**op.attrs, **sample.attrs}
    if "in_dtype" in sample.attrs:
        attrs["in_dtype"] = int(to_var_type(dtype))
    return inputs, attrs


def infer(op: Op, inputs: Arrays, attrs: dict[str, Any]) -> dict[str, list[Spec]]:
    read = {
        slot: [Spec(a.shape, to_var_type(a.dtype)) for a in arrays]
        for slot, arrays in inputs.items()
    }
    return op.infer(Inference(op, read, attrs, where="train.py:7"))


def run(
    op: Op, inputs: Arrays, attrs: dict[str, Any], wanted: Callable[[str], bool] = lambda s: True
) -> Arrays:
    """Run an op on copies that it may update in place; outputs start as a sentinel."""
    specs = infer(op, inputs, attrs)
    outputs: Arrays = {}
    for slot in op.output_slots:
        if not wanted(slot.name):
            outputs[slot.name] = [None] * len(specs.get(slot.name, ()))
            continue
        source = op.in_place.get(slot.name)
        updates = slot.name.endswith("Out") and slot.name != "Out" and source in inputs
        made = [np.full(s.shape, 77, to_numpy(s.dtype)) for s in specs.get(slot.name, ())]
        outputs[slot.name] = inputs[source] if updates else made
    with np.errstate(all="ignore"):
        for step in bind(op.type, inputs, outputs, attrs, Device()):
            step()
    return outputs


def fill_inputs(arrays: Arrays) -> Arrays:
    return {slot: [a.copy() for a in held] for slot, held in arrays.items()}


def test_every_forward_op_has_samples_and_a_reference() -> None:
    forward = {n for n in OPS if n not in GRADS or OPS[n].samples}
    without = {n for n in forward if not OPS[n].samples} - COLLECTIVES
    assert without == set()
    assert set(FORWARD) - set(REFERENCE) == set()


def test_every_op_can_run_on_both_back_ends_with_one_signature() -> None:
    able = capabilities()
    for name, op in OPS.items():
        for back_end in ("numpy", "cupy"):
            assert name in able[back_end], f"{name} has no kernel on {back_end}"
        found = [KERNELS.get((name, back_end)) for back_end in ("numpy", "cupy")]
        if all(found):
            signatures = {str(inspect.signature(k.function)) for k in found if k}
            assert len(signatures) == 1, name
        if op.grad:
            assert op.grad.type in OPS, f"{name}'s gradient {op.grad.type} is not declared"


@pytest.mark.parametrize("name", sorted(set(OPS) & set(PROTOS)))
def test_slots_and_attributes_are_paddles(name: str) -> None:
    theirs, op = PROTOS[name], OPS[name]
    if "gradient_of" in theirs:
        return
    assert {slot.name for slot in op.input_slots} == set(theirs["inputs"])
    assert {slot.name for slot in op.output_slots} == set(theirs["outputs"])
    given = set(theirs.get("given", ()))
    for attr, entry in theirs["attrs"].items():
        assert attr in op.attrs, f"{name} lacks attribute {attr}"
        if attr not in given and entry["type"] in ("INT", "FLOAT", "BOOL", "STRING", "LONG"):
            assert op.attrs[attr] == pytest.approx(entry["value"]), f"{name}.{attr}"
    if theirs.get("grad") and op.grad:
        assert op.grad.type == theirs["grad"]["type"]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "index"), CASES)
def test_kernel_agrees_with_the_reference(name: str, index: int, dtype: str) -> None:
    op, sample = OPS[name], OPS[name].samples[index]
    inputs, attrs = draw(op, sample, dtype)
    specs = infer(op, inputs, attrs)
    used = fill_inputs(inputs)
    outputs = run(op, used, attrs)
    updated = (
        set(op.in_place.values())
        if any(s.endswith("Out") and s != "Out" for s in op.in_place)
        else set()
    )
    for slot, arrays in used.items():
        for array, before in zip(arrays, inputs[slot], strict=True):
            if slot not in updated:
                np.testing.assert_array_equal(
                    array, before, err_msg=f"{name} wrote its operand {slot}"
                )
    exact = {
        slot: [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
        for slot, arrays in inputs.items()
    }
    many = {slot.name for slot in op.input_slots if slot.duplicable}
    expected = REFERENCE[name]({s: a if s in many else a[0] for s, a in exact.items()}, attrs)
    tolerance = 1e-9 if dtype == "float64" else 2e-5
    for slot, value in expected.items():
        values = (
            value
            if isinstance(value, list) and slot in ("Out",) and len(outputs[slot]) > 1
            else [value]
        )
        for array, spec, one in zip(outputs[slot], specs[slot], values, strict=True):
            assert Spec(array.shape, to_var_type(array.dtype)) == spec
            assert np.shape(one) == array.shape, (
                f"{slot}: reference {np.shape(one)}, kernel {array.shape}"
            )
            bound = 2e-5 if array.dtype == np.float32 else tolerance
            np.testing.assert_allclose(array, one, rtol=bound, atol=bound)
    again = run(op, fill_inputs(inputs), attrs)
    for slot in expected:
        for first, second in zip(outputs[slot], again[slot], strict=True):
            np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(("name", "index"), CASES)
def test_non_contiguous_operands(name: str, index: int) -> None:
    op = OPS[name]
    if any(s.endswith("Out") and s != "Out" for s in op.in_place):
        pytest.skip("updates live in a scope, where arrays are contiguous")
    inputs, attrs = draw(op, op.samples[index], "float64")
    strided = {
        slot: [np.repeat(a, 2, axis=0)[::2] if a.ndim else a for a in held]
        for slot, held in inputs.items()
    }
    for slot, arrays in run(op, inputs, attrs).items():
        for plain, other in zip(arrays, run(op, strided, attrs)[slot], strict=True):
            np.testing.assert_allclose(plain, other, rtol=1e-12)


def gradients(
    op: Op, inputs: Arrays, outputs: Arrays, seeds: Arrays, attrs: dict[str, Any]
) -> Arrays:
    """Run the declared gradient op(s); returns gradients by forward slot."""
    grad = op.grad
    assert grad is not None
    rounds: list[int | None] = list(range(len(inputs[grad.each]))) if grad.each else [None]
    result: Arrays = {}
    for one in rounds:
        operands: Arrays = {}
        for slot, source in grad.reads().items():
            base, is_grad, _ = source.partition("@GRAD")
            held = seeds.get(base) if is_grad else inputs.get(base, outputs.get(base))
            if held:
                operands[slot] = held
        made = run(OPS[grad.type], operands, {**OPS[grad.type].attrs, **grad.attributes(attrs)})
        for slot, target in grad.writes().items():
            base = target.partition("@GRAD")[0]
            if one is None:
                result[base] = made[slot]
            else:
                result.setdefault(base, []).extend(made[slot])
    return result


def is_float(op: Op, slot: str, inputs: Arrays) -> bool:
    return slot in inputs and to_var_type(inputs[slot][0].dtype) in FLOATS


# The extra outputs are for the backward pass or people, not part of what is differentiated.
SIDE = {
    "XShape",
    "MatchX",
    "SavedMean",
    "SavedVariance",
    "MeanOut",
    "VarianceOut",
    "Mean",
    "Variance",
    "Residual",
}


@pytest.mark.parametrize(("name", "index"), DIFFERENTIABLE)
def test_gradient_against_differences(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float64")
    if name == "cast" and attrs["out_dtype"] == 3:
        pytest.skip("a cast to integers has no slope")
    outputs = run(op, fill_inputs(inputs), attrs)
    rng = np.random.default_rng(1)
    side = SIDE | ({"Softmax"} if name == "softmax_with_cross_entropy" else set())
    seeds = {
        slot: [rng.standard_normal(a.shape) for a in arrays]
        for slot, arrays in outputs.items()
        if slot not in side and arrays and arrays[0].dtype.kind == "f"
    }
    found = gradients(op, inputs, outputs, seeds, attrs)

    def total() -> float:
        made = run(op, fill_inputs(inputs), attrs)
        return sum(
            float((a * s).sum())
            for slot in seeds
            for a, s in zip(made[slot], seeds[slot], strict=True)
        )

    checked = 0
    for slot, grads in found.items():
        if not is_float(op, slot, inputs):
            continue
        for array, grad in zip(inputs[slot], grads, strict=True):
            for position in np.ndindex(array.shape):
                kept, h = array[position], 1e-6
                array[position] = kept + h
                up = total()
                array[position] = kept - h
                down = total()
                array[position] = kept
                assert grad[position] == pytest.approx((up - down) / (2 * h), rel=1e-4, abs=1e-5), (
                    slot,
                    position,
                )
                checked += 1
    assert checked


@pytest.mark.parametrize(
    ("name", "index"), [(n, 0) for n in sorted({n for n, _ in DIFFERENTIABLE})]
)
def test_each_gradient_alone(name: str, index: int) -> None:
    """Nobody may want the other gradients: each comes out the same without them."""
    op = OPS[name]
    grad = op.grad
    assert grad is not None
    if grad.type not in GRADS or not isinstance(grad.outputs, tuple) or len(grad.outputs) < 2:
        return
    inputs, attrs = draw(op, op.samples[index], "float64")
    outputs = run(op, fill_inputs(inputs), attrs)
    operands: Arrays = {}
    for source in grad.reads():
        base, is_grad, _ = source.partition("@GRAD")
        held = (
            [np.ones_like(a) for a in outputs[base]]
            if is_grad
            else inputs.get(base, outputs.get(base))
        )
        if held:
            operands[source] = held
    full = run(OPS[grad.type], operands, {**OPS[grad.type].attrs, **grad.attributes(attrs)})
    for slot in grad.outputs:
        alone = run(
            OPS[grad.type],
            operands,
            {**OPS[grad.type].attrs, **grad.attributes(attrs)},
            lambda s, slot=slot: s == slot,
        )
        for a, b in zip(full[slot], alone[slot], strict=True):
            np.testing.assert_array_equal(a, b)


REFUSED = [(n, i) for n in sorted(OPS) for i in range(len(OPS[n].refuses))]


@pytest.mark.parametrize(("name", "index"), REFUSED)
def test_refused_operands_are_explained(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.refuses[index], "float32")
    with pytest.raises(ShapeError, match=f"^{name}: ") as caught:
        infer(op, inputs, attrs)
    assert "train.py:7" in str(caught.value)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0])
UNARY = [
    n for n in FORWARD if OPS[n].scalar and len(OPS[n].input_slots) == 1 and n != "logical_not"
]


@pytest.mark.parametrize("name", UNARY)
def test_special_values(name: str) -> None:
    op = OPS[name]
    attrs = {**op.attrs, **op.samples[0].attrs}
    with np.errstate(all="ignore"):
        expected = REFERENCE[name]({"X": SPECIAL.copy()}, attrs)["Out"]
    (out,) = run(op, {"X": [SPECIAL.copy()]}, attrs)["Out"]
    nan = np.isnan(SPECIAL)
    assert np.isnan(out[nan]).all(), "nan must stay visible"
    known = ~np.isnan(
        expected
    )  # the plain formula gives nan at an infinity where the limit is known
    np.testing.assert_allclose(out[known], expected[known], rtol=1e-12)
