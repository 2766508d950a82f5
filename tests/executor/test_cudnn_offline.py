"""cuDNN can compute what our kernels ask of it for ResNet-50 and GPT-2: its graphs are built without a GPU."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda import cudnn
from rowlock.executor.cuda.dnn import Convolution, Graph
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ir.capabilities import CHANNELS_LAST, IN_ORDER
from rowlock.graph.ops.attention import NO_DROPOUT
from rowlock.graph.ops.fused_norm import ADD_ACT, MASKED
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.types import BFLOAT16, to_numpy
from tests.executor.cudnn_offline import stand_ins
from tests.ops.gpu import gpu, needs_compiler
from tests.ops.harness import infer, laid_out, specs_of

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not find_spec("cudnn"), reason="nvidia-cudnn-frontend is not installed"),
    pytest.mark.skipif(not cudnn.version(), reason="no libcudnn loads"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
]
BATCH = 64
# Input channels, filters, size of the filter, stride, height of the image.
CONVOLUTIONS = (
    (3, 64, 7, 2, 224),
    *((64, 64, 1, 1, 56), (64, 64, 3, 1, 56), (64, 256, 1, 1, 56), (256, 64, 1, 1, 56)),
    *((256, 128, 1, 1, 56), (128, 128, 3, 2, 56), (256, 512, 1, 2, 56)),
    *((128, 512, 1, 1, 28), (512, 128, 1, 1, 28), (128, 128, 3, 1, 28)),
    *((512, 256, 1, 1, 28), (256, 256, 3, 2, 28), (512, 1024, 1, 2, 28)),
    *((256, 1024, 1, 1, 14), (1024, 256, 1, 1, 14), (256, 256, 3, 1, 14)),
    *((1024, 512, 1, 1, 14), (512, 512, 3, 2, 14), (1024, 2048, 1, 2, 14)),
    *((512, 2048, 1, 1, 7), (2048, 512, 1, 1, 7), (512, 512, 3, 1, 7)),
)
LOW = (np.dtype(np.float16), BFLOAT16)


def graphs_of(op_type: str, inputs: dict[str, Any], order: str, **attrs: Any) -> Iterator[Graph]:
    """Bind an op and its gradient; yield what they ask of cuDNN. The arrays are never touched.

    Of a causal mask, which is constant, no gradient is asked.
    """
    op, dev = OPS[op_type], gpu()
    settings = {**op.attrs, **attrs}

    def memory(shape: tuple[int, ...], kind: Any) -> Any:
        return laid_out(shape, kind, order if shape[0] == BATCH else IN_ORDER)

    operands = {slot: [memory(*like)] for slot, like in inputs.items()}
    specs = infer(op, specs_of(operands), settings)
    results = {s: [memory(a.shape, to_numpy(a.dtype)) for a in v] for s, v in specs.items()}
    steps = bind(op_type, operands, results, settings, dev, "cudnn")
    assert op.grad is not None
    near = {**operands, **results}

    def like(slots: dict[str, str]) -> dict[str, Any]:
        sources = {slot: near.get(name.partition("@GRAD")[0], []) for slot, name in slots.items()}
        return {slot: [memory(a.shape, a.dtype) for a in v] for slot, v in sources.items()}

    reads, writes = like(op.grad.reads()), like(op.grad.writes())
    writes = {s: a for s, a in writes.items() if s != "Mask@GRAD" or not attrs.get("causal")}
    steps += bind(op.grad.type, reads, writes, {**OPS[op.grad.type].attrs, **attrs}, dev, "cudnn")
    yield from (step.graph for step in steps if hasattr(step, "graph"))


def with_sums(graphs: Iterator[Graph]) -> Iterator[Graph]:
    """Yield, behind each gradient of images in low precision, the call that adds another branch's, too."""
    for graph in graphs:
        yield graph
        if isinstance(graph, Convolution) and graph.result == "x" and graph.x.dtype != "float32":
            yield replace(graph, addend=graph.x)


