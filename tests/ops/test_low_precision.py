"""Every op that takes float32 takes float16 and bfloat16: computed in float32, rounded once on writing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.device.device import Device
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.registry import KERNELS
from rowlock.graph.ir.graph import Node, Value
from rowlock.graph.ops.registry import OPS, Op, Spec
from rowlock.strategies.types import BFLOAT16, is_float, is_low, to_var_type
from tests.conftest import one_in
from tests.ops.harness import Arrays, draw, exact, gradients, infer, run, specs_of, updates
from tests.ops.test_conformance import FORWARD, reference_of, seeds_of

NEAR = {"float16": 2e-3, "bfloat16": 1.6e-2}  # of the result's norm: four units of rounding
TAKES_FLOATS = [
    name
    for name in FORWARD
    if any(
        is_float(a.dtype)
        for many in draw(OPS[name], OPS[name].samples[0], "float32")[0].values()
        for a in many
    )
]
MOVES = [  # elements, and changes none
    "assign", "cast", "concat", "crop", "crop_tensor", "diag", "diag_embed", "diagonal", "expand", "expand_as",
    "fill_any_like", "fill_constant_batch_size_like", "fill_zeros_like", "flatten", "flatten2", "flip",
    "gather", "gather_nd", "index_sample", "index_select", "lookup_table", "lookup_table_v2", "memcpy",
    "meshgrid", "multiplex", "pad", "pad2d", "pad_constant_like", "partial_concat", "pixel_shuffle", "reshape",
    "reshape2", "reverse", "roll", "shape", "shuffle_channel", "slice", "space_to_depth", "split", "squeeze",
    "squeeze2", "stack", "strided_slice", "temporal_shift", "transfer_layout", "transpose", "transpose2",
    "tril_triu", "unbind", "unfold", "unsqueeze", "unsqueeze2", "unstack", "where",
]  # fmt: skip
WIDENED = ("meshgrid", "tril_triu")  # formulas, whose low elements pass through float32
OPTIMIZERS = [name for name in TAKES_FLOATS if "Param" in OPS[name].inputs and updates(OPS[name])]
low_types = pytest.mark.parametrize("dtype", list(NEAR))


def wide(arrays: Arrays, dtype: str = "float64") -> Arrays:
    return {
        slot: [a.astype(dtype) if is_low(a.dtype) else a for a in many]
        for slot, many in arrays.items()
    }


def assert_near(array: Any, wanted: Any, dtype: str, what: str = "") -> None:
    """Compare by the norm of the difference; integers and booleans must be the same."""
    wanted = np.asarray(wanted)
    if not is_float(array.dtype):
        np.testing.assert_array_equal(array, wanted, err_msg=what)
        return
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(array), finite, err_msg=what)
    apart = np.linalg.norm((array.astype("float64") - wanted)[finite])
    assert apart <= NEAR[dtype] * np.linalg.norm(wanted[finite]) + 1e-30, what


def check_forward(op: Op, inputs: Arrays, attrs: dict[str, Any], dtype: str) -> Arrays:
    specs = infer(op, specs_of(inputs), attrs, inputs)
    outputs = run(op, inputs, attrs)
    for slot, values in reference_of(op, wide(inputs), attrs).items():
        for array, spec, value in zip(outputs[slot], specs[slot], values, strict=True):
            assert Spec(array.shape, to_var_type(array.dtype)) == spec
            assert_near(array, value, dtype, slot)
    return outputs


def low_seeds_of(op: Op, outputs: Arrays) -> Arrays:
    return {
        slot: [s.astype(a.dtype) for s, a in zip(many, outputs[slot], strict=True)]
        for slot, many in seeds_of(op, outputs).items()
    }


def check_gradients(
    op: Op, inputs: Arrays, outputs: Arrays, attrs: dict[str, Any], dtype: str
) -> None:
    """The gradient op in low precision, and in float64 on the same operands."""
    seeds = low_seeds_of(op, outputs)
    if not seeds:
        return
    slopes = gradients(op, inputs, outputs, seeds, attrs)
    double = [{k: [a.astype("float64") if is_float(a.dtype) else a for a in v] for k, v in many.items()}
             for many in (inputs, outputs, seeds)]  # fmt: skip
    expected = gradients(op, *double, attrs)
    for slot, grads in slopes.items():
        for k, (grad, value) in enumerate(zip(grads, expected[slot], strict=True)):
            if slot in inputs and grad is not None and is_float(inputs[slot][k].dtype):
                assert grad.dtype == inputs[slot][k].dtype, slot
                assert_near(grad, value, dtype, f"{slot}@GRAD")


@low_types
@pytest.mark.parametrize("name", TAKES_FLOATS)
def test_every_op_and_its_gradient(name: str, dtype: str) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[0], dtype)
    outputs = check_forward(op, inputs, attrs, dtype)
    if op.grad:
        check_gradients(op, inputs, outputs, attrs, dtype)


@low_types
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_low_parameters_take_a_float32_learning_rate(name: str, dtype: str) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[0], dtype)
    if "LearningRate" in inputs:
        inputs["LearningRate"] = [a.astype("float32") for a in inputs["LearningRate"]]
    outputs = check_forward(op, inputs, attrs, dtype)
    assert outputs["ParamOut"][0].dtype == dtype


CASES = [(name, i) for name in ("batch_norm", "layer_norm", "fused_batch_norm_act", "fused_bn_add_activation")
         for i in range(len(OPS[name].samples))]  # fmt: skip


@low_types
@pytest.mark.parametrize(("name", "index"), CASES)
def test_norms_of_low_values_keep_float32_parameters(name: str, index: int, dtype: str) -> None:
    """Mixed precision: X is low, Scale, Bias and statistics are float32."""
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], dtype)
    inputs = {s: v if s in ("X", "Z") else wide({s: v}, "float32")[s] for s, v in inputs.items()}
    outputs = check_forward(op, inputs, attrs, dtype)
    assert outputs["Y"][0].dtype == dtype
    for slot in ("Mean", "Variance", "MeanOut", "SavedMean", "SavedVariance"):
        assert all(a.dtype == "float32" for a in outputs.get(slot, ())), slot
    check_gradients(op, inputs, outputs, attrs, dtype)


@low_types
@pytest.mark.parametrize("name", MOVES)
def test_what_only_moves_elements_takes_no_memory_and_keeps_bits(name: str, dtype: str) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[0], dtype)
    dev = Device()
    outputs, exact = run(op, inputs, attrs, dev=dev), run(op, wide(inputs), attrs)
    for slot, many in outputs.items():
        for array, value in zip(many, exact[slot], strict=True):
            np.testing.assert_array_equal(array.astype("float64"), value.astype("float64"))
    if name not in WIDENED:
        assert dev.scratch_bytes < sum(a.nbytes for many in inputs.values() for a in many) * 2


def test_results_are_rounded_once() -> None:
    """Two thousand halves of one: a running sum in float16 or bfloat16 would stop early."""
    for dtype in ("float16", BFLOAT16):
        ones = np.full((1, 2050), 0.5, dtype)
        (total,) = run(OPS["reduce_sum"], {"X": [ones]}, {**OPS["reduce_sum"].attrs, "dim": [1]})[
            "Out"
        ]
        assert total == np.asarray(1025.0, dtype)


@low_types
@pytest.mark.parametrize("name", ["relu", "elementwise_add", "scale", "softmax_grad", "relu_grad"])
def test_results_may_take_the_place_of_operands(name: str, dtype: str) -> None:
    op = OPS[name.removesuffix("_grad")]
    inputs, attrs = draw(op, op.samples[0], dtype)
    outputs = run(op, inputs, attrs)
    for overwrite in (False, True):
        if name.endswith("_grad"):
            seeds = {"Out": [a.copy() for a in inputs["X"]]}
            results = gradients(op, inputs, outputs, seeds, attrs, overwrite=overwrite)["X"]
        else:
            results = run(op, inputs, attrs, overwrite=overwrite)["Out"]
        if not overwrite:
            beside = results
    np.testing.assert_array_equal(results[0].view("u2"), beside[0].view("u2"))


@low_types
def test_random_numbers_are_those_of_float32_rounded(dtype: str) -> None:
    for name in ("uniform_random", "gaussian_random", "truncated_gaussian_random"):
        op = OPS[name]
        drawn = {}
        for kind in (dtype, "float32"):
            attrs = {**op.attrs, "shape": [64], "dtype": int(to_var_type(kind))}
            (drawn[kind],) = run(op, {}, attrs, dev=Device(seed=3))["Out"]
        np.testing.assert_array_equal(
            drawn[dtype].view("u2"), drawn["float32"].astype(dtype).view("u2"), err_msg=name
        )


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float32", "float64", "int64", "bool"])
@low_types
def test_casts_to_and_fro(source: str, dtype: str) -> None:
    op = OPS["cast"]
    for a, b in ((source, dtype), (dtype, source)):
        x = np.array([0, 1, -3, 100.5]).astype(a)
        attrs = {"in_dtype": int(to_var_type(a)), "out_dtype": int(to_var_type(b))}
        (out,) = run(op, {"X": [x]}, attrs)["Out"]
        assert out.dtype == b
        np.testing.assert_array_equal(out.astype("f8"), x.astype(b).astype("f8"))


LIBRARIES = [
    (name, library)
    for library in ("onednn", "llvm")
    for name in TAKES_FLOATS
    if (name, library) in KERNELS and library in capabilities() and name not in MOVES
]


@pytest.mark.parametrize(("name", "library"), one_in(3, LIBRARIES))
def test_libraries_compute_low_values_in_float32(name: str, library: str) -> None:
    """bfloat16 through a library's kernel, where that takes the node in float32."""
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[0], "bfloat16")
    takes, node = capabilities()[library].takes[name], node_of(op, inputs, attrs)
    single = node_of(op, wide(inputs, "float32"), attrs)
    if takes is None or not takes(single):
        pytest.skip("not in float32 either")
    assert takes(node)
    outputs = run(op, inputs, attrs, back_end=library)
    for slot, values in run(op, inputs, attrs).items():
        for array, value in zip(outputs[slot], values, strict=True):
            assert_near(array, value.astype("f8"), "bfloat16", slot)


