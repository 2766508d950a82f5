"""nan, infinities and signed zeros: what ops of one element do at the edge of their domain."""

from __future__ import annotations

import numpy as np
import pytest

from rowlock.graph.ops.registry import OPS
from tests.ops.harness import run
from tests.ops.reference import REFERENCE

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0])
UNARY = [
    name
    for name, op in sorted(OPS.items())
    if op.scalar
    and op.samples
    and len(op.input_slots) == 1
    and name not in ("logical_not", "bitwise_not")
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name: str, dtype: str) -> None:
    op = OPS[name]
    attrs = {**op.attrs, **op.samples[0].attrs}
    with np.errstate(all="ignore"):
        expected = REFERENCE[name]({"X": SPECIAL.copy()}, attrs)["Out"]
    (out,) = run(op, {"X": [SPECIAL.astype(dtype)]}, attrs)["Out"]
    assert np.isnan(out[np.isnan(SPECIAL)]).all(), "nan must stay visible"
    # The plain formula gives nan at an infinity where the limit is known.
    known = ~np.isnan(expected)
    near = 1e-12 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(out[known], expected[known], rtol=near)


@pytest.mark.parametrize("name", ["relu", "relu6", "hard_sigmoid", "clip", "elu", "leaky_relu"])
def test_a_closed_gate_stops_an_infinite_gradient(name: str) -> None:
    """0 * inf would be nan: where the function is flat its gradient is 0 whatever comes down."""
    op, attrs = OPS[f"{name}_grad"], {**OPS[name].attrs}
    if name == "clip":
        attrs |= {"min": 0.0, "max": 1.0}
    flat = {"relu": 0.0, "relu6": 0.0, "hard_sigmoid": 0.0, "clip": -1.0}
    d_out = np.array([np.inf, -np.inf, np.nan])
    source = op.input_slots[0].name
    closed = np.full(3, flat.get(name, -1.0))
    (d_x,) = run(op, {source: [closed], "Out@GRAD": [d_out]}, attrs)["X@GRAD"]
    if name in flat:
        np.testing.assert_array_equal(d_x, 0.0)
    opened = np.full(3, 0.5)
    (d_x,) = run(op, {source: [opened], "Out@GRAD": [d_out]}, attrs)["X@GRAD"]
    np.testing.assert_array_equal(np.isnan(d_x), np.isnan(d_out))


@pytest.mark.parametrize("name", ["floor_grad", "ceil_grad", "round_grad"])
def test_a_step_function_is_flat(name: str) -> None:
    d_out = np.array([np.inf, np.nan, 1.0])
    (d_x,) = run(OPS[name], {"Out@GRAD": [d_out]}, {**OPS[name].attrs})["X@GRAD"]
    np.testing.assert_array_equal(d_x, 0.0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tails_keep_their_digits(dtype: str) -> None:
    """Where 1 + exp(-|x|) is 1 in this precision, what is left over must not be lost."""
    x = np.array([-30.0, -15.0, 15.0, 30.0])
    near = 1e-12 if dtype == "float64" else 1e-6
    for name, expected in (
        ("sigmoid", np.exp(x - np.logaddexp(0, x))),
        ("softplus", np.logaddexp(0, x)),
        ("logsigmoid", -np.logaddexp(0, -x)),
    ):
        (out,) = run(OPS[name], {"X": [x.astype(dtype)]}, {**OPS[name].attrs})["Out"]
        np.testing.assert_allclose(out, expected, rtol=near, err_msg=name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["sigmoid", "softplus", "logsigmoid", "swish", "gelu", "tanh"])
def test_large_arguments_stay_finite(name: str, dtype: str) -> None:
    x = np.array([-1000.0, -100.0, 100.0, 1000.0], dtype)
    op = OPS[name]
    (out,) = run(op, {"X": [x]}, {**op.attrs})["Out"]
    assert np.isfinite(out).all()
    grad = OPS[f"{name}_grad"]
    source = grad.input_slots[0].name
    operands = {source: [x if source == "X" else out], "Out@GRAD": [np.ones_like(x)]}
    (d_x,) = run(grad, operands, {**grad.attrs})["X@GRAD"]
    assert np.isfinite(d_x).all()


def test_halves_are_rounded_away_from_zero() -> None:
    x = np.array([0.5, 1.5, -0.5, -2.5, 0.49999999999999994, 2.4])
    (out,) = run(OPS["round"], {"X": [x]}, {**OPS["round"].attrs})["Out"]
    np.testing.assert_array_equal(out, [1, 2, -1, -3, 0, 2])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_first_of_equal_pixels_is_the_largest(dtype: str) -> None:
    """Rows count before columns; of 0 and -0 none is larger."""
    image = np.array(
        [[-2, -2, -1, -3], [-4, -1, -1, -2], [0, -0.0, -np.inf, 3], [-0.0, 0, 5, np.inf]]
    )
    op, inputs = OPS["roi_pool"], {"X": [image.astype(dtype)[None, None]]}
    inputs |= {
        "ROIs": [np.array([[0, 0, 3, 3], [9, 9, 9, 9]], dtype)],
        "ROIs@LOD": [np.array([0, 2])],
    }
    results = run(op, inputs, {**op.attrs, "pooled_height": 2, "pooled_width": 2})
    np.testing.assert_array_equal(
        results["Out"][0][:, 0], [[[-1, -1], [0, np.inf]], np.zeros((2, 2))]
    )
    places = [[[5, 2], [8, 15]], np.full((2, 2), -1)]
    np.testing.assert_array_equal(results["Argmax"][0][:, 0], places)
