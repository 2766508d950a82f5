"""NullDevice: count kernel calls and run none, so that a step costs what the executor itself costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ops.registry import Spec
from ...strategies.types import to_numpy
from ..cuda.memory import DeviceMemory
from ..cuda.transfers import device_array
from ..device.device import Device
from ..host.arena import spec_of
from ..simulated.null import NullRuntime
from .bind import Binder
from .buckets import Buckets
from .cuda_plan import CudaPlan
from .plan import Plan
from .shapes import infer_specs


def _nothing(*args: Any, **keywords: Any) -> None:
    """Stand for a kernel's call: take its operands, and do nothing."""


class NullDevice(Device):
    """Binds what any device binds; in a step each call is made with its operands, and does nothing.

    ``calls`` counts them by op.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.calls: Counter[str] = Counter()

    def emptied(self) -> NullDevice:
        """Return a device with the same seed and clock, no scratch memory yet and nothing counted."""
        device = NullDevice(seed=self.seed, math=self.math, memory=self.memory, writes=self.writes)
        device.clock, device.constant = self.clock, self.constant
        return device

    def bound(self, op: str, calls: Sequence[Callable[[], Any]]) -> Sequence[Callable[[], Any]]:
        """Return calls that do nothing, one for each."""
        self.calls[op] += len(calls)
        return [_empty(call) for call in calls]


def _empty(call: Callable[[], Any]) -> Callable[[], Any]:
    if isinstance(call, partial):
        return partial(_nothing, *call.args, **call.keywords)
    return _nothing


def null_plan(program: ReplicaProgram, feeds: Sequence[np.ndarray]) -> Plan:
    """Bind a program for these feeds, where they stand; its collectives do nothing either."""
    state: dict[str, np.ndarray] = {}

    def allocate(name: str, spec: Spec) -> np.ndarray:
        return state.setdefault(name, np.zeros(spec.shape, to_numpy(spec.dtype)))

    specs = infer_specs(program, [spec_of(array) for array in feeds], lambda name: None)
    device = NullDevice(seed=program.seed)
    return Binder(program, device, specs, allocate, Buckets(program, None), fed=feeds).plan()


def null_gpu_plan(
    program: ReplicaProgram, feeds: Sequence[np.ndarray], runtime: NullRuntime
) -> CudaPlan:
    """Bind a program for a GPU that computes nothing (see :class:`NullRuntime`)."""
    state: dict[str, Any] = {}

    def allocate(name: str, spec: Spec) -> Any:
        if name not in state:
            state[name] = device_array(runtime, spec.shape, to_numpy(spec.dtype))
        return state[name]

    specs = infer_specs(program, [spec_of(array) for array in feeds], lambda name: None)
    device = Device(seed=program.seed, memory=DeviceMemory(runtime), runtime=runtime)
    binder = Binder(program, device, specs, allocate, Buckets(program, None), make=CudaPlan)
    return cast(CudaPlan, binder.plan())
