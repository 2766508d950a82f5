"""A transformer on a GPU whose products are cuBLASLt's: it learns what it learns on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.device.gpus import local_gpus
from tests.graph import gpt
from tests.ops.gpu import needs_compiler
from tests.programs import on_places

pytestmark = needs_compiler


def trained(place: Any, **switches: Any) -> tuple[list[float], str]:
    """Return some losses, and the report."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.scope_guard(fluid.Scope()):
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            loss = gpt.build(fluid, layers=1)
            fluid.optimizer.SGD(0.1).minimize(loss)
        exe = fluid.Executor(place)
        exe.run(startup)
        build = fluid.BuildStrategy(
            fused_attention=True, fuse_gemm_epilogue=True, fused_feedforward=True, **switches
        )
        program = on_places(main, [place], loss, build=build)
        losses = [
            exe.run(program, feed=gpt.feed(step), fetch_list=[loss])[0].item() for step in range(3)
        ]
        return losses, str(program.explain())


@pytest.mark.slow
def test_products_on_a_gpu_are_exact_unless_tf32_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not local_gpus():
        monkeypatch.setenv("ROWLOCK_SIMULATED_GPUS", "1")
    expected, _ = trained(fluid.CPUPlace())
    exact, report = trained(fluid.CUDAPlace(0))
    rounded, _ = trained(fluid.CUDAPlace(0), gpu_math="tf32")
    assert "10 on cublaslt" in report
    np.testing.assert_allclose(exact, expected, rtol=2e-6)
    np.testing.assert_allclose(rounded, expected, rtol=1e-3)
    assert not np.allclose(rounded, exact, rtol=1e-5)
