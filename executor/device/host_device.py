"""The host beside a GPU, as a device: its ops run between the GPU's work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..cuda.memory import DeviceMemory
from ..cuda.runtime import Runtime, Step
from .device import Device


class HostDevice(Device):
    """The host of a replica on a GPU: same seed and clock, scratch memory of its own."""

    def __init__(self, gpu: Device) -> None:
        assert gpu.runtime is not None and isinstance(gpu.memory, DeviceMemory)
        super().__init__(
            seed=gpu.seed, memory=gpu.memory.host, writes=gpu.writes, passes=gpu.passes
        )
        self.clock = gpu.clock
        self._gpu = gpu.runtime

    @property
    def gpu(self) -> int | None:
        """Number of the GPU beside this host."""
        return self._gpu.index

    def bound(self, op: str, calls: Sequence[Callable[[], Any]]) -> Sequence[Callable[[], Any]]:
        """Return one call, which waits for the GPU and then computes."""
        return [OnHost(self._gpu, calls)] if calls else []


class OnHost:
    """Calls that compute on the host once all work on ``compute``, copies to the host included, is done.

    They return when they are done, so that later work on the stream finds their results.
    """

    captured = False

    def __init__(self, runtime: Runtime, steps: Sequence[Step]) -> None:
        self._runtime = runtime
        self._steps = tuple(steps)

    def __call__(self) -> None:
        self._runtime.record(self._runtime.compute).synchronize()
        for step in self._steps:
            step()


def host_device_of(device: Device) -> Device:
    """Return the host of a device that is a GPU; the device itself if it is none."""
    return device if device.runtime is None else HostDevice(device)