@pytest.mark.skipif("onednn" not in capabilities(), reason="no oneDNN here")
@pytest.mark.parametrize(("name", "index"), CASES)
def test_gradients_by_a_library_may_lie_where_operands_do(name: str, index: int) -> None:
    """What it takes in bfloat16 as it lies it reads there, whatever will be written there."""
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "bfloat16")
    inputs = {s: v if s in ("X", "Z") else wide({s: v}, "float32")[s] for s, v in inputs.items()}
    outputs = run(op, inputs, attrs)
    seeds = low_seeds_of(op, outputs)
    beside, instead = (
        gradients(op, inputs, outputs, seeds, attrs, overwrite=overwrite, back_end="onednn")
        for overwrite in (False, True)
    )
    for slot, arrays in beside.items():
        for one, other in zip(arrays, instead[slot], strict=True):
            np.testing.assert_array_equal(exact(one), exact(other), err_msg=slot)


def node_of(op: Op, inputs: Arrays, attrs: dict[str, Any]) -> Node:
    """Return a node of the compiler's graph that reads arrays like these."""
    specs = specs_of(inputs)
    sides = (specs, infer(op, specs, attrs))
    read, written = (
        {
            s: tuple(Value(f"{s}{i}", spec) for i, spec in enumerate(many))
            for s, many in side.items()
        }
        for side in sides
    )
    return Node(op.type, read, written, attrs)
