"""Device: given to each kernel that is bound: array module, scratch memory, clock of random numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from ...graph.lowering.memory import GPU_ALIGNMENT
from ..cuda.device_assert import Assertion, DeviceAsserts
from ..cuda.device_vote import DeviceVote
from ..cuda.kernel import CudaKernel
from ..cuda.memory import DeviceMemory
from ..cuda.runtime import Dims, Runtime, Step, describe_memory
from ..host.arena import ALIGNMENT, Memory, aligned, aligned_bytes
from ..host.memory import total_memory
from ..host.numbered import Memo, Rebound
from ..host.writes import Writes

# A prime: steps, rounds and rounds of inner loops fall together by accident alone.
_ROUNDS = (1 << 61) - 1

T = TypeVar("T", bound=Rebound)

_METHODS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}


@dataclass
class Clock:
    """Where in the training run a step stands; random kernels read it each time they run.

    ``step`` counts committed iterations; ``row`` is the global index of this replica's first sample;
    ``share`` its rows as a part of the whole batch.
    """

    step: int = 0
    row: int = 0
    share: float = 1.0

    def in_round(self, number: int) -> Clock:
        """Return a clock by which a round of a loop draws numbers of its own."""
        step = ((self.step + 1) * _ROUNDS + number) % (1 << 63)
        return Clock(step, self.row, self.share)

    def show(self, other: Clock) -> None:
        """Show what another clock shows."""
        self.step, self.row, self.share = other.step, other.row, other.share


class Device:
    """Binds kernels to one array module. Scratch memory is shared by the instructions of a lane.

    ``seed`` is the program's seed, ``output`` the name of the variable the kernel being bound writes:
    together they key its random numbers. ``memory`` provides scratch (None: blocks of the device's own).
    ``math`` is the precision of single-precision products ("bfloat16" or "tf32": factors are rounded to that),
    where a library has the choice. ``writes`` counts writes to persistables, and ``constant`` has their
    addresses if the program itself changes none of them. ``runtime``: the GPU that computes. ``operands`` are
    the names of what the instruction being bound reads; ``counts`` what kernels count over all plans of a
    program, by a name. ``passes``: what kernels gather over the batches of a pass, by a name, in a scope.
    """

    def __init__(
        self,
        name: str = "numpy",
        xp: ModuleType = np,
        *,
        seed: int = 0,
        memory: Memory | DeviceMemory | None = None,
        math: str = "float32",
        writes: Writes | None = None,
        passes: dict[str, Any] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.runtime = runtime
        self.name = name if runtime is None else "cupy"
        self.xp = xp if runtime is None else runtime.xp
        self.seed = seed
        self.memory = memory
        self.math = math
        self.writes = writes
        self.passes = {} if passes is None else passes
        self.constant: frozenset[int] = frozenset()
        self._clock = Clock()
        self.output = ""
        self.operands: Sequence[str] = ()
        self.counts: Counter[str] = Counter()
        self.uneven = False  # whether other plans bind this instruction for other numbers of rows
        self.tied = False  # whether no other plan may have the instruction being bound
        self.ticked = False  # whether any instruction reads ``ticks``
        self.lane = 0  # of the instruction being bound
        self.op, self.where = "", ""  # of the instruction being bound
        # What keeps the kernels of the instruction being bound from writing, in a step that may not.
        self.guard: DeviceVote | DeviceAsserts | None = None
        self._free: dict[int, list[Any]] = {}
        self._lent: list[Any] = []
        self.own_bytes = 0  # of arrays that instructions keep
        self.compiled_bytes = 0  # of a library's code that was compiled for them
        self._bytes_before = 0  # bytes of both before the instruction being bound
        self.shared: list[Rebound] = []  # what the instruction being bound has together with others
        self._region_bytes = 0  # bytes of the lane's region that calls being bound have
        self.region_bytes = 0  # and the most that any calls of the instruction have
        self._most: dict[int, int] = {}  # by region: the most that one instruction has of it

    def emptied(self) -> Device:
        """Return a device with the same seed and clock, and no scratch memory yet."""
        device = Device(
            self.name,
            self.xp,
            seed=self.seed,
            memory=self.memory,
            math=self.math,
            writes=self.writes,
            passes=self.passes,
            runtime=self.runtime,
        )
        device.clock, device.constant = self.clock, self.constant
        return device

    @property
    def clock(self) -> Clock:
        """Where in the training run a step stands."""
        self.tied = True
        return self._clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._clock = clock

    def scratch(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised array that lives while the instruction being bound runs."""
        self.tied = self.tied or not isinstance(self.memory, Memory)
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        block = self._take(max(nbytes, 1)) if self.memory is None else self._cut(nbytes)
        return block[:nbytes].view(dtype).reshape(shape)

    def array_or_scratch(self, array: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a result's array, or scratch in its place where nothing reads the result."""
        return self.scratch(shape, dtype) if array is None else array

    def scratch_in_one(self, dtype: Any, *shapes: tuple[int, ...]) -> list[Any]:
        """Return uninitialised arrays without gaps: where they begin is an affine function of their sizes."""
        ends = list(accumulate(map(math.prod, shapes)))
        block = self.scratch((ends[-1],), dtype)
        begins = (0, *ends)
        return [
            block[begin:end].reshape(shape)
            for begin, end, shape in zip(begins, ends, shapes, strict=False)
        ]

    def rebound(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` binds to the scratch that it takes, as an earlier plan did on the same memory.

        ``key`` tells it from whatever else may be bound there; it depends on nothing else, of the plan or its
        values.
        """
        if not isinstance(self.memory, Memory):
            return make()
        region, begin = self.memory.scratch(self.lane), aligned(self._region_bytes)
        bound = cast(T | None, region.bound.get((key, begin)))
        if bound is not None:
            self._cut(bound.scratch)
        else:
            bound = make()
            if self.memory.scratch(self.lane) is region:  # not a larger one
                bound.scratch = self._region_bytes - begin
                region.keep((key, begin), bound)
        self.shared.append(bound)
        return bound

    @property
    def memo(self) -> Memo:
        """What calls remember of runs of any plan on the same memory."""
        return Memo(0) if self.memory is None else self.memory.memo

    @property
    def cuda(self) -> Runtime:
        """The GPU that computes, for kernels that are chosen on one alone."""
        assert self.runtime is not None
        return self.runtime

    @property
    def gpu(self) -> int | None:
        """Number of the GPU that computes, for a kernel on the host beside it, too; None: there is none."""
        return None if self.runtime is None else self.runtime.index

    @property
    def ticks(self) -> Any:
        """Where kernels of a GPU read the clock when they run: step and row as int64, then share as float64."""
        assert isinstance(self.memory, DeviceMemory)
        self.tied = self.ticked = True
        return self.memory.ticks

    @property
    def asserts(self) -> DeviceAsserts:
        """What kernels of a GPU assert of their operands."""
        assert isinstance(self.memory, DeviceMemory)
        return self.memory.asserts

    def assertion(self, problem: str) -> list[Any]:
        """Return the values that a kernel of this instruction passes to ``refuse`` (``assert.cuh``).

        ``problem`` is told with the wrong number in place of ``{}``.
        """
        return self.asserts.arguments(Assertion(problem, self.op, tuple(self.operands), self.where))

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Take back, at its end, the scratch lent in a ``with``: calls bound later run later, too."""
        lent, nbytes, self._lent = self._lent, self._region_bytes, []
        yield
        self._free.setdefault(self.lane, []).extend(self._lent)
        self._lent, self._region_bytes = lent, nbytes

    def scratch_like(self, array: Any, dtype: Any = None) -> Any:
        """Return scratch of an array's shape, with its elements in the array's order in memory."""
        dtype = array.dtype if dtype is None else dtype
        if array.flags.c_contiguous:
            return self.scratch(array.shape, dtype)
        order = sorted(range(array.ndim), key=lambda i: -abs(array.strides[i]))
        block = self.scratch(tuple(array.shape[i] for i in order), dtype)
        return block.transpose([order.index(i) for i in range(array.ndim)])

    def keep(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a zeroed array that belongs to the instruction being bound alone, run after run."""
        self.tied = True
        array = self.xp.zeros(shape, dtype)
        self.own_bytes += array.nbytes
        return array

    def launch(self, kernel: CudaKernel, grid: Dims, block: Dims, arguments: Sequence[Any]) -> Step:
        """Return the launch of a kernel on the GPU."""
        if self.guard is not None:
            kernel, arguments = self.guard.guarded(kernel, arguments)
        return self.cuda.launch(kernel, grid, block, arguments)

    def next_instruction(
        self,
        output: str,
        lane: int = 0,
        operands: Sequence[str] = (),
        uneven: bool = False,
        op: str = "",
        where: str = "",
    ) -> None:
        """Take back the last instruction's scratch; ``output`` names the next one's result.

        Instructions of one ``lane`` run in turn. ``operands`` are the names of what the instruction reads;
        ``uneven``: it is bound anew for other numbers of rows again and again. ``op`` is its operator, built at
        ``where``.
        """
        self.reuse()
        self.op, self.where = op, where
        self._bytes_before = self.own_bytes + self.compiled_bytes
        self.lane, self.output, self.operands, self.tied = lane, output, operands, False
        self.uneven, self.region_bytes, self.shared = uneven, 0, []

    @property
    def instruction_bytes(self) -> int:
        """Bytes of arrays and of a library's code that were made for the instruction being bound alone."""
        return self.own_bytes + self.compiled_bytes - self._bytes_before

    def reserve(self, nbytes: int) -> None:
        """Count scratch of the first lane that an instruction has which another plan bound."""
        if nbytes and self.memory is not None:
            region = id(self.memory.scratch(0, nbytes))
            self._most[region] = max(self._most.get(region, 0), nbytes)

    def reuse(self) -> None:
        """Take back all lent scratch: calls bound next in this instruction run after those that had it."""
        if self._lent:
            self._free.setdefault(self.lane, []).extend(self._lent)
            self._lent = []
        self._region_bytes = 0

    def bound(self, op: str, calls: Sequence[Callable[[], Any]]) -> Sequence[Callable[[], Any]]:
        """Return the calls that a step makes for an op, from the kernel's own."""
        return calls

    def room(self) -> str:
        """Describe the free memory, for errors."""
        if self.runtime is None:
            return f"this host has {total_memory():,}"
        return describe_memory(self.runtime)

    def reducer(self, name: str) -> Callable[..., Any]:
        """Return ``ufunc.reduce(array, axis, dtype, out, keepdims)``; CuPy's has only add and multiply."""
        if self.name == "numpy":
            return getattr(self.xp, name).reduce
        method = _METHODS[name]

        def reduce(array: Any, axis: Any, dtype: Any, out: Any, keepdims: bool = False) -> Any:
            return getattr(array, method)(axis=axis, out=out, keepdims=keepdims)

        return reduce

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the plan's scratch memory, arrays that instructions keep included."""
        free = (block for blocks in self._free.values() for block in blocks)
        blocks = sum(block.nbytes for block in (*free, *self._lent))
        return blocks + sum(self._most.values()) + self.own_bytes

    def _cut(self, nbytes: int) -> Any:
        """Take bytes from the lane's region, behind those that the instruction being bound has."""
        assert self.memory is not None
        # Libraries of a GPU want their workspaces on its boundary.
        at = aligned(self._region_bytes, ALIGNMENT if self.runtime is None else GPU_ALIGNMENT)
        self._region_bytes = at + nbytes
        self.region_bytes = max(self.region_bytes, self._region_bytes)
        region = self.memory.scratch(self.lane, self._region_bytes)
        self._most[id(region)] = max(self._most.get(id(region), 0), self._region_bytes)
        return region.bytes[at : at + nbytes]

    def _take(self, nbytes: int) -> Any:
        free = self._free.setdefault(self.lane, [])
        fitting = [block for block in free if block.nbytes >= nbytes]
        if fitting:
            block = min(fitting, key=lambda b: b.nbytes)
            self._free[self.lane] = [b for b in free if b is not block]
        else:
            block = aligned_bytes(self.xp, nbytes)
        self._lent.append(block)
        return block
