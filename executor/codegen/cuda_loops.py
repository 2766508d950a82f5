"""Several scalar expressions over the same elements as generated CUDA kernels.

Operands broadcast to the loop's shape by strides of 0; results are summed, or joined otherwise, over dimensions
in which they have size 1. Dimensions are ordered as the elements lie in memory and joined where all arrays
allow it, so arrays without gaps make one flat loop, whatever their layout. Sums are made in one order for a
shape, on every GPU: blocks add up parts, a second kernel adds the parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.ops.expr import Expr, argument, copy
from ..cuda.runtime import Dims, Step
from ..device.device import Device
from .array_calls import lies_there
from .cuda_nest import Nest
from .cuda_text import THREADS, kernel_of
from .dimensions import Memory

Outputs = Sequence[tuple[Expr, Any]]
_WAVES = 16  # blocks a multiprocessor, of loops without sums
_PARTS = 512  # blocks that add up sums, at most
_TURNS = 4  # loads of each thread that pay for a second kernel
_ACROSS = 32  # threads of such a block that lie beside each other
_MOST = 65535  # blocks in the second dimension of a grid
_OF_NOTHING = {"Sum": 0, "Product": 1, "All": 1, "Any": 0, "Max": -math.inf, "Min": math.inf}
_TOTALS = {"float": np.float32, "double": np.float64, "long long": np.int64}


def bind_cuda(
    dev: Device, outputs: Outputs, arrays: Mapping[str, Any], join: str = "Sum"
) -> list[Step]:
    """Return the launches that evaluate expressions on ``arrays`` into the outputs.

    What is written to a dimension of size 1 is joined over it, as ``join`` of ``reduce.cuh`` tells. One kernel
    does it, with a second one where sums have parts. Results that are summed over different dimensions take a
    kernel each.
    """
    outputs = [(root, out) for root, out in outputs if not lies_there(root, out, arrays)]
    shape = np.broadcast_shapes(*(a.shape for a in arrays.values()), *(a.shape for _, a in outputs))
    if math.prod(shape) == 0:
        return [step for _, out in outputs for step in fill(dev, out, _OF_NOTHING[join])]
    groups: dict[tuple[int, ...], list[tuple[Expr, Any]]] = {}
    for expression, out in outputs:
        groups.setdefault(_summed(out.shape, shape), []).append((expression, out))
    plain = groups.pop((), [])
    ordered = list(groups.values()) or [[]]
    ordered[-1] += plain  # last: a result may lie where an operand of the sums does
    return [
        step
        for group in ordered
        if group
        for step in _Loops(dev, Nest.of(dev, group, arrays, shape, join)).steps()
    ]


def fill(dev: Device, out: Any, value: float) -> list[Step]:
    """Return the launch that writes a number to every element."""
    return bind_cuda(dev, [(Expr("const", (), value), out)], {}) if out.size else []


def _summed(own: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions over which a result is summed."""
    padded = (1,) * (len(shape) - len(own)) + own
    return tuple(i for i, (one, all_) in enumerate(zip(padded, shape, strict=True)) if one != all_)


class _Loops:
    """The kernels of one nest of loops, and how many threads they take."""

    def __init__(self, dev: Device, nest: Nest) -> None:
        self.dev, self.nest, self.runtime = dev, nest, dev.cuda
        self.width = nest.width()
        self.pieces = nest.sizes[-1] // self.width

    def steps(self, parted: bool = True) -> list[Step]:
        """Return the launches; without ``parted`` a block makes each sum alone."""
        nest = self.nest
        if not nest.sums:
            grid, block = self._flat() if len(nest.sizes) == 1 else self._grid()
            return [self._launch(grid, block, [])]
        grid, block = self._columns() if nest.sums == "columns" else self._rows()
        parts = min(_PARTS // grid[0], grid[1]) if parted else 1
        if parts <= 1:
            return [self._launch((grid[0], 1, 1), block, [])]
        count = nest.places * (nest.sizes[-1] if nest.sums == "columns" else 1)
        summed = [j for j, is_summed in enumerate(nest.summed) if is_summed]
        buffers = [self.dev.scratch((parts, count), _TOTALS[nest.total(j)]) for j in summed]
        steps = [self._launch((grid[0], parts, 1), block, buffers)]
        for part, j in zip(buffers, summed, strict=True):
            last = _Loops(self.dev, self._last(part, nest.writes[j][1], parts))
            steps += last.steps(parted=False)
        return steps

    def _launch(self, grid: Dims, block: tuple[int, int], parts: list[Any]) -> Step:
        nest = self.nest
        kernel, constants = kernel_of(nest, self.width, nest.index(), bool(parts))
        arguments = [*(m.array for m in nest.memories), *parts, *nest.sizes]
        arguments += [nest.memories[k].strides[d] for k, d in nest.strided()]
        arguments += [constant.value for constant in constants]
        return self.dev.launch(kernel, grid, (*block, 1), arguments)

    def _most(self) -> int:
        return self.runtime.properties.multiprocessors * _WAVES

    def _flat(self) -> tuple[Dims, tuple[int, int]]:
        wanted = -(-self.pieces // (THREADS * self.nest.unrolled))
        return (max(min(wanted, self._most()), 1), 1, 1), (THREADS, 1)

    def _grid(self) -> tuple[Dims, tuple[int, int]]:
        """Blocks are as wide as a row has pieces, up to all their threads, and else as high as they can be."""
        x = min(_power(self.pieces), THREADS)
        columns = -(-self.pieces // x)
        wanted = -(-self.nest.rows // (THREADS // x * self.nest.unrolled))
        height = max(min(wanted, self._most() // columns, _MOST), 1)
        return (columns, height, 1), (x, THREADS // x)

    def _columns(self) -> tuple[Dims, tuple[int, int]]:
        x = min(_power(self.pieces), _ACROSS)
        wanted = -(-self.nest.rows // (THREADS // x * self.nest.unrolled))
        return (self.nest.places * -(-self.pieces // x), wanted, 1), (x, THREADS // x)

    def _rows(self) -> tuple[Dims, tuple[int, int]]:
        """Threads read what is side by side; those that a short sum needs not have another."""
        all_, at_once = self.nest.rows * self.pieces, self.nest.unrolled
        x = max(min(_power(all_), _ACROSS), min(_power(-(-all_ // at_once)), THREADS))
        height = THREADS // x
        parts = max(all_ // (x * at_once * _TURNS), 1)
        return (-(-self.nest.places // height), parts, 1), (x, height)

    def _last(self, part: Any, k: int, parts: int) -> Nest:
        """Return the loops that add up the parts of one result."""
        nest, out = self.nest, self.nest.memories[k]
        dims = [(n, s) for n, s in zip(nest.sizes, out.strides, strict=True)]
        dims = dims[: nest.lead] + (dims[-1:] if nest.sums == "columns" else [])
        sizes = [n for n, _ in dims]
        steps = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]
        whole = math.prod(sizes)
        at = max(len(sizes) - 1, 0)  # where the dimension of the parts comes: before the innermost
        sizes.insert(at, parts)
        steps.insert(at, whole)
        strides = [s for _, s in dims]
        strides.insert(at, 0)
        memories = [
            Memory(part, self.runtime.address(part), tuple(steps)),
            Memory(out.array, out.address, tuple(strides)),
        ]
        sum_ = copy(argument("part"))
        writes = [(sum_, 1)]
        return Nest(tuple(sizes), memories, {"part": 0}, writes, at, [True], nest.join)


def _power(number: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()
