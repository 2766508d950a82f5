"""A GPU for tests of kernels: a real one if there is one, else one that is simulated on the host."""

from __future__ import annotations

import os
import random
import re
import struct
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
# Bytes that a thread may keep in memory: sines of large numbers in double precision take 40. An array whose
# places are known only on the GPU would take more, and each access to it a trip to memory.
_FRAME = 64
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
    """Compile some kernels with NVRTC (all, if ROWLOCK_TEST_LONG is set); none where it is not installed.

    They keep what they compute in registers.
    """
    assert kernels
    for kernel in kernels.values():  # NVRTC ignores a pragma that stands elsewhere
        assert not re.search(r"#pragma unroll[ \d]*\n(?!\s*for)", kernel.own_text), kernel.own_text
    keys = sorted(kernels)
    if not os.environ.get("ROWLOCK_TEST_LONG"):
        keys = random.sample(keys, min(_SAMPLE, len(keys)))
    for key in keys if nvrtc.version() else ():
        frame = frame_bytes(nvrtc.machine_code(kernels[key], (9, 0)))
        assert frame <= _FRAME, f"{kernels[key].name}: {frame} bytes\n{kernels[key].own_text}"


def frame_bytes(cubin: bytes) -> int:
    """Return the most bytes of memory that a function of machine code keeps for a thread.

    An ELF file lists them in sections of type 0x70000000, as (function, bytes) behind 0x11.
    """
    (table,), (size, count) = (
        struct.unpack_from("<Q", cubin, 0x28),
        struct.unpack_from("<HH", cubin, 0x3A),
    )
    frames = [0]
    for k in range(count):
        _, kind, _, _, at, nbytes = struct.unpack_from("<IIQQQQ", cubin, table + k * size)
        end = at + nbytes if kind == 0x70000000 else at
        while at < end:
            form, attribute, length = struct.unpack_from("<BBH", cubin, at)
            if attribute == 0x11:
                frames.append(struct.unpack_from("<II", cubin, at + 4)[1])
            # Other forms have their value in place of a length
            at += 4 + (length if form == 4 else 0)
    return max(frames)