def resnet(kind: Any, order: str) -> Iterator[Graph]:
    for c, o, k, stride, size in CONVOLUTIONS:
        slots = {"Input": ((BATCH, c, size, size), kind), "Filter": ((o, c, k, k), kind)}
        attrs = {"strides": [stride] * 2, "paddings": [k // 2] * 2}
        graphs = graphs_of("conv2d", slots, order, **attrs)
        begins_block = k == stride == 1 and c >= o
        yield from with_sums(graphs) if begins_block else graphs
    if order == IN_ORDER:
        return  # batch norm is left to generated kernels
    statistics = ("Scale", "Bias", "Mean", "Variance")
    shapes = {(o, -(-size // stride)) for _, o, _, stride, size in CONVOLUTIONS}
    for c, size in sorted(shapes):
        image = ((BATCH, c, size, size), kind)
        slots = {"X": image, **dict.fromkeys(statistics, ((c,), np.dtype("f4")))}
        for op_type in ("batch_norm", "fused_batch_norm_act"):
            yield from graphs_of(op_type, slots, order)
        for op_type in (ADD_ACT, MASKED):
            yield from graphs_of(op_type, {**slots, "Z": image}, order)


def gpt(kind: Any) -> Iterator[Graph]:
    """Heads of GPT-2, from one projection: without a mask, with one, and with one that is causal."""
    attention = "fused_dot_product_attention"
    how: dict[str, Any] = {"layout": "packed", "scale": 0.125}
    mask = {"Mask": ((1024, 1024), kind)}
    for rows in (8, 32):
        q = {"Q": ((rows, 1024, 3, 12, 64), kind)}
        yield from graphs_of(attention, q, IN_ORDER, **how)
        yield from graphs_of(attention, {**q, **mask}, IN_ORDER, **how)
        yield from graphs_of(attention, {**q, **mask}, IN_ORDER, **how, causal=True)
        dropped = {"dropout_prob": 0.1, "dropout_implementation": "upscale_in_train"}
        how["dropout"] = {**NO_DROPOUT, **dropped, "by_library": True}
        yield from graphs_of(attention, q, IN_ORDER, **how)
        yield from graphs_of(attention, {**q, **mask}, IN_ORDER, **how, causal=True)
        del how["dropout"]


def test_cudnn_computes_what_resnet50_and_gpt2_ask_of_it(tmp_path: Path) -> None:
    asked = [graph for kind in LOW for graph in (*resnet(kind, CHANNELS_LAST), *gpt(kind))]
    asked += resnet(np.dtype("f4"), IN_ORDER)
    asked = list(dict.fromkeys(asked))
    assert len(asked) > 3 * 3 * len(CONVOLUTIONS)
    answers = offline(tmp_path, asked)
    declined = [one for one in answers if "declined" in one]
    assert not declined
    for graph, one in zip(asked, answers, strict=True):
        low = isinstance(graph, Convolution) and graph.x.dtype != "float32"
        assert one["plans"] > 0
        assert "again" not in one or one["again"] == one["workspace"]  # a plan that was kept
        if low and graph.x.shape[1] > 3:  # what a filter takes, turned, and partial sums
            assert one["workspace"] < 64 << 20, one


def test_cudnn_says_what_it_cannot_compute(tmp_path: Path) -> None:
    """A batch norm of three channels has no plan; the kernel would be told so, and ask elsewhere.

    Nor has a sum behind a gradient of images where windows of several elements are strided.
    """
    slots: dict[str, Any] = {"X": ((BATCH, 3, 2, 2), np.dtype("f4"))}
    slots |= dict.fromkeys(("Scale", "Bias", "Mean", "Variance"), ((3,), np.dtype("f4")))
    asked = list(graphs_of("batch_norm", slots, CHANNELS_LAST))
    kinds = {"Input": ((BATCH, 128, 56, 56), BFLOAT16), "Filter": ((128, 128, 3, 3), BFLOAT16)}
    strided = graphs_of("conv2d", kinds, CHANNELS_LAST, strides=[2, 2], paddings=[1, 1])
    asked += [g for g in with_sums(strided) if isinstance(g, Convolution) and g.addend is not None]
    answers = offline(tmp_path, asked)
    assert len(answers) > 2 and all("declined" in one for one in answers)


def offline(folder: Path, graphs: list[Graph]) -> list[dict[str, Any]]:
    lines = "".join(f"{graph!r}\n" for graph in graphs)
    process = subprocess.run(
        [sys.executable, "-m", "tests.executor.cudnn_offline"],
        input=lines,
        env=stand_ins(folder),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
