"""The loops that evaluate expressions on arrays of a GPU: which memory, which sizes, which strides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...graph.ops.expr import Expr
from ..device.device import Device
from .cuda_source import c_type, kind_of
from .dimensions import Memory, collapse, number_of, strides_of


@dataclass
class Nest:
    """Loops over ``sizes``, the innermost last; ``reads`` and ``writes`` tell which memory holds what.

    A memory with a stride of 0 is repeated; what is written to one is summed.
    """

    sizes: tuple[int, ...]
    memories: list[Memory]
    reads: dict[str, int]
    writes: list[tuple[Expr, int]]
    lead: int = 0  # leading dimensions over which nothing is summed, where something is
    summed: list[bool] = field(default_factory=list)  # by write
    join: str = "Sum"  # of what is summed: a class of reduce.cuh

    @staticmethod
    def of(
        dev: Device,
        outputs: Sequence[tuple[Expr, Any]],
        arrays: Mapping[str, Any],
        shape: tuple[int, ...],
        join: str = "Sum",
    ) -> Nest:
        """Return the loops over all elements of a shape."""
        nest = Nest(shape, [], {}, [], join=join)
        nest.reads = {name: nest._memory(dev, array) for name, array in arrays.items()}
        nest.writes = [(expression, nest._memory(dev, out)) for expression, out in outputs]
        nest.sizes = collapse(shape, nest.memories)
        return nest._split()

    def _memory(self, dev: Device, array: Any) -> int:
        """Return the number of an array, the same for the same memory seen twice."""
        strides = strides_of(array, len(self.sizes))
        return number_of(self.memories, Memory(array, dev.cuda.address(array), strides))

    def _split(self) -> Nest:
        """Put the dimensions over which something is summed behind the others, but leave the innermost last."""
        repeated = [
            [n > 1 and not s for n, s in zip(self.sizes, self.memories[k].strides, strict=True)]
            for _, k in self.writes
        ]
        over = next((r for r in repeated if any(r)), [])
        self.summed = [any(r) for r in repeated]
        if not over:
            return self
        outer = range(len(self.sizes) - 1)
        lead = [d for d in outer if not over[d]]
        order = [*lead, *(d for d in outer if over[d]), len(self.sizes) - 1]
        memories = [replace(m, strides=tuple(m.strides[d] for d in order)) for m in self.memories]
        sizes = tuple(self.sizes[d] for d in order)
        return replace(self, sizes=sizes, memories=memories, lead=len(lead))

    @property
    def sums(self) -> str:
        """What is summed: "" nothing, "columns" or "rows" (over the innermost dimension)."""
        if not any(self.summed):
            return ""
        k = self.writes[self.summed.index(True)][1]
        inner = self.memories[k].strides[-1] == 0 and self.sizes[-1] > 1
        return "rows" if inner else "columns"

    @property
    def places(self) -> int:
        """How many sums there are, of one innermost row if it is not summed over."""
        return math.prod(self.sizes[: self.lead])

    @property
    def rows(self) -> int:
        """How many innermost rows a sum goes over, or a loop without sums has."""
        return math.prod(self.sizes[self.lead : -1])

    @property
    def written(self) -> set[int]:
        """The memories that are written."""
        return {k for _, k in self.writes}

    @property
    def read(self) -> list[int]:
        """The memories that are read."""
        return sorted(set(self.reads.values()))

    @property
    def unrolled(self) -> int:
        """How many pieces a thread has under way at once; of bytes, 16 a piece, registers hold few."""
        return min(4 if len(self.read) <= 3 else 2, 32 // self.width())

    def strided(self) -> list[tuple[int, int]]:
        """Return for which memories and dimensions a stride is told: neither 0 nor, innermost, 1."""
        inner = len(self.sizes) - 1
        return [
            (k, d)
            for k, memory in enumerate(self.memories)
            for d, stride in enumerate(memory.strides)
            if stride and not (d == inner and stride == 1)
        ]

    def form(self) -> tuple[object, ...]:
        """Return what nests have in common that differ in addresses, sizes and wider strides alone."""
        wide = {(k, d) for k, d in self.strided()}
        memories = tuple(
            (m.array.dtype, *(2 if (k, d) in wide else s for d, s in enumerate(m.strides)))
            for k, m in enumerate(self.memories)
        )
        what = tuple((expression.form, k) for expression, k in self.writes)
        return what, memories, tuple(self.reads.items()), tuple(self.summed), self.lead, self.join

    def index(self) -> str:
        """Return the type that holds every offset."""
        far = max(
            sum(abs(s) * (n - 1) for s, n in zip(m.strides, self.sizes, strict=True))
            for m in self.memories
        )
        return "int" if max(far, math.prod(self.sizes)) < 1 << 30 else "long long"

    def width(self, nbytes: int = 16) -> int:
        """Return how many elements a thread takes at once: their vectors must be whole, and on a boundary."""
        width = max(nbytes // max(m.array.dtype.itemsize for m in self.memories), 1)
        flat = len(self.sizes) == 1 and not any(self.summed)
        if not flat and self.sizes[-1] % width:
            return 1
        return width if all(self._takes(m, width) for m in self.memories) else 1

    def _takes(self, memory: Memory, width: int) -> bool:
        *outer, inner = memory.strides
        if inner not in (0, 1):
            return False
        whole = memory.address % (width * memory.array.dtype.itemsize) == 0
        return not inner or (whole and all(s % width == 0 for s in outer))

    def total(self, j: int) -> str:
        """Return the kind in which a summed write adds up."""
        kind = kind_of(self.memories[self.writes[j][1]].array.dtype)
        return kind if kind in ("float", "double") else "long long"

    def held(self, k: int) -> str:
        """Return the C type of a memory's elements."""
        return c_type(self.memories[k].array.dtype)
