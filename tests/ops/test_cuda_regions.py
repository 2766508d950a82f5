"""Pools over regions on a GPU, real or simulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import SequenceError
from tests.conftest import one_in
from tests.ops.cuda_cases import (
    assert_near,
    cases,
    check_forward,
    check_gradients,
    narrowed,
    refusal,
)
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import Arrays, gradients, run

pytestmark = needs_compiler
POOLS = ("roi_pool", "roi_align", "psroi_pool", "prroi_pool")
SAMPLES = cases(*POOLS)
CASES = [
    (name, bins, counts, scale)
    for name in POOLS
    for bins in ((1, 1), (3, 2), (7, 7))
    for counts in ((4, 0, 3), (9,), (0, 0))
    for scale in (1.0, 0.25)
]


def drawn(name: str, bins: tuple[int, int], counts: tuple[int, ...], scale: float) -> Any:
    """Return operands and attributes; regions lie on images, beside them, and around them."""
    rng, (height, width) = np.random.default_rng(len(counts) + bins[0]), (11, 13)
    channels = 2 * bins[0] * bins[1] if name == "psroi_pool" else 11
    corners = rng.uniform(-8, 12, (sum(counts), 2))
    rois = np.concatenate([corners, corners + rng.uniform(-1, 20, corners.shape)], 1) / scale
    rois[::3] = np.round(rois[::3])
    inputs: Arrays = {
        "X": [rng.standard_normal((len(counts), channels, height, width))],
        "ROIs": [rois],
    }
    ends = np.cumsum([0, *counts])
    by_slot = {"prroi_pool": ("BatchRoINums", np.array(counts)), "roi_align": ("RoisLod", ends)}
    slot, values = by_slot.get(name, ("ROIs@LOD", ends)) if bins[0] == 3 else ("ROIs@LOD", ends)
    attrs = {**OPS[name].attrs, "pooled_height": bins[0], "pooled_width": bins[1]}
    attrs["spatial_scale"] = scale
    if name == "psroi_pool":
        attrs["output_channels"] = 2
    if name == "roi_align" and bins[0] == 7:
        attrs["sampling_ratio"] = 2
    return {**inputs, slot: [values]}, attrs


def check(name: str, inputs: Arrays, attrs: dict[str, Any], kind: str = "float32") -> None:
    """Hold results and gradients to NumPy's in double precision, or the same one: there bins lie alike."""
    op, dev, inputs = OPS[name], gpu(), narrowed(inputs, kind)
    exact = "float64" if name == "prroi_pool" else kind
    known = narrowed(inputs, exact)
    expected = run(op, known, attrs)
    outputs = run(op, inputs, attrs, dev=dev, back_end="cuda")
    for slot, (array,) in outputs.items():
        assert_near(array, expected[slot][0], slot)
    rng = np.random.default_rng(1)
    seeds = narrowed({"Out": [rng.standard_normal(expected["Out"][0].shape)]}, kind)
    slopes = gradients(op, known, expected, narrowed(seeds, exact), attrs)
    operands = inputs, narrowed(expected, kind), seeds, attrs
    ours = [gradients(op, *operands, dev=dev, back_end="cuda") for _ in (1, 2)]
    for slot, (array,) in ours[0].items():
        assert_near(array, slopes[slot][0], slot)
        assert array.tobytes() == ours[1][slot][0].tobytes()


@pytest.mark.parametrize(("name", "index"), SAMPLES)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_samples(name: str, index: int, kind: str) -> None:
    check_forward(name, index, kind)
    check_gradients(name, index, kind)


@pytest.mark.parametrize(("name", "bins", "counts", "scale"), one_in(4, CASES))
def test_regions_anywhere(
    name: str, bins: tuple[int, int], counts: tuple[int, ...], scale: float
) -> None:
    for kind in ("float32", "float64"):
        check(name, *drawn(name, bins, counts, scale), kind)


@pytest.mark.parametrize("points", [-1, 2])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_aligned_regions_keep_their_size(points: int, kind: str) -> None:
    """They may be smaller than a pixel, have no size, or a negative one, of which points go backwards."""
    inputs, attrs = drawn("roi_align", (3, 2), (9,), 0.25)
    rois = inputs["ROIs"][0]
    rois[1, 2:] = rois[1, :2] + 1.5
    rois[2, 2:] = rois[2, :2]
    rois[4] = rois[4, [2, 3, 0, 1]]
    check("roi_align", inputs, {**attrs, "aligned": True, "sampling_ratio": points}, kind)


@pytest.mark.parametrize("name", POOLS)
def test_regions_of_any_size(name: str) -> None:
    """Of points a bin only visits those that can lie on the image."""
    inputs, attrs = drawn(name, (2, 2), (4,), 1.0)
    far = 3e8
    inputs["ROIs"] = [
        np.array([[-far, 0, far, 5], [far, far, 2 * far, 2 * far], [3, 3, -4, 1], [2, 2, 2, 2]])
    ]
    outputs = run(OPS[name], narrowed(inputs, "float32"), attrs, dev=gpu(), back_end="cuda")
    assert np.isfinite(outputs["Out"][0]).all()
    assert not outputs["Out"][0][1].any()


def test_the_first_of_equal_pixels_is_the_largest_and_no_number_is_larger_than_none() -> None:
    image = np.array(
        [[-2, -1, -1, -3], [-4, -1, 0, -0.0], [-np.inf, np.nan, 5, np.nan], [0, 1, 2, np.inf]]
    )
    inputs = {"X": [image[None, None]], "ROIs": [np.array([[0.0, 0, 3, 3]])]}
    inputs["ROIs@LOD"] = [np.array([0, 1])]
    attrs = {**OPS["roi_pool"].attrs, "pooled_height": 2, "pooled_width": 2}
    outputs = run(OPS["roi_pool"], narrowed(inputs, "float32"), attrs, dev=gpu(), back_end="cuda")
    np.testing.assert_array_equal(outputs["Out"][0][0, 0], [[-1, 0], [np.nan, np.nan]])
    np.testing.assert_array_equal(outputs["Argmax"][0][0, 0], [[1, 6], [9, 11]])


@pytest.mark.parametrize("name", POOLS)
def test_what_does_not_fit_is_refused(name: str) -> None:
    inputs = narrowed(drawn(name, (1, 1), (2, 1), 1.0)[0], "float32")
    if name == "psroi_pool":
        inputs["X"] = [inputs["X"][0][:, :1]]
    assert f"{name}: ROIs has 3 rows, and 2 of them belong" in refusal(
        OPS[name], {**inputs, "ROIs@LOD": [np.array([0, 1, 2])]}, "cuda"
    )
    odd = inputs["ROIs"][0].copy()
    odd[2, 1] = np.nan
    text = refusal(OPS[name], {**inputs, "ROIs": [odd]}, "cuda")
    assert f"{name}: region 2 of ROIs is nan" in text and "may have diverged" in text
    with pytest.raises(SequenceError, match="ROIs has 1 sequences, and X has 2 images"):
        refusal(OPS[name], {**inputs, "ROIs@LOD": [np.array([0, 3])]}, "cuda")


def test_kernels_compile_for_a_gpu(launched: dict[str, Any]) -> None:
    for name in POOLS:
        check(name, *drawn(name, (2, 2), (2, 1), 0.5))
    assert_compile_for_a_gpu(launched)
