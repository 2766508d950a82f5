"""On GPUs the sums of residuals are computed by layer norms, and by their gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import rowlock.fluid as fluid
from benchmarks import large_models
from benchmarks.sizes import TINY, feed
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.graph import Graph
from rowlock.graph.ops.residual_norm import ADD_NORM, NORM_GRAD_ADD
from rowlock.graph.passes import fold_residuals
from rowlock.graph.passes.target import Target
from tests.gpu import test_programs
from tests.graph.test_fold_conv_grad_sums import GPU, compiled
from tests.ops.gpu import needs_compiler
from tests.programs import own_programs

L = fluid.layers
pytestmark = pytest.mark.usefixtures("one_gpu")


def folded(graph: Graph) -> tuple[int, int]:
    """Return how many sums norms compute, and their gradients."""
    counts = Counter(node.op for node in graph.nodes)
    return counts[ADD_NORM], counts[NORM_GRAD_ADD]


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_every_residual_of_gpt2_is_folded(precision: str) -> None:
    """But for the sum of words and places, which is broadcast, and its gradient, a sum of three."""
    model = large_models.build("gpt2", TINY["gpt2"], precision)
    feeds, loss = list(feed("gpt2", TINY["gpt2"], 0)), [model.loss.name]
    switches = large_models.SWITCHES["gpt2"]
    graph = compiled(model.main, feeds, loss, **switches)
    norms = 2 * TINY["gpt2"].layers
    assert folded(graph) == (norms, norms)
    assert any(note == f"fold_residuals: fused {norms} sums into layer norms; left alone: a sum "
               "broadcasts an operand" for note in graph.notes)  # fmt: skip
    assert folded(compiled(model.main, feeds, loss)) == (0, 0)
    target = Target(strategy=fluid.BuildStrategy(enable_auto_fusion=True), has_loss=True)
    on_cpu = compile_program(model.main, feeds, loss, target, capabilities(GPU)).report.graph
    assert folded(on_cpu) == (0, 0)


def net(fetches: str = "", last: Callable[[fluid.Variable], fluid.Variable] | None = None) -> Graph:
    """Compile x + last(f(norm(x))) -> norm; fetch the sum and its gradient, or the parts of that."""
    with own_programs() as (main, _):
        x = L.fc(L.data("x", [8]), 8)
        h = L.fc(L.layer_norm(x), 8)
        total = x + (last(h) if last else h)
        loss = L.mean(L.fc(L.layer_norm(total), 1) + L.reduce_sum(total, [1], keep_dim=True))
        fluid.optimizer.SGD(0.1).minimize(loss)
    names = main.global_block().vars
    part = next(name for name in names if name.startswith(f"{total.name}@GRAD@RENAME"))
    parts = [name for name in names if name.startswith(part.rpartition("@")[0])]
    extra = {"": [], "sum": [total.name, f"{total.name}@GRAD"], "parts": parts}[fetches]
    return compiled(
        main, ["x"], [loss.name, *extra], enable_auto_fusion=True, fuse_gemm_epilogue=True
    )


def test_what_is_fetched_is_there_and_groups_keep_their_sums() -> None:
    assert folded(net()) == folded(net("sum")) == (1, 2)
    assert folded(net("parts")) == (1, 1)
    assert folded(net(last=lambda h: L.dropout(h, 0.1))) == (1, 2)
    graph = net(last=L.tanh)
    assert folded(graph) == (0, 2)
    bodies = [[part["op"] for part in node.attrs.get("body", ())] for node in graph.nodes]
    assert ["tanh", "elementwise_add"] in bodies


@needs_compiler
@pytest.mark.parametrize(("precision", "near"), [("float32", 1e-6), ("bfloat16", 2e-3)])
def test_losses_are_those_of_sums_apart(
    precision: str, near: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = test_programs.losses("gpt2", precision, fluid.CUDAPlace(0))
    monkeypatch.setattr(fold_residuals, "_put", lambda *_: False)
    apart = test_programs.losses("gpt2", precision, fluid.CUDAPlace(0))
    np.testing.assert_allclose(ours, apart, rtol=near)
