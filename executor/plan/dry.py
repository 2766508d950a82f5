"""Bind a program without memory, on reserved address space, to count the scratch that its kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.lowering.memory import MemoryOptions, MemoryPlan
from ...graph.ops.registry import Spec
from ...strategies.types import to_numpy
from ..cuda.memory import DeviceMemory
from ..cuda.transfers import SLOTS
from ..device.device import Device
from ..host.arena import Memory, Region, bytes_of
from ..host.writes import Writes
from ..kernels.back_ends import ALL_LIBRARIES, ON_GPU
from ..kernels.capabilities import installed
from ..simulated.null import NullRuntime
from .bind import Binder
from .buckets import Buckets
from .group import WHEN, CollectiveGroup, Ints, When
from .part import Peers


class NullGroup(CollectiveGroup):
    """A group without peers, for binding alone: collectives do nothing, buffers are address space."""

    def buffer(self, nbytes: int) -> Any:
        """Return address space, which no caller may touch."""
        return Region(max(nbytes, 1)).bytes

    def all_reduce(self, array: Any, op: str = "sum", when: When = WHEN) -> None:
        """Do nothing."""

    def reduce_parts(
        self, array: Any, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> None:
        """Do nothing."""

    def broadcast_parts(self, array: Any, ends: Ints, roots: Ints, when: When = WHEN) -> None:
        """Do nothing."""

    def barrier(self, when: When = WHEN) -> None:
        """Do nothing."""

    def abort(self, reason: str) -> None:
        """Do nothing: no rank waits."""

    def reset(self, epoch: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def bound_dry(
    program: ReplicaProgram, specs: Sequence[Spec], memory_options: MemoryOptions, *, grouped: bool
) -> tuple[MemoryPlan, int]:
    """Return where temporaries will lie on replica 0, and the bytes of scratch memory its kernels take.

    Where this process lacks a library that replicas have, NumPy's kernels stand for it.
    """
    group = NullGroup() if grouped else None
    space = Region(max(bytes_of(list(specs)), 1))  # of persistables; never touched

    def allocate(name: str, spec: Spec) -> Any:
        return space.bytes[: bytes_of([spec])].view(to_numpy(spec.dtype)).reshape(spec.shape)

    buckets = Buckets(program, group if program.buckets else None)
    runtime = NullRuntime() if on_gpu(program) else None
    device = Device(
        seed=program.seed,
        math=program.math,
        memory=Memory() if runtime is None else DeviceMemory(runtime),
        writes=Writes(),
        runtime=runtime,
    )
    binder = Binder(
        _runnable(program, runtime),
        device,
        specs,
        allocate,
        buckets,
        Peers(group, 0),
        memory_options=memory_options,
    )
    scratch = binder.plan().device.scratch_bytes
    return binder.arena.plan, scratch + (_staging(program, specs) if runtime is not None else 0)


def on_gpu(program: ReplicaProgram) -> bool:
    """Tell whether a program was compiled for GPUs."""
    return any(node.kernel in ON_GPU for node in program.nodes)


def _staging(program: ReplicaProgram, specs: Sequence[Spec]) -> int:
    """Return the bytes in which feeds and fetches wait on a GPU."""
    return SLOTS * bytes_of([specs[i] for i in (*program.feeds, *program.fetches)])


def _runnable(program: ReplicaProgram, runtime: NullRuntime | None) -> ReplicaProgram:
    """Return the program with NumPy in the place of libraries that are not here."""
    missing = {node.kernel for node in program.nodes}.intersection(ALL_LIBRARIES) - installed(
        runtime
    ).keys()
    if not missing:
        return program
    nodes = (replace(n, kernel="numpy") if n.kernel in missing else n for n in program.nodes)
    return replace(program, nodes=tuple(nodes))
