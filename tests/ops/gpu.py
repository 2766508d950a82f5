"""A GPU for tests of kernels: a real one if there is one, else one that is simulated on the host."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rowlock.executor.cuda import nvrtc
from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.cuda.memory import DeviceMemory
from rowlock.executor.cuda.runtime import Runtime
from rowlock.executor.device.device import Device
from rowlock.executor.device.gpus import local_gpus, open_gpu
from rowlock.executor.simulated.simulated import SimulatedRuntime
from tests.gpu.results import REAL

_SAMPLE = 4
needs_compiler = pytest.mark.cuda
_machines: list[tuple[Runtime, DeviceMemory]] = []


def gpu() -> Device:
    """Return a device on the GPU, with scratch memory and a clock.

    Raises:
        Unsupported: there is none, and it must be a real one.
    """
    if not _machines:
        real = local_gpus() or os.environ.get(REAL)
        runtime = open_gpu(0) if real else SimulatedRuntime(0)
        runtime.use()
        _machines.append((runtime, DeviceMemory(runtime)))
        _machines[0][1].tick(0, 0)
    runtime, memory = _machines[0]
    memory.asserts.reset()  # of an earlier test
    return Device(runtime=runtime, memory=memory, seed=7)


@contextmanager
def collected() -> Iterator[dict[str, CudaKernel]]:
    """Yield the kernels that are launched inside, by key."""
    runtime = gpu().runtime
    kernels: dict[str, CudaKernel] = {}
    launch = type(runtime).launch

    def noted(self: Any, kernel: CudaKernel, *others: Any) -> Any:
        kernels[kernel.key] = kernel
        return launch(self, kernel, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(runtime), "launch", noted)
        yield kernels


def assert_compile_for_a_gpu(kernels: dict[str, CudaKernel]) -> None:
    """Compile some kernels with NVRTC (all, if ROWLOCK_TEST_LONG is set); none where it is not installed."""
    assert kernels
    keys = sorted(kernels)
    if not os.environ.get("ROWLOCK_TEST_LONG"):
        keys = random.sample(keys, min(_SAMPLE, len(keys)))
    for key in keys if nvrtc.version() else ():
        assert nvrtc.machine_code(kernels[key], (9, 0))
