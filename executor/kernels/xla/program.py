"""A region as one compiled program: its operands are read where they lie, its results copied where they belong.

Arrays of a plan stay where they are, so each operand is given to XLA once, when the region is bound; what NumPy
writes into it later is seen. XLA computes on one thread: a replica's cores are the replica's.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from ....graph.lowering.memory import ALIGNMENT
from ....graph.ops.region import REGION, Body, Region, infer_body
from ....graph.ops.registry import Spec
from ....strategies.errors import InvalidValue
from ....strategies.types import to_numpy
from ...codegen.native import cpu
from ...device.device import Device
from ...host.arena import spec_of
from ...host.disk_cache import DiskCache, disk_cache
from ..registry import Step, kernel
from .later import jax, jnp, stored
from .lowering import Check, can_lower, lower_body

# Of the compiled program alone, so that other uses of jax in this process keep what they have.
_OPTIONS = {"xla_cpu_multi_thread_eigen": False, "xla_cpu_parallel_codegen_split_count": 1}
_CACHED_S = 0.3  # programs that took no longer to compile are not kept on disk


class Operand:
    """An array of the plan as XLA reads it: from the cache line on in which it begins.

    XLA takes memory as it is only from a cache line on. One that begins inside a line is read from the line's
    beginning; one that is read-only, or not in the order of its shape, is copied in each step.
    """

    def __init__(self, array: Any) -> None:
        self.shape, self.copies = array.shape, []
        self.skipped = 0
        if not array.size:
            self.flat: Any = None
            return
        if not (array.flags.c_contiguous and array.flags.writeable):
            room = _aligned(array.shape, array.dtype)
            self.copies = [partial(np.copyto, room, array)]
            array = room
        inside = array.ctypes.data % ALIGNMENT
        self.skipped = inside // array.itemsize
        nbytes = inside + array.nbytes
        line = (ctypes.c_char * nbytes).from_address(array.ctypes.data - inside)
        self._memory = array  # whose memory it is
        self.flat = jnp.from_dlpack(np.frombuffer(line, array.dtype))

    def read(self, flat: Any) -> Any:
        """Return the traced array from the flat one."""
        size = int(np.prod(self.shape))
        return flat[self.skipped : self.skipped + size].reshape(self.shape)


def _aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    raw = np.empty(int(np.prod(shape)) * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + raw.size - ALIGNMENT].view(dtype).reshape(shape)


@kernel(REGION, on=("xla",), takes=can_lower)
def region(dev: Device, a: Region) -> list[Step]:
    """Compile the region for these arrays."""
    specs = infer_body(a.body, [spec_of(array) for array in a.x])
    wanted = [(i, array) for i, array in zip(a.results, a.out, strict=True) if array is not None]
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        operands = [Operand(array) for array in a.x]
        arrays = [operand.flat for operand in operands if operand.flat is not None]
        traced = StepTraces(operands, a.body, [i for i, _ in wanted], specs)
        program = _compiled(traced, arrays)
    copies = [step for operand in operands for step in operand.copies]
    targets = [array for _, array in wanted]
    return [*copies, Program(program, operands, targets, traced.problems)]


class StepTraces:
    """The function that jax traces: the nodes of a region in order."""

    def __init__(
        self,
        operands: Sequence[Operand],
        body: Body,
        results: Sequence[int],
        specs: dict[int, Spec],
    ) -> None:
        self.operands, self.body, self.results, self.specs = operands, body, results, specs
        self.problems: list[tuple[int, str]] = []

    def __call__(self, *arrays: Any) -> list[Any]:
        """Return the results, and the numbers to check after them."""
        waiting = iter(arrays)
        values: dict[int, Any] = {}
        for i, operand in enumerate(self.operands):
            spec = self.specs[i]
            empty = operand.flat is None
            values[i] = (
                jnp.zeros(spec.shape, to_numpy(spec.dtype))
                if empty
                else operand.read(next(waiting))
            )
        checks: list[Check] = []
        lower_body(self.body, values, self.specs, checks)
        self.problems = [(check.limit, check.problem) for check in checks]
        # What is handed through would be the operand's own memory, and that may be written meanwhile.
        results = [
            jnp.copy(values[i]) if i < len(self.operands) else values[i] for i in self.results
        ]
        return [*results, *(check.value for check in checks)]


def _compiled(traced: StepTraces, arrays: Sequence[Any]) -> Callable[..., Sequence[Any]]:
    """Return a program for operands of these shapes: from disk, or compiled now and kept if that took long."""
    lowered = jax.jit(traced).lower(*arrays)
    program: Callable[..., Sequence[Any]]
    # Where the user named a directory to jax, jax keeps programs there.
    users = jax.config.jax_compilation_cache_dir is not None
    disk, name = DiskCache(None) if users else disk_cache(), _name_of(lowered)
    data = disk.read(name)
    if data is not None:
        # jax has no class of its own for what another version wrote, or the same on another processor.
        with contextlib.suppress(Exception):
            program = stored.deserialize_and_load(data, lowered.in_tree, lowered.out_tree)
            return program
    began = time.perf_counter()
    program = lowered.compile(compiler_options=_OPTIONS)
    if time.perf_counter() - began > _CACHED_S:
        disk.write(name, stored.serialize(program)[0])
    return program


def _name_of(lowered: Any) -> str:
    """Return the name under which a lowered program is kept; its text lacks operands that nothing reads."""
    flags = os.environ.get("XLA_FLAGS", "")
    versions = f"jax {metadata.version('jax')}, jaxlib {metadata.version('jaxlib')}, {cpu()}"
    text, operands = lowered.as_text(), lowered.in_avals
    key = f"{versions}\n{flags} {sorted(_OPTIONS.items())}\n{operands}\n{text}"
    return f"{hashlib.sha256(key.encode()).hexdigest()}.xla"


class Program:
    """A compiled region with its operands, the arrays that its results belong in, and what it checks.

    Raises (when called):
        InvalidValue: an index is outside what it picks from.
    """

    def __init__(
        self,
        compiled: Callable[..., Sequence[Any]],
        operands: Sequence[Operand],
        targets: Sequence[Any],
        problems: Sequence[tuple[int, str]],
    ) -> None:
        self._compiled = compiled
        self._operands = operands  # whose memory is read
        self._arrays = [operand.flat for operand in operands if operand.flat is not None]
        self._targets, self._problems = targets, problems

    def __call__(self) -> None:
        """Run the program, refuse what its checks found, then copy what it made to where it belongs."""
        results = self._compiled(*self._arrays)
        count = len(self._targets)
        for (limit, problem), value in zip(self._problems, results[count:], strict=True):
            number = int(value)
            if not 0 <= number < limit:
                raise InvalidValue(problem.format(number))
        # All are waited for before the first is copied: a target may be an operand's memory.
        arrays = [np.asarray(result) for result in results[:count]]
        for target, array in zip(self._targets, arrays, strict=True):
            np.copyto(target, array)
