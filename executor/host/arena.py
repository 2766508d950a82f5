"""Memory for plans: address space that is reserved at once, and takes memory only where it is touched."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections import deque
from collections.abc import Hashable
from copy import copy
from functools import lru_cache
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ...graph.ir.capabilities import CHANNELS_LAST, ROUNDED_LAST
from ...graph.lowering.memory import ALIGNMENT, MemoryPlan, aligned
from ...graph.ops.registry import Spec
from ...strategies.types import to_numpy, to_var_type
from .numbered import Memo, Rebound
from .writes import address

_LEAST, _LEAST_SCRATCH = 64 << 20, 1 << 30  # bytes of address space
_ROOM = 4  # reserve so many times the bytes needed now: larger shapes may follow
_BOUND_KEPT = 64  # by region, without a plan that has it
_REMEMBERED = 4 << 20  # bytes: orders of hundreds of batches that come again and again
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Python names it from 3.13 on


def spec_of(array: Any) -> Spec:
    """Return the spec of an array."""
    return _spec(array.shape, array.dtype)


@lru_cache(maxsize=1 << 12)
def _spec(shape: tuple[int, ...], dtype: Any) -> Spec:
    return Spec(tuple(shape), to_var_type(dtype))


def aligned_bytes(xp: ModuleType, nbytes: int) -> Any:
    """Return ``nbytes`` uninitialised bytes (uint8) that begin on a cache line."""
    raw = xp.empty(nbytes + ALIGNMENT, np.uint8)
    address = raw.ctypes.data if xp is np else raw.data.ptr
    start = -address % ALIGNMENT
    return raw[start : start + nbytes]


class Region:
    """Reserved address space. Views of it stay usable after :meth:`give_back`.

    ``bound`` is what kernels bound to it for any plan, by what it is and where it begins: as long as a plan
    has it, or a while longer.
    """

    def __init__(self, capacity: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        try:
            self._map = mmap.mmap(-1, capacity, flags=flags)
        except OSError as error:
            raise MemoryError(str(error)) from error
        self.bytes = np.frombuffer(self._map, np.uint8)
        self.begin = address(self.bytes)
        self.capacity = capacity
        self.bound: WeakValueDictionary[Hashable, Rebound] = WeakValueDictionary()
        self._latest: deque[Rebound] = deque(maxlen=_BOUND_KEPT)
        with contextlib.suppress(OSError):  # huge pages, as NumPy requests for its own arrays
            self._map.madvise(mmap.MADV_HUGEPAGE)

    def keep(self, key: Hashable, bound: Rebound) -> None:
        """Keep what was bound to it."""
        self.bound[key] = bound
        self._latest.append(bound)

    def give_back(self) -> None:
        """Give the pages back to the host; their content is lost."""
        self._map.madvise(mmap.MADV_DONTNEED)


class Memory:
    """Memory of plans of which one runs at a time: an arena, and scratch memory for each lane.

    ``memo``: what their calls remember.
    """

    def __init__(self) -> None:
        self.memo = Memo(_REMEMBERED)
        self._arena: Region | None = None
        self._scratch: dict[int, Region] = {}
        self.taken = 0  # bytes of the arena that may have pages

    def arena(self, nbytes: int) -> Any:
        """Return ``nbytes`` bytes, the same for every plan as long as they suffice."""
        if self._arena is None or self._arena.capacity < nbytes:
            if self._arena is not None:
                self._arena.give_back()
            self._arena, self.taken = _region(nbytes), 0
        self.taken = max(self.taken, nbytes)
        return self._arena.bytes[:nbytes]

    def reaches(self, begin: int, nbytes: int) -> bool:
        """Tell whether the arena begins at an address, and may have so many pages from there on."""
        return self._arena is not None and self._arena.begin == begin and nbytes <= self.taken

    def scratch(self, lane: int, least: int = 0) -> Region:
        """Return the region from which the instructions of a lane take scratch memory, one after the other."""
        region = self._scratch.get(lane)
        if region is None or region.capacity < least:
            region = self._scratch[lane] = _region(max(least, _LEAST_SCRATCH // _ROOM))
        return region

    def give_back(self) -> None:
        """Give all pages back to the host. Plans can still run: they take new ones."""
        self.taken = 0
        for region in (self._arena, *self._scratch.values()):
            if region is not None:
                region.give_back()


def _region(nbytes: int) -> Region:
    """Reserve more bytes than are needed now, or as many if the host does not allow more."""
    try:
        return Region(max(_ROOM * nbytes, _LEAST))
    except MemoryError:
        return Region(max(nbytes, mmap.PAGESIZE))


class Arena:
    """Memory of a plan's temporaries; ``count`` and ``nbytes`` are those that a step leaves alive."""

    def __init__(self, xp: Any, plan: MemoryPlan, memory: Any = None) -> None:
        block = memory.arena(plan.size) if memory is not None else aligned_bytes(xp, plan.size)
        host = _beside(memory, plan.host_size)
        self.plan, self._blocks = plan, (block, host)
        self._begins = address(block), address(host)
        self.count = len(plan.roots)
        self.nbytes = plan.size + plan.host_size

    def resized(self, plan: MemoryPlan) -> Arena:
        """Return the same memory with values of other sizes, which begin where they do here."""
        arena = copy(self)
        arena.plan = plan
        return arena

    @property
    def begin(self) -> int:
        """The address where it begins."""
        return self._begins[0]

    @property
    def addresses(self) -> dict[int, int]:
        """The address of each value, by position."""
        plan, (begin, host) = self.plan, self._begins
        addresses = {i: begin + plan.offsets[root] for i, root in plan.roots.items()}
        for i, offset in plan.within.items():
            addresses[i] += offset
        for i in plan.usage.hosted & addresses.keys():
            addresses[i] += host - begin
        return addresses

    def array(self, position: int) -> Any:
        """Return a new array on the memory of a value."""
        plan = self.plan
        block, spec = self._blocks[position in plan.usage.hosted], plan.specs[position]
        array = _view(block, plan.at(position), spec)
        layout = plan.usage.program.values[position].layout
        return shaped(array, spec.shape, layout) if layout else array


