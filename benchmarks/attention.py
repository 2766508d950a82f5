"""Attention and feed-forward, fused and not, on one core: time forward and back, and bytes of the plan.

Run with ``python -m benchmarks.attention`` (OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rowlock.fluid as fluid
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.bind import Binder
from rowlock.executor.plan.buckets import Buckets
from rowlock.executor.plan.plan import Plan
from rowlock.executor.plan.shapes import infer_specs
from rowlock.graph.compile import compile_program
from rowlock.graph.passes.target import Target
from rowlock.strategies.types import to_numpy

L = fluid.layers


def attention(rows: int, heads: int, tokens: int, size: int) -> Callable[[], Any]:
    """Return what builds attention from a packed projection of [rows, tokens, 3 * heads * size]."""

    def build() -> Any:
        x = fluid.data("x", [rows, tokens, 3 * heads * size], "float32")
        mask = fluid.data("mask", [tokens, tokens], "float32")
        x.stop_gradient = False
        packed = L.transpose(L.reshape(x, [0, tokens, 3, heads, size]), [2, 0, 3, 1, 4])
        q, k, v = (L.squeeze(part, [0]) for part in L.split(packed, 3, 0))
        scores = L.elementwise_add(L.matmul(q, k, transpose_y=True, alpha=size**-0.5), mask)
        return L.transpose(L.matmul(L.softmax(scores), v), [0, 2, 1, 3])

    return build


def feed_forward(rows: int, width: int) -> Callable[[], Any]:
    """Return what builds two linear layers with gelu in between, after a layer norm."""

    def build() -> Any:
        x = fluid.data("x", [rows, width], "float32")
        x.stop_gradient = False
        hidden = L.fc(L.layer_norm(x), 4 * width, act="gelu")
        return L.elementwise_add(x, L.fc(hidden, width))

    return build


def plan_of(build: Callable[[], Any], **flags: bool) -> tuple[Plan, int, list[np.ndarray]]:
    """Return a bound plan forward and back, the bytes it takes beside its feeds, and what to feed."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        out = build()
        (d_x,) = fluid.gradients(L.mean(out), [main.global_block().var("x")])
    feeds = [v for v in main.list_vars() if v.name in ("x", "mask")]
    target = Target(strategy=fluid.BuildStrategy(**flags), has_loss=True)
    names = [v.name for v in feeds]
    program = compile_program(main, names, [out.name, d_x.name], target, capabilities()).program
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal(v.shape).astype("float32") for v in feeds]

    def allocate(name: str, spec: Any) -> np.ndarray:
        return draw.standard_normal(spec.shape).astype(to_numpy(spec.dtype)) * 0.1

    specs = infer_specs(program, [spec_of(a) for a in arrays], lambda name: None)
    binder = Binder(program, Device(), specs, allocate, Buckets(program, None))
    plan = binder.plan()
    return plan, binder.arena.nbytes + plan.device.scratch_bytes, arrays


def compare(name: str, build: Callable[[], Any], flag: str, steps: int) -> None:
    """Print the median step of the plan with and without a flag, run in turn, and the bytes of both."""
    plans = {on: plan_of(build, **{flag: on}) for on in (False, True)}
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(steps + 1):
        for on, (plan, _, arrays) in plans.items():
            start = time.process_time()
            plan.run(arrays)
            seconds[on].append(time.process_time() - start)
    for on, (_, nbytes, _) in plans.items():
        middle = statistics.median(seconds[on][1:]) * 1e3
        print(f"{name} {flag}={on}: {middle:.2f} ms, {nbytes / 2**20:.1f} MiB", flush=True)


def main() -> None:
    """Print both parts of a transformer at a short and a long length."""
    compare("attention [8,4,128,64]", attention(8, 4, 128, 64), "fused_attention", 9)
    compare("attention [1,8,2048,64]", attention(1, 8, 2048, 64), "fused_attention", 3)
    compare("feed-forward [1024,256]", feed_forward(1024, 256), "fused_feedforward", 9)


if __name__ == "__main__":
    main()
