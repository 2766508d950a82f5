"""Generated batch and layer norms: samples in both layouts, shapes that cut work differently, statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ir.capabilities import CHANNELS_LAST, IN_ORDER
from rowlock.graph.ops.registry import OPS
from tests.conftest import one_in, one_of_each
from tests.ops.cuda_cases import (
    CUDA,
    assert_near,
    cases,
    check_forward,
    check_gradients,
    check_in_place,
    low_types,
    narrowed,
)
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import gradients, laid_out, run
from tests.ops.test_conformance import seeds_of

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
FUSED = ("fused_batch_norm_act", "fused_bn_add_activation")
PARTS = (
    "batch_norm_partial", "batch_norm_apply", "batch_norm_grad_partial", "batch_norm_grad_apply",
)  # fmt: skip
RESIDUAL = ("add_layer_norm", "layer_norm_grad_add")
SAMPLES = cases("batch_norm", *FUSED, *PARTS, "layer_norm", *RESIDUAL)
LOW = low_types()
LAYOUTS = [IN_ORDER, CHANNELS_LAST]
STATISTICS = ("Scale", "Bias", "Mean", "Variance")
rng = np.random.default_rng(0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "index"), one_of_each(SAMPLES, 3))
def test_kernel_agrees_with_the_reference(name: str, index: int, layout: str) -> None:
    if layout and OPS[name].samples[index].attrs.get("data_layout") == "NHWC":
        pytest.skip("has no other layout")
    check_forward(name, index, "float32", layout)
    if OPS[name].grad:
        check_gradients(name, index, layout=layout)
    if OPS[name].in_place:
        check_in_place(name, index, layout)


@pytest.mark.parametrize("name", ["batch_norm", "layer_norm"])
def test_double_precision_is_kept(name: str) -> None:
    check_forward(name, 0, "float64")


def arrays(shape: tuple[int, ...], channels: int, *slots: str) -> dict[str, list[Any]]:
    """Return images that are off centre, and what belongs to each of their channels."""
    of_images = {slot: [rng.standard_normal(shape) * 2 + 3] for slot in slots}
    of_channels = {slot: [rng.uniform(0.5, 2, channels)] for slot in STATISTICS}
    return narrowed({**of_images, **of_channels}, "f4")


def check(name: str, inputs: dict[str, list[Any]], layout: str = "", **attrs: Any) -> None:
    """Hold a norm and its gradients to those in double precision."""
    op = OPS[name]
    settings = {**op.attrs, **attrs}
    exact = run(op, narrowed(inputs, "f8"), settings)
    results = run(op, inputs, settings, dev=gpu(), layout=layout, **CUDA)
    for slot, values in exact.items():
        for array, value in zip(results[slot], values, strict=True):
            assert_near(array, value, slot)
    seeds = narrowed(seeds_of(op, exact), "f4")
    double = (narrowed(inputs, "f8"), exact, narrowed(seeds, "f8"), settings)
    expected = gradients(op, *double)
    low = (inputs, narrowed(exact, "f4"), seeds, settings)
    slopes = gradients(op, *low, dev=gpu(), layout=layout, **CUDA)
    for slot, (value,) in expected.items():
        assert_near(slopes[slot][0], value, slot)
    alone = gradients(op, *low, only="Scale", dev=gpu(), layout=layout, **CUDA)["Scale"][0]
    np.testing.assert_array_equal(slopes["Scale"][0], alone)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(8, 16, 7, 7), (9, 3, 24, 24)])
def test_images_of_any_size_are_normalised(shape: tuple[int, ...], layout: str) -> None:
    check("fused_bn_add_activation", arrays(shape, shape[1], "X", "Z"), layout)


def test_matrices_are_normalised_by_column() -> None:
    check("batch_norm", arrays((1000, 40), 40, "X"))
    check("batch_norm", arrays((300, 7), 7, "X"), is_test=True)


@pytest.mark.parametrize(
    ("rows", "width"), one_in(4, [(70, 768), (3, 1030), (2, 4100), (1, 16_500)])
)
def test_rows_of_any_length_are_normalised(rows: int, width: int) -> None:
    inputs = arrays((rows, width), width, "X")
    check("layer_norm", {slot: inputs[slot] for slot in ("X", "Scale", "Bias")})


@pytest.mark.parametrize("width", [40, 1030, 8_201])
def test_a_residual_is_added_on_the_way(width: int) -> None:
    """Before the norm to the bits of a sum of its own, and behind its gradient with one rounding less."""
    low, how = LOW[-1], {"dev": gpu(), **CUDA}
    x, z, d_y, addend = (rng.standard_normal((2, width)).astype(low) for _ in range(4))
    scale, bias = rng.standard_normal((2, width)).astype("f4")
    parameters = {"Scale": [scale], "Bias": [bias]}
    op, plain = OPS["add_layer_norm"], OPS["layer_norm"]
    results = run(op, {"X": [x], "Z": [z], **parameters}, op.attrs, **how)
    (total,) = results["Out"]
    np.testing.assert_array_equal(total, x + z)
    apart = run(plain, {"X": [total], **parameters}, plain.attrs, **how)
    for slot, (array,) in apart.items():
        assert_near(results[slot][0], array.astype("f8"), slot, 1.6e-2 if slot == "Y" else 1e-5)
    op = OPS["layer_norm_grad_add"]
    saved = {"Mean": apart["Mean"], "Variance": apart["Variance"]}
    inputs = {"X": [total], **parameters, **saved, "Y@GRAD": [d_y], "Addend": [addend]}
    slopes = run(op, inputs, op.attrs, **how)
    exact = run(op, narrowed(inputs, "f8"), op.attrs)
    for slot, (array,) in exact.items():
        assert_near(slopes[slot][0], array, slot, 1.6e-2 if slot == "X@GRAD" else 1e-4)
    alone = gradients(plain, {"X": [total], **parameters}, saved, {"Y": [d_y]}, plain.attrs, **how)
    for slot in ("Scale", "Bias"):
        assert_near(slopes[f"{slot}@GRAD"][0], alone[slot][0].astype("f8"), slot)
    sums = [alone["X"][0].astype("f4") + addend.astype("f4"), slopes["X@GRAD"][0].astype("f4")]
    np.testing.assert_allclose(*sums, rtol=1.6e-2, atol=1.6e-2)


@pytest.mark.parametrize(
    ("name", "dtype", "layout"),
    [("batch_norm", LOW[-1], CHANNELS_LAST), (FUSED[1], LOW[0], CHANNELS_LAST),
     (FUSED[0], LOW[-1], IN_ORDER)],
)  # fmt: skip
def test_images_in_low_precision_have_statistics_in_single(
    name: str, dtype: Any, layout: str
) -> None:
    op = OPS[name]
    images = ("X", "Z") if "add" in name else ("X",)
    inputs = arrays((4, 16, 3, 3), 16, *images)
    inputs |= narrowed({slot: inputs[slot] for slot in images}, dtype)
    near = 2e-3 if dtype == np.float16 else 1.6e-2
    exact = run(op, narrowed(inputs, "f8"), dict(op.attrs))
    results = run(op, inputs, dict(op.attrs), dev=gpu(), layout=layout, **CUDA)
    for slot, values in exact.items():
        for array, value in zip(results[slot], values, strict=True):
            assert array.dtype == (dtype if slot in ("Y", "ReserveSpace") else np.float32)
            assert_near(array, value, slot, near if slot == "Y" else 1e-5)
    seeds = {"Y": [rng.standard_normal(inputs["X"][0].shape).astype(dtype)]}
    saved = {slot: narrowed({slot: many}, dtype if slot == "Y" else "f4")[slot]
             for slot, many in exact.items()}  # fmt: skip
    expected = gradients(
        op, narrowed(inputs, "f8"), narrowed(saved, "f8"), narrowed(seeds, "f8"), dict(op.attrs)
    )
    slopes = gradients(op, inputs, saved, seeds, dict(op.attrs), dev=gpu(), layout=layout, **CUDA)
    for slot, (value,) in expected.items():
        assert_near(slopes[slot][0], value, slot, near)


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_rows_in_low_precision_are_normalised_in_single(dtype: Any) -> None:
    check_forward("layer_norm", 0, dtype)
    check_gradients("layer_norm", 0, dtype)


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    """The variance is of distances: a sum of squares would have no digit left here."""
    x = (rng.standard_normal((1024, 8)) + 4000).astype("f4")
    inputs = {**arrays((1, 8), 8), "X": [x]}
    results = run(OPS["batch_norm"], inputs, dict(OPS["batch_norm"].attrs), dev=gpu(), **CUDA)
    expected = 1 / np.sqrt(x.astype("f8").var(0) + 1e-5)
    np.testing.assert_allclose(results["SavedVariance"][0], expected, rtol=5e-5)


def test_what_is_not_a_number_passes_an_activation() -> None:
    inputs = arrays((4, 3, 2, 2), 3, "X")
    inputs["X"][0][0, 1] = np.nan
    op = OPS["fused_batch_norm_act"]
    results = run(op, inputs, dict(op.attrs), dev=gpu(), **CUDA)["Y"][0]
    assert np.isnan(results[:, 1]).all()
    assert np.isfinite(results[:, [0, 2]]).all()


def test_no_rows_have_no_gradient() -> None:
    op = OPS["layer_norm"]
    inputs = narrowed({"X": [np.zeros((0, 6))], "Scale": [np.ones(6)], "Bias": [np.ones(6)]}, "f4")
    results = run(op, inputs, dict(op.attrs), dev=gpu(), **CUDA)
    seeds = {"Y": [np.zeros((0, 6), "f4")]}
    slopes = gradients(op, inputs, results, seeds, dict(op.attrs), dev=gpu(), **CUDA)
    np.testing.assert_array_equal(slopes["Scale"][0], np.zeros(6))
    np.testing.assert_array_equal(slopes["Bias"][0], np.zeros(6))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_norm_is_three_launches_with_what_follows_it(layout: str) -> None:
    xp = gpu().xp
    x = laid_out((8, 16, 4, 4), "f4", layout, xp)
    per_channel = {slot: [xp.ones(16, "f4")] for slot in STATISTICS}
    saved = {slot: [xp.zeros(16, "f4")] for slot in ("SavedMean", "SavedVariance")}
    outputs = {"Y": [x], "MeanOut": per_channel["Mean"], **saved}
    outputs["VarianceOut"] = per_channel["Variance"]
    op = OPS["fused_bn_add_activation"]
    steps = bind(op.type, {"X": [x], "Z": [x], **per_channel}, outputs, op.attrs, gpu(), "cuda")
    assert len(steps) == 3


def test_every_kernel_compiles_for_a_gpu(launched: dict[str, CudaKernel]) -> None:
    assert_compile_for_a_gpu(launched)
