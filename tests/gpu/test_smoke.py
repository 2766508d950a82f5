"""Every library's path once, in little time: eager, captured and replayed, against the host in float64.

Run again with the same ``ROWLOCK_CACHE_DIR`` it goes by the choices that were kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.runtime import Runtime, graph_can_hold
from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.graph.ir.capabilities import CHANNELS_LAST
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.types import to_numpy
from tests.ops.cuda_cases import assert_near, taken
from tests.ops.gpu import gpu, needs_compiler
from tests.ops.harness import Arrays, draw, infer, laid_out, run, specs_of, updates

pytestmark = needs_compiler
ATTENTION = "fused_dot_product_attention"
LAYOUT = {"batch_norm": CHANNELS_LAST, "conv2d": CHANNELS_LAST}  # of images in low precision
NEEDS = {"cuda": "cuda", "cublaslt": "cublaslt", "cudnn": "cudnn"}
PATHS = [
    *(("cublaslt", op) for op in ("matmul", "mul", "fused_gemm_epilogue", "fused_feedforward", "lstm",
                                  "gru", "linear_chain_crf")),
    *(("cudnn", op) for op in ("conv2d", "batch_norm", ATTENTION)),
    *(("cuda", op) for op in ("gelu", "softmax", "layer_norm", "reduce_sum", "pool2d", "transpose2",
                              "lookup_table_v2", "softmax_with_cross_entropy", "adamw", "sequence_softmax",
                              "sequence_pool", "lod_rank_table", "attention_lstm", "warpctc", "edit_distance",
                              "roi_align", "argsort")),
]  # fmt: skip


def operands(back_end: str, name: str, kind: str) -> tuple[Arrays, dict[str, Any]]:
    """Return the first sample of an op, in a type, that a library takes; statistics stay float32."""
    op, number = OPS[name], np.dtype(kind)
    if name == ATTENTION:
        rng = np.random.default_rng(3)
        heads = {slot: [rng.standard_normal((2, 3, 8, 16)).astype(number)] for slot in "QKV"}
        if taken(op, heads, op.attrs, back_end):
            return heads, {**op.attrs, "scale": 0.25}
    for sample in () if name == ATTENTION else op.samples:
        inputs, attrs = draw(op, sample, number)
        if name == "batch_norm":
            inputs = {s: v if s == "X" else [a.astype("f4") for a in v] for s, v in inputs.items()}
        if taken(op, inputs, attrs, back_end):
            return inputs, attrs
    pytest.skip(f"{back_end} takes no sample of {name} in {kind}")


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize(("back_end", "name"), PATHS)
def test_a_path_is_right_eager_captured_and_replayed(
    runtime: Runtime, back_end: str, name: str, kind: str
) -> None:
    assert (name, back_end) in KERNELS
    if NEEDS[back_end] not in runtime.versions():
        pytest.skip(f"there is no {NEEDS[back_end]} here")
    op, (inputs, attrs) = OPS[name], operands(back_end, name, kind)
    exact = {
        s: [a.astype("f8") if a.dtype.kind not in "iub" else a for a in v]
        for s, v in inputs.items()
    }
    expected = run(op, exact, attrs)
    device = gpu()
    layout = "" if kind == "float32" else LAYOUT.get(name, "")
    place = {
        s: [laid_out(a.shape, a.dtype, layout, device.xp) for a in v] for s, v in inputs.items()
    }
    specs = infer(op, specs_of(inputs), attrs, inputs)
    results = {
        s: [laid_out(t.shape, to_numpy(t.dtype), layout, device.xp) for t in v]
        for s, v in specs.items()
    }
    results.update({out: place[source] for out, source in updates(op).items() if source in place})
    steps = bind(name, place, results, attrs, device, back_end)

    def check(go: Any, how: str) -> None:
        for slot, arrays in inputs.items():
            for array, values in zip(place[slot], arrays, strict=True):
                array[...] = device.xp.asarray(values)
        runtime.synchronize()
        go()
        runtime.synchronize()
        # what only the library's own gradient reads need not be what others keep
        for slot in ["Out"] if name == ATTENTION else results.keys() & expected.keys():
            for array, value in zip(results[slot], expected[slot], strict=True):
                if np.size(value):
                    home = array.copy() if isinstance(array, np.ndarray) else array.get()
                    assert_near(home, value, f"{slot}, {how}", 2e-5 if kind == "float32" else 0)

    check(lambda: runtime.execute(steps), "eager")
    assert all(graph_can_hold(step, runtime.xp) for step in steps)
    graph = runtime.capture(steps)
    for turn in range(3):
        check(graph, f"replay {turn}")
