"""Every kernel that convolutions may be given by measurement computes what the reference does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.kernels.array.conv import CONVOLUTIONS
from rowlock.executor.kernels.back_ends import VARIANTS, WINOGRAD
from rowlock.executor.kernels.capabilities import capabilities, installed
from rowlock.executor.kernels.registry import KERNELS
from rowlock.graph.ir.capabilities import CHANNELS_LAST, IN_ORDER
from rowlock.graph.ops.conv import FORWARD
from rowlock.graph.ops.registry import OPS, Op
from rowlock.graph.ops.samples import Sample, normal, sample
from tests.ops.harness import draw, gradients, run
from tests.ops.test_conformance import CASES, reference_of, seeds_of

KINDS = ["numpy", *(VARIANTS if "onednn" in installed() else ())]
SAMPLES = [(name, i) for name, i in CASES if name in FORWARD]
# Windows of 3 x 3: sizes that tiles of 2 x 2 do not fill, margins of all widths, one block of tiles and several
OF_TILES = [
    sample({"Input": normal(*x), "Filter": normal(filters, x[1], 3, 3)}, **attrs)
    for x, filters, attrs in (
        ((2, 16, 6, 6), 16, {"paddings": [1, 1]}),
        ((2, 17, 5, 7), 19, {"paddings": [0, 2, 1, 0]}),
        ((1, 16, 3, 3), 16, {}),
        ((3, 16, 13, 14), 18, {"padding_algorithm": "SAME"}),
        ((1, 33, 1, 4), 16, {"paddings": [2, 2]}),
    )
]


@pytest.mark.parametrize("layout", [IN_ORDER, CHANNELS_LAST])
@pytest.mark.parametrize("kernel", [kind for kind in KINDS if kind != WINOGRAD])
@pytest.mark.parametrize(("name", "index"), SAMPLES)
def test_results_and_gradients(name: str, index: int, kernel: str, layout: str) -> None:
    check(OPS[name], OPS[name].samples[index], kernel, layout)


@pytest.mark.skipif(WINOGRAD not in KINDS, reason="oneDNN is not installed")
@pytest.mark.parametrize("layout", [IN_ORDER, CHANNELS_LAST])
@pytest.mark.parametrize("number", range(len(OF_TILES)))
def test_results_and_gradients_of_tiles(number: int, layout: str) -> None:
    check(OPS["conv2d"], OF_TILES[number], WINOGRAD, layout)


# One channel at a time: windows that lie beyond the image on either side, steps of one and more, gaps
OF_CHANNELS = [
    sample(
        {"Input": normal(2, channels, *image), "Filter": normal(channels, 1, *window)},
        groups=channels,
        **attrs,
    )
    for channels, image, window, attrs in (
        (3, (6, 5), (3, 3), {"paddings": [1, 1]}),
        (5, (9, 8), (2, 3), {"strides": [2, 3], "paddings": [1, 0]}),
        (4, (7, 11), (3, 4), {"dilations": [2, 1], "paddings": [0, 2, 1, 3]}),
        (2, (2, 3), (5, 7), {"paddings": [2, 3], "strides": [1, 2]}),
        (1, (4, 4), (4, 4), {}),
    )
]


@pytest.mark.skipif("llvm" not in installed(), reason="LLVM is not installed")
@pytest.mark.parametrize("name", ["depthwise_conv2d", "depthwise_conv2d_transpose"])
@pytest.mark.parametrize("number", range(len(OF_CHANNELS)))
def test_results_and_gradients_of_channels(number: int, name: str) -> None:
    check(OPS[name], OF_CHANNELS[number], "llvm", IN_ORDER)


@pytest.mark.parametrize("kernel", [kind for kind in KINDS if kind != WINOGRAD])
def test_gradients_of_filters_as_wide_as_the_image(kernel: str) -> None:
    """In the library's own order of images it has a wrong one (oneDNN 3.2)."""
    case = sample({"Input": normal(4, 1, 32, 16), "Filter": normal(3, 1, 2, 16)})
    check(OPS["conv2d"], case, kernel, IN_ORDER)


def check(op: Op, case: Sample, kernel: str, layout: str) -> None:
    how = {"layout": layout, "back_end": kernel}
    inputs, attrs = draw(op, case, "float32")
    outputs = run(op, inputs, attrs, **how)
    for slot, values in reference_of(op, inputs, attrs).items():
        for array, value in zip(outputs[slot], values, strict=True):
            np.testing.assert_allclose(array, value, rtol=2e-5, atol=2e-5, err_msg=slot)
    exact, _ = draw(op, case, "float64")
    double = run(op, exact, attrs)
    seeds = seeds_of(op, double)
    expected = gradients(op, exact, double, seeds, attrs)
    single: list[Any] = [
        {s: [a.astype("f4") for a in arrays] for s, arrays in slots.items()}
        for slots in (inputs, double, seeds)
    ]
    slopes = gradients(op, *single, attrs, **how)
    for slot, grads in slopes.items():
        alone = gradients(op, *single, attrs, only=slot, **how)[slot]
        for one, other, value in zip(grads, alone, expected[slot], strict=True):
            np.testing.assert_allclose(one, value, rtol=1e-4, atol=1e-4, err_msg=slot)
            np.testing.assert_array_equal(one, other, err_msg=slot)


def test_a_variant_has_what_its_library_has_and_is_never_chosen_by_rule() -> None:
    for name, library in VARIANTS.items():
        ops = ("conv2d", "conv2d_grad") if name == WINOGRAD else CONVOLUTIONS
        assert {op for op, kind in KERNELS if kind == name} == set(ops)
        assert all((op, library) in KERNELS for op in CONVOLUTIONS)
        if library in installed():
            assert capabilities()[name].variant
