"""Dropout inside fused ops of a GPU: the numbers of the host, drawn where they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.memory import DeviceMemory
from rowlock.executor.cuda.runtime import graph_can_hold
from rowlock.executor.device.device import Clock, Device
from rowlock.executor.kernels.registry import KERNELS
from rowlock.graph.ops.attention import NO_DROPOUT
from rowlock.graph.ops.registry import OPS
from tests.ops.gpu import gpu, needs_compiler
from tests.ops.harness import Arrays, draw, gradients, run
from tests.ops.test_conformance import seeds_of
from tests.ops.test_cublaslt import close, rounded
from tests.ops.test_cublaslt_plans import planned

pytestmark = needs_compiler
STEP, ROW = 5, 6


def drops(implementation: str = "upscale_in_train") -> dict[str, Any]:
    settings = {"dropout_prob": 0.4, "dropout_implementation": implementation, "name": "masked"}
    return {**NO_DROPOUT, **settings}


CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("fused_dot_product_attention", 0, {"dropout": drops()}),
    ("fused_dot_product_attention", 7, {"dropout": drops("downgrade_in_infer")}),
    ("fused_feedforward", 0, {"dropout1": drops(), "dropout2": drops()}),
    ("fused_feedforward", 3, {"dropout1": drops("downgrade_in_infer")}),
    ("fused_feedforward", 4, {"act_method": "relu", "dropout2": drops()}),
]


@pytest.mark.parametrize(("name", "index", "attrs"), CASES)
def test_a_gpu_drops_what_the_host_drops(name: str, index: int, attrs: dict[str, Any]) -> None:
    op = OPS[name]
    exact, settings = draw(op, op.samples[index], "float64")
    settings |= attrs
    host, dev = Device(seed=7), gpu()
    host.clock = Clock(STEP, ROW)
    assert isinstance(dev.memory, DeviceMemory)
    dev.memory.tick(STEP, ROW)
    outputs = run(op, exact, settings, dev=host)
    seeds = seeds_of(op, outputs)
    expected = gradients(op, exact, outputs, seeds, settings, dev=host)
    single: list[Arrays] = [rounded(arrays, "f4") for arrays in (exact, outputs, seeds)]
    on: dict[str, Any] = {"dev": dev, "back_end": "cublaslt"}
    results, slopes = run(op, single[0], settings, **on), gradients(op, *single, settings, **on)
    for arrays, values in ((results, outputs), (slopes, expected)):
        for slot, many in arrays.items():
            for one, value in zip(many, values[slot], strict=True):
                close(one, value, 3e-5, slot)


@pytest.mark.parametrize(("name", "index", "attrs"), CASES)
def test_a_graph_can_hold_the_draws(name: str, index: int, attrs: dict[str, Any]) -> None:
    op = OPS[name]
    inputs, settings = draw(op, op.samples[index], "float32")
    assert all(graph_can_hold(step, np) for step in planned(name, inputs, {**settings, **attrs}))
    assert (name, "cublaslt") in KERNELS
