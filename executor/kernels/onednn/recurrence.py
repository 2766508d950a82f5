"""LSTM and GRU over sequences: the products of steps, by a matrix that is packed once in a run.

Other libraries pack it for each product, which for a few rows takes longer than to multiply.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....graph.ops.operands import Array
from ....strategies.types import VarType
from ...device.device import Device
from ...host.numbered import Rebound
from ..array import gru, lstm
from ..array.time_steps import Factor, Means
from ..loops.cells import compiled_steps
from ..registry import Step, kernel, of_types
from .linear import matmul_of
from .primitive import Format, Layout, Memory, layout_of

_CALL_BYTES = 8 << 10  # as measured: objects of the library for its memory, mostly
_SIZES = 32  # numbers of rows that are compiled for, at most: others take the next larger


class _Products(Rebound):
    """Products of up to ``rows`` rows by a matrix, and its packing, all of them bound to scratch memory."""

    def __init__(self, dev: Device, sizes: tuple[int, int], rows: int, dtype: Any) -> None:
        self.unit = -(-rows // _SIZES)
        most = -(-rows // self.unit) * self.unit
        self.matrix = dev.scratch(sizes, dtype)
        self.result = dev.scratch((most, sizes[1]), dtype)
        self.left = dev.scratch((most, sizes[0]), dtype)
        self.packs: list[Step] = []
        self.calls: list[Step] = []
        packs: list[tuple[Format, Memory]] = []
        for n in range(self.unit, most + 1, self.unit):
            left, out = self.left[:n], self.result[:n]
            primitive = matmul_of(layout_of(left), Layout(sizes), None, layout_of(out), ())
            wanted = primitive.format("weights")
            memory = next((m for f, m in packs if f.equals(wanted)), None)
            if memory is None:
                memory, pack = primitive.pack(dev, "weights", self.matrix)
                packs.append((wanted, memory))
                self.packs.append(pack)
            self.calls += primitive.bind(dev, {"src": left, "weights": memory}, {"dst": out})
        self.nbytes = len(self.calls) * _CALL_BYTES


class PackedFactor(Factor):
    """A matrix in the order that the library likes for a product with some number of rows."""

    def __init__(
        self,
        dev: Device,
        source: Callable[[], Array],
        sizes: tuple[int, int],
        rows: int,
        dtype: Any,
    ) -> None:
        make = partial(_Products, dev, sizes, rows, dtype)
        self._products = products = dev.rebound((_Products, sizes, rows, dtype), make)
        self.xp, self._source = dev.xp, source
        self.matrix, self.result = products.matrix, products.result

    def renew(self) -> None:
        """Copy and pack the matrix as it is now."""
        super().renew()
        for pack in self._products.packs:
            pack()

    def __call__(self, left: Array) -> Array:
        products, count = self._products, len(left)
        products.left[:count] = left
        products.calls[-(-count // products.unit) - 1]()
        return self.result[:count]


_TYPES = of_types(VarType.FP32, VarType.INT64)
_on = partial(kernel, on=("onednn",), takes=_TYPES, needs=("llvm",), nonempty=True)


_means = Means(PackedFactor, compiled_steps)
lstm.register(_on, _means)
gru.register(_on, _means)
