"""Between two linear layers the gradient goes through gelu in the product above."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.kernels.registry import KERNELS
from rowlock.graph.ir.graph import Node
from rowlock.graph.ir.reader import from_program
from rowlock.graph.ops.registry import OPS
from rowlock.graph.passes.fuse_gemm_epilogue import fuse_gemm_epilogue
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from tests.ops.gpu import gpu, needs_compiler
from tests.ops.harness import run
from tests.programs import on_places, own_programs

L = fluid.layers
GRAD = "fused_gemm_epilogue_grad"


def feed_forward(approximate: bool = True) -> Any:
    x = fluid.data("x", [None, 8])
    hidden = x
    for _ in range(2):
        hidden = L.gelu(L.fc(hidden, 16), approximate=approximate)
    return L.fc(hidden, 4)


def gradient_ops(approximate: bool = True, fetch: str = "") -> list[Node]:
    with own_programs() as (main, _):
        loss = L.mean(feed_forward(approximate))
        fluid.optimizer.SGD(0.1).minimize(loss)
    fetches = (loss.name, fetch) if fetch else (loss.name,)
    graph = fuse_gemm_epilogue(from_program(main, ["x"]), Target(fetches=fetches))
    return [node for node in graph.nodes if node.op == GRAD]


def slopes(nodes: list[Node]) -> list[tuple[str, str]]:
    return [(n.attrs["activation_grad"], n.attrs["activation_below"]) for n in nodes]


def test_a_row_of_layers_hands_every_slope_up() -> None:
    top, middle, bottom = gradient_ops()
    assert slopes([top, middle, bottom]) == [("none", "gelu_grad")] * 2 + [("none", "none")]
    assert top.inputs["Below"][0] is not middle.inputs["Below"][0]
    assert middle.inputs["DOut"] == top.outputs["DX"]
    assert "ReserveSpace" not in bottom.inputs


def test_slopes_stay_where_no_library_has_them_or_the_gradient_is_wanted() -> None:
    stay = [("none", "none"), ("gelu_grad", "none"), ("gelu_grad", "none")]
    assert slopes(gradient_ops(approximate=False)) == stay
    assert slopes(gradient_ops(fetch="gelu_1.tmp_0@GRAD"))[:2] == [
        ("none", "none"),
        ("gelu_grad", "gelu_grad"),
    ]


def learned(fused: bool) -> list[Any]:
    with own_programs(3) as (main, startup):
        loss = L.mean(L.square(feed_forward()))
        fluid.optimizer.SGD(0.3).minimize(loss)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    strategy = BuildStrategy(fuse_gemm_epilogue=fused, verify_passes=fused)
    rows = np.random.RandomState(0).randn(6, 8).astype("f4")
    with rowlock.cluster(launcher="threads"), fluid.scope_guard(scope):
        exe.run(startup)
        program = on_places(main, 2, loss, build=strategy)
        for _ in range(3):
            exe.run(program, feed={"x": rows}, fetch_list=[loss])
        return [np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()]


def test_training_is_the_same() -> None:
    for one, other in zip(learned(True), learned(False), strict=True):
        assert np.linalg.norm(one - other) <= 1e-6 * np.linalg.norm(other)


@needs_compiler
@pytest.mark.parametrize(("kind", "share"), [("float32", 1e-6), ("float16", 2e-3)])
@pytest.mark.parametrize("back_end", ["", "onednn", "cublaslt"])
def test_kernels_take_the_gradient_of_x_through_gelu(
    back_end: str, kind: str, share: float
) -> None:
    if back_end and (GRAD, back_end) not in KERNELS:
        pytest.skip(f"{back_end} is not installed")
    rng = np.random.RandomState(0)
    shapes = {"DOut": (3, 4, 8), "X": (3, 4, 16), "Y": (16, 8), "Below": (3, 4, 16)}
    inputs = {slot: [rng.randn(*shape).astype(kind)] for slot, shape in shapes.items()}
    own: dict[str, Any] = {"dev": gpu()} if back_end == "cublaslt" else {}
    if back_end:
        own["back_end"] = back_end
    attrs = {**OPS[GRAD].attrs, "activation_below": "gelu_grad"}
    results = run(OPS[GRAD], inputs, attrs, **own)
    exact = {slot: [arrays[0].astype("f8")] for slot, arrays in inputs.items()}
    d_x = run(OPS[GRAD], {s: exact[s] for s in ("DOut", "X", "Y")}, OPS[GRAD].attrs)["DX"]
    through = run(
        OPS["gelu_grad"],
        {"X": exact["Below"], "Out@GRAD": d_x},
        {**OPS["gelu_grad"].attrs, "approximate": True},
    )["X@GRAD"][0]
    error = np.linalg.norm(results["DX"][0].astype("f8") - through)
    assert error <= share * np.linalg.norm(through)
