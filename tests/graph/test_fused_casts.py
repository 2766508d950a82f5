"""Casts between single and low precision inside groups of elementwise ops: same bits as one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.graph.ir.reader import from_program
from rowlock.graph.ops.registry import OPS
from rowlock.graph.passes.enable_auto_fusion import fuse_elementwise
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.types import VarType, to_numpy
from tests.ops.gpu import gpu, needs_compiler
from tests.ops.harness import run
from tests.programs import own_programs

L = fluid.layers
LOW = {"float16": VarType.FP16, "bfloat16": VarType.BF16}


def part(op: str, inputs: dict[str, list[int]], out: int, **attrs: Any) -> dict[str, Any]:
    settings = {**OPS[op].attrs, **attrs}
    return {
        "op": op,
        "inputs": inputs,
        "outputs": {"Out": [out]},
        "attrs": settings,
        "where": "train.py:7",
    }


def cast(x: int, out: int, source: VarType, target: VarType) -> dict[str, Any]:
    return part("cast", {"X": [x]}, out, in_dtype=int(source), out_dtype=int(target))


def body_of(low: VarType) -> list[dict[str, Any]]:
    """X0 single, X1 low: rounded and widened again, then added to what was widened, and both kept."""
    return [
        cast(1, 2, low, VarType.FP32),
        part("elementwise_add", {"X": [0], "Y": [2]}, 3),
        cast(3, 4, VarType.FP32, low),
        cast(4, 5, low, VarType.FP32),
        part("sum", {"X": [5, 0]}, 6),
    ]


@needs_compiler
@pytest.mark.parametrize("name", sorted(LOW))
@pytest.mark.parametrize("shape", [(3, 5), (16, 64)])
def test_a_cast_inside_a_group_rounds(name: str, shape: tuple[int, ...]) -> None:
    low, kind = LOW[name], to_numpy(LOW[name])
    rng = np.random.RandomState(0)
    x, y = rng.randn(*shape).astype("f4"), (100 * rng.randn(*shape)).astype(kind)
    x.flat[:4] = np.nan, np.inf, 1e30, -0.0
    attrs = {"body": body_of(low), "results": [3, 4, 6]}
    total = x + y.astype("f4")
    with np.errstate(over="ignore"):
        rounded = total.astype(kind)
    expected = [total, rounded, rounded.astype("f4") + x]
    inputs = {"X": [x, y]}
    results = run(OPS["fusion_group"], inputs, attrs, dev=gpu(), back_end="cuda")["Out"]
    plain = run(OPS["fusion_group"], inputs, attrs)["Out"]
    for one, other, exact in zip(results, plain, expected, strict=True):
        assert one.dtype == other.dtype == exact.dtype
        np.testing.assert_array_equal(one.astype("f4"), exact.astype("f4"))
        np.testing.assert_array_equal(other.astype("f4"), exact.astype("f4"))


def bodies(**flags: Any) -> list[list[str]]:
    with own_programs() as (main, _):
        x = fluid.data("x", [None, 4])
        low = L.cast(L.tanh(L.cast(x, "bfloat16")), "float32")
        wide = L.cast(L.elementwise_add(low, x), "float64")
        L.exp(wide)
    target = Target(fetches=("exp_0.tmp_0",), strategy=BuildStrategy(**flags))
    graph = fuse_elementwise(from_program(main, ["x"]), target)
    return [[p["op"] for p in n.attrs["body"]] for n in graph.nodes if n.op == "fusion_group"]


def test_groups_reach_over_casts_but_not_to_double_precision() -> None:
    assert bodies() == [["cast", "tanh", "cast", "elementwise_add"]]
    assert bodies(build_cinn_pass=True) == []
