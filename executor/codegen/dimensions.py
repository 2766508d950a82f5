"""The dimensions of loops over several arrays, in the order of memory, and as few as their strides allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...graph.ops.operands import Array


class CopyDimension(NamedTuple):
    """A number of elements, and how far apart they lie on both sides of a copy, in elements."""

    size: int
    to: int
    source: int


@dataclass(slots=True)
class Memory:
    """An array in loops: where it begins, and its strides in elements, one per dimension of the loops."""

    array: Any
    address: int
    strides: tuple[int, ...]


def strides_of(array: Array, rank: int = 0) -> tuple[int, ...]:
    """Return an array's strides in loops of ``rank`` dimensions, in elements: 0 where it is repeated.

    The loops have the array's dimensions, if it has more.
    """
    sizes = zip(array.shape, array.strides, strict=True)
    own = [0 if size == 1 else step // array.itemsize for size, step in sizes]
    return (0,) * (rank - array.ndim) + tuple(own)


def view_has(array: Array, shape: Sequence[int]) -> bool:
    """Tell whether a view of an array can have another shape: CuPy makes a copy at once where none can."""
    runs: list[tuple[int, int]] = []  # of elements that lie behind each other at one stride
    for size, step in zip(array.shape, array.strides, strict=True):
        if size != 1:
            joins = runs and runs[-1][1] == size * step
            runs.append((runs.pop()[0] * size, step) if joins else (size, step))
    for size in reversed(shape):
        if size != 1:
            left, step = runs.pop()
            if left % size:
                return False
            if left > size:
                runs.append((left // size, step * size))
    return True


def number_of(memories: list[Memory], memory: Memory) -> int:
    """Return the place of a memory among those of loops, the same for one that is seen twice."""
    dtype, where = memory.array.dtype, (memory.address, memory.strides)
    for k, known in enumerate(memories):
        if (known.address, known.strides) == where and known.array.dtype == dtype:
            return k
    memories.append(memory)
    return len(memories) - 1


def collapse(shape: Sequence[int], memories: Sequence[Memory]) -> tuple[int, ...]:
    """Order dimensions as memory has them, and join what lies together; return their sizes, at least one."""
    every = [m.strides for m in memories]
    guide = max(every, key=lambda strides: -strides.count(0))
    sizes, *by_memory = zip(*joined(shape, every, guide) or [(1,) * (1 + len(every))], strict=True)
    for memory, strides in zip(memories, by_memory, strict=True):
        memory.strides = strides
    return sizes


def joined(
    shape: Sequence[int], strides: Sequence[Sequence[int]], guide: Sequence[int]
) -> list[tuple[int, ...]]:
    """Order dimensions, and join two that lie behind each other in every array.

    Args:
        shape: elements of each dimension; those of 1 are left out.
        strides: of each array, one for each dimension.
        guide: the strides whose order counts, the widest first.

    Returns:
        Of each dimension its number of elements, and its stride in each array.
    """
    dimensions: list[tuple[int, ...]] = []
    several = [i for i, size in enumerate(shape) if size > 1]
    for i in sorted(several, key=lambda i: -abs(guide[i])):
        size, steps = shape[i], [array[i] for array in strides]
        if dimensions and [*dimensions[-1][1:]] == [step * size for step in steps]:
            size *= dimensions.pop()[0]
        dimensions.append((size, *steps))
    return dimensions


def joined_of_copy(target: Array, source: Array | None) -> list[CopyDimension]:
    """Return the dimensions of a copy, outermost of the target first, at least one.

    A dimension of ``source`` that is 1 stands for any size; ``source`` None is one number.
    """
    to = [step // target.itemsize for step in target.strides]
    read = [0] * target.ndim
    if source is not None:
        pairs = zip(source.shape, source.strides, strict=True)
        read = [0 if size == 1 else step // target.itemsize for size, step in pairs]
    dimensions = joined(target.shape, [to, read], to)
    return [CopyDimension(*d) for d in dimensions or [(1, 1, int(source is not None))]]
