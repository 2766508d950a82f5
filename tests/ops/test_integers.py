"""Integers and halves: element types beside float32 and float64. Expected values are Paddle 1.8.5's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import ShapeError
from tests.ops.harness import draw, run

SEVENS = {"X": [-7, 7, -7, 7], "Y": [3, 3, -3, -3]}
ROWS = {"X": [[1, 2], [3, 5]]}
INTEGER_CASES: list[tuple[str, dict[str, Any], dict[str, Any], Any]] = [
    ("elementwise_mod", SEVENS, {}, [-1, 1, -1, 1]),
    ("elementwise_floordiv", SEVENS, {}, [-2, 2, 2, -2]),
    ("elementwise_div", SEVENS, {}, [-2, 2, 2, -2]),
    ("elementwise_add", SEVENS, {}, [-4, 10, -10, 4]),
    ("elementwise_pow", {"X": [2, 7], "Y": [2, 2]}, {}, [4, 49]),
    ("elementwise_pow", {"X": [-2, -1, 1, 2, 3], "Y": [-1] * 5}, {}, [0, -1, 1, 0, 0]),
    ("elementwise_pow", {"X": [-2, -1, -1, -3], "Y": [-2, -2, 4, 3]}, {}, [0, 1, 1, -27]),
    ("elementwise_max", SEVENS, {}, [3, 7, -3, 7]),
    ("square", ROWS, {}, [[1, 4], [9, 25]]),
    ("pow", ROWS, {"factor": 2.0}, [[1, 4], [9, 25]]),
    ("pow", {"X": [4, 9]}, {"factor": 0.5}, [1, 1]),  # the factor becomes an integer, too
    ("exp", {"X": [-1, 2]}, {}, [0, 7]),
    ("abs", {"X": [-7, 7]}, {}, [7, 7]),
    ("scale", {"X": [3, 4]}, {"scale": 0.5, "bias": 1.5}, [1, 1]),
    ("scale", {"X": [3, 4]}, {"scale": 2.0, "bias": 1.5, "bias_after_scale": False}, [8, 10]),
    ("increment", {"X": [3]}, {"step": 1.9}, [4]),
    ("reduce_sum", ROWS, {"dim": [1]}, [3, 8]),
    ("reduce_mean", ROWS, {"dim": [1]}, [1, 4]),
    ("reduce_max", ROWS, {"dim": [0]}, [3, 5]),
    ("reduce_prod", ROWS, {"reduce_all": True}, [30]),
    ("cumsum", ROWS, {"axis": 0}, [[1, 2], [4, 7]]),
    ("sign", {"X": [-7, 0, 7]}, {}, [-1, 0, 1]),
    ("clip", {"X": [-7, 0, 7]}, {"min": -1.0, "max": 1.0}, [-1, 0, 1]),
]


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize(("name", "numbers", "attrs", "expected"), INTEGER_CASES)
def test_integers(name: str, numbers: Any, attrs: Any, expected: Any, dtype: str) -> None:
    op = OPS[name]
    inputs = {slot: [np.array(values, dtype)] for slot, values in numbers.items()}
    (out,) = run(op, inputs, {**op.attrs, **attrs})["Out"]
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, expected)


def test_remainder_of_floats_has_the_divisors_sign() -> None:
    op = OPS["elementwise_mod"]
    x, y = np.array([-7.5, 7.5, -7.5, 7.5]), np.array([3.0, 3.0, -3.0, -3.0])
    (out,) = run(op, {"X": [x], "Y": [y]}, {**op.attrs})["Out"]
    np.testing.assert_array_equal(out, [1.5, 1.5, -1.5, -1.5])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_a_negative_power_of_zero_is_the_least_number(dtype: str) -> None:
    inputs = {"X": [np.zeros(1, dtype)], "Y": [np.full(1, -2, dtype)]}
    (out,) = run(OPS["elementwise_pow"], inputs, {**OPS["elementwise_pow"].attrs})["Out"]
    assert out.tolist() == [np.iinfo(dtype).min]


@pytest.mark.parametrize(
    ("dtype", "scale", "bias", "after", "expected"),
    [
        ("uint8", -1.0, 0.0, True, [0, 255, 254]),
        ("uint8", -1.5, 2.0, True, [2, 1, 0]),
        ("uint8", -1.5, 2.0, False, [254, 253, 252]),
        ("uint8", 2.0, -1.0, False, [254, 0, 2]),
        ("uint8", 1.0, 300.7, True, [44, 45, 46]),
        ("int8", 1.0, 300.7, False, [44, 45, 46]),
    ],
)
def test_scale_wraps_around(
    dtype: str, scale: float, bias: float, after: bool, expected: list[int]
) -> None:
    attrs = {"scale": scale, "bias": bias, "bias_after_scale": after}
    op = OPS["scale"]
    (out,) = run(op, {"X": [np.arange(3).astype(dtype)]}, {**op.attrs, **attrs})["Out"]
    assert out.dtype == dtype and out.tolist() == expected


@pytest.mark.parametrize("name", ["mean", "squared_l2_norm", "sigmoid", "gelu"])
def test_integers_are_refused_where_they_make_no_sense(name: str) -> None:
    with pytest.raises(ShapeError, match="float"):
        run(OPS[name], {"X": [np.array([1, 2])]}, {**OPS[name].attrs})


HALVES = [
    name
    for name, op in sorted(OPS.items())
    if (op.scalar or name.startswith(("elementwise_", "reduce_", "reshape", "scale")))
    and op.samples
    and op.outputs == ("Out",)
    and any(d.kind in ("normal", "uniform") for d in op.samples[0].inputs.values())
]


@pytest.mark.parametrize("name", HALVES)
def test_half_precision(name: str) -> None:
    """float16 stays float16, and is as near to float64 as it can be."""
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[0], "float16")
    wide = {
        s: [a.astype("float64") if a.dtype == "float16" else a for a in v]
        for s, v in inputs.items()
    }
    (out,), (exact,) = (run(op, many, attrs)["Out"] for many in (inputs, wide))
    assert out.dtype in ("float16", bool)
    np.testing.assert_allclose(out.astype("float64"), exact, rtol=0.02, atol=0.01)
