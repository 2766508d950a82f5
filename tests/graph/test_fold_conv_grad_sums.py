"""What one call of cuDNN computes backwards in a residual block: sums of gradients, relu with batch norm."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import rowlock.fluid as fluid
from benchmarks import large_models
from benchmarks.sizes import SIZES, TINY, feed
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.graph import Graph
from rowlock.graph.ops.conv import GRAD_ADD
from rowlock.graph.ops.fused_norm import MASKED
from rowlock.graph.passes import fold_conv_grad_sums, keep_relu_masks
from rowlock.graph.passes.target import Target
from rowlock.graph.program.role import OpRole
from rowlock.strategies.types import VarType
from tests.gpu import test_programs
from tests.ops.gpu import needs_compiler
from tests.programs import own_programs

L = fluid.layers
GPU = frozenset(("cudnn", "cublaslt", "cuda"))
# All blocks, of an eighth of the channels: drawing its weights is quick.
NARROW = replace(SIZES["resnet50"], stem=8, blocks=((8, 3), (16, 4), (32, 6), (64, 3)))
pytestmark = pytest.mark.usefixtures("one_gpu")


def compiled(main: fluid.Program, feeds: list[str], fetches: list[str], **switches: bool) -> Graph:
    """Compile for a GPU with cuDNN."""
    strategy = fluid.BuildStrategy(**switches)
    target = Target(strategy=strategy, has_loss=True)
    return compile_program(main, feeds, fetches, target, capabilities(GPU), "cupy").report.graph


def sums(graph: Graph) -> tuple[int, int]:
    """Return how many sums of gradients there are, and how many are part of one."""
    counts = Counter(node.op for node in graph.nodes if node.role & OpRole.Backward)
    return counts["sum"], counts[GRAD_ADD]


def block(
    kind: str = "float16", branches: int = 2, fetches: str = "", addto: bool = False
) -> Graph:
    """Compile a convolution whose result goes through others, which are added up."""
    with own_programs() as (main, _):
        x = L.cast(L.data("x", [8, 8, 8]), kind)
        x = L.conv2d(x, 8, 3, padding=1, bias_attr=False)
        h = L.sums([L.conv2d(x, 8, 3, padding=1, bias_attr=False) for _ in range(branches)])
        loss = L.mean(L.cast(h, "float32"))
        fluid.optimizer.SGD(0.1).minimize(loss)
    parts = [name for name in main.global_block().vars if name.startswith(f"{x.name}@GRAD@RENAME")]
    assert len(parts) == branches
    extra = parts if fetches == "parts" else [f"{x.name}@GRAD"] if fetches == "sum" else []
    return compiled(main, ["x"], [loss.name, *extra], enable_addto=addto)


@pytest.mark.parametrize("fetches", ["", "sum"])
def test_of_two_convolutions_the_later_one_adds(fetches: str) -> None:
    graph = block(fetches=fetches)
    assert sums(graph) == (0, 1)
    at = {value: k for k, node in enumerate(graph.nodes) for value in node.writes()}
    (fused,) = (node for node in graph.nodes if node.op == GRAD_ADD)
    (addend,) = fused.inputs["Addend"]
    assert addend is not None and graph.nodes[at[addend]].op == "conv2d_grad"
    assert at[addend] < at[fused.writes()[0]]
    (later,), (earlier,) = fused.inputs["Filter"], graph.nodes[at[addend]].inputs["Filter"]
    assert later is not None and earlier is not None and later.name < earlier.name


def test_running_additions_are_folded_one_by_one() -> None:
    assert sums(block(branches=3)) == (1, 0)
    assert sums(block(branches=3, addto=True)) == (0, 2)


def test_what_is_exact_or_fetched_is_left_alone() -> None:
    assert sums(block("float32")) == sums(block(fetches="parts")) == (1, 0)


@pytest.mark.parametrize(("precision", "folded"), [("bfloat16", 16), ("float32", 0)])
def test_each_block_of_a_resnet50_folds_its_sum(precision: str, folded: int) -> None:
    model = large_models.build("resnet50", NARROW, precision)
    feeds = list(feed("resnet50", TINY["resnet50"], 0))
    switches = large_models.SWITCHES["resnet50"]
    graph = compiled(model.main, feeds, [model.loss.name], **switches)
    assert sums(graph) == (16 - folded, folded)
    layouts = {v.layout for n in graph.nodes if n.op == GRAD_ADD for v in n.writes()}
    assert layouts == ({"NHWC"} if folded else set())
    masked = [node for node in graph.nodes if node.op == MASKED]
    assert len(masked) == len([n for n in graph.nodes if n.op == f"{MASKED}_grad"]) == folded
    for node in masked:
        (mask,), (y,) = node.outputs["Mask"], node.outputs["Y"]
        assert mask is not None and y is not None and y.layout == "NHWC"
        assert mask.spec == ((-1,), VarType.UINT8)
    note = f"fused {folded} batch_norm with sum" if folded else "nothing fused: no gradient of"
    assert any(text.startswith(f"keep_relu_masks: {note}") for text in graph.notes)


@needs_compiler
def test_losses_are_those_of_sums_but_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = test_programs.losses("resnet50", "bfloat16", fluid.CUDAPlace(0))
    monkeypatch.setattr(keep_relu_masks, "_keep", lambda *_: False)
    assert test_programs.losses("resnet50", "bfloat16", fluid.CUDAPlace(0)) == ours
    monkeypatch.setattr(fold_conv_grad_sums, "_SUMS", ())
    apart = test_programs.losses("resnet50", "bfloat16", fluid.CUDAPlace(0))
    np.testing.assert_allclose(ours, apart, rtol=2e-3)
    assert ours[0] == apart[0] and ours != apart