def _beside(memory: Any, nbytes: int) -> Any:
    """Return the host's memory for values beside a GPU (on a CPU all values lie in one memory)."""
    if nbytes and hasattr(memory, "on_host"):
        return memory.on_host(nbytes)
    return aligned_bytes(np, nbytes)


def shaped(flat: Any, shape: tuple[int, ...], layout: str) -> Any:
    """Return flat memory as an array of this shape whose elements lie in the order of ``layout``."""
    if layout in (CHANNELS_LAST, ROUNDED_LAST):
        n, c, h, w = shape
        return flat.reshape(n, h, w, c).transpose(0, 3, 1, 2)
    return flat.reshape(shape)


def view(buffer: Any, offset: int, spec: Spec) -> tuple[Any, int]:
    """Return the array of ``spec`` at ``offset`` of a byte buffer, and the offset behind it."""
    return _view(buffer, offset, spec), offset + bytes_of([spec])


def _view(buffer: Any, offset: int, spec: Spec) -> Any:
    dtype = to_numpy(spec.dtype)
    if type(buffer) is np.ndarray:
        return np.ndarray(spec.shape, dtype, buffer, offset)
    return buffer[offset : offset + bytes_of([spec])].view(dtype).reshape(spec.shape)


def bytes_of(specs: list[Spec]) -> int:
    """Return the bytes that arrays of these specs take, side by side."""
    return sum(math.prod(spec.shape) * to_numpy(spec.dtype).itemsize for spec in specs)


__all__ = ["ALIGNMENT", "Arena", "Memory", "Region", "aligned", "aligned_bytes", "bytes_of", "view"]
