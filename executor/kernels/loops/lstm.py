"""The cells of an LSTM in one compiled pass over a step's gates, forwards and backwards.

Everything is float32 and contiguous; NumPy computes what is not (``array/lstm.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ....graph.ops.gates import Cells, Results, lstm_step, lstm_step_back
from ....graph.ops.lstm import LstmOperands
from ....graph.ops.operands import Array
from ...codegen import native
from ...codegen.scalar_math import definitions
from ...codegen.scalar_source import Writer
from ...device.device import Device
from ..array.lstm import CellStep

# Where operands and results lie: pointer, index, and the number of the memory; the _MEMORY do not overlap.
# They are loaded in this order; the compiler's choice of fused multiply-adds depends on it.
_MEMORY = 9
_FORWARD = {
    "before": ("before", "at", 1),
    "candidate": ("gates", "gate", 0),
    "put": ("puts", "gate", 6),
    "keep": ("keeps", "gate", 7),
    "out": ("outs", "gate", 8),
    "cell": ("cell", "at", 2),
    "active": ("active", "at", 3),
    "hidden": ("hidden", "at", 4),
}
_GATES = ("candidate", "put", "keep", "out")
_BACKWARD = {
    "before": ("before", "at", 1),
    **{name: ("gates", f"gate + {k} * width", 0) for k, name in enumerate(_GATES)},
    **{f"d_{name}": ("d_gates", f"gate + {k} * width", 6) for k, name in enumerate(_GATES)},
    "active": ("active", "at", 3),
    "d_hidden": ("d_hidden", "at", 4),
    "d_cell": ("d_cell", "at", 5),
    "cell": ("cell", "at", 2),
}
_HEAD = """
def run(words):
    {names} = {pointers}
    count, width = words[{sizes}], words[{sizes} + 1]
    puts = f32(words[0] + 4 * width)  # columns of the gates as memories of their own: the loop becomes vectors
    keeps = f32(words[0] + 8 * width)
    outs = f32(words[0] + 12 * width)
    for r in range(count):
        for i in range(width):
            at, gate = r * width + i, r * 4 * width + i
"""


def _source(
    names: str, places: Mapping[str, tuple[str, str, int]], results: Results, absent: set[str]
) -> str:
    """Return the source of a pass over arrays of these names that computes results of each cell.

    Operands that are absent are 0.
    """
    pointers = names.split(", ")
    head = _HEAD.format(
        names=names,
        pointers=", ".join(f"f32(words[{k}])" for k, _ in enumerate(pointers)),
        sizes=len(pointers),
    )
    bias = pointers.index("bias")
    weights = {f"w_{n}": ("bias", f"{k} * width + i", bias) for k, n in enumerate(_GATES[1:], 4)}
    places = {**weights, **places}
    reads = frozenset().union(*(result.reads for result in results.values()))
    read = [name for name in places if name in reads]
    writer = Writer({name: f"x_{name}" for name in read})
    values = {name: writer.number(result) for name, result in results.items()}
    lines = [
        f"x_{name} = " + ("np.float32(0.0)" if name in absent else f"load({_place(places[name])})")
        for name in read
    ]
    lines += [f"c{k} = np.float32({value!r})" for k, value in enumerate(writer.constants)]
    lines += writer.lines
    for name, value in values.items():
        pointer, index, memory = places.get(name) or places[name.removesuffix("_out")]
        lines.append(f"store({pointer}, {index}, {value}, {memory}, {_MEMORY})")
    text = head + "".join(f"            {line}\n" for line in lines)
    return definitions(text) + text


def _place(place: tuple[str, str, int]) -> str:
    return f"{place[0]}, {place[1]}, {place[2]}, {_MEMORY}"


class _Pass:
    """A compiled pass, called with other addresses each time."""

    def __init__(self, source: str, count: int) -> None:
        self._words = np.zeros(count + 2, np.int64)
        self._call = native.launch(source, self._words)

    def __call__(self, rows: int, width: int, *arrays: Array) -> None:
        self._words[:] = [*(array.ctypes.data for array in arrays), rows, width]
        self._call()


class CompiledStep(CellStep):
    """A step of an LSTM, and a step back, in one pass each."""

    def __init__(self, dev: Device, a: LstmOperands) -> None:
        super().__init__(dev, a)
        self._passes: dict[tuple[str, bool], _Pass] = {}
        self._plain = all(
            array is None or (array.flags.c_contiguous and array.dtype == np.float32)
            for array in (a.bias, *(vars(a).get(n) for n in ("batch_gate", "batch_cell_pre_act")))
        )

    def _pass(
        self,
        names: str,
        places: Mapping[str, tuple[str, str, int]],
        step: Callable[[Cells], Results],
        before: bool,
    ) -> _Pass:
        if (names, before) not in self._passes:
            kinds = self.kinds[before]
            absent = set() if before else {"before"}
            absent |= set() if kinds.peepholes else {"w_put", "w_keep", "w_out"}
            results = step(kinds._replace(peepholes=True, before=True))
            source = _source(names, places, results, absent)
            self._passes[names, before] = _Pass(source, len(names.split(", ")))
        return self._passes[names, before]

    def forward(
        self, gates: Array, before: Array | None, cell: Array, active: Array, hidden: Array
    ) -> None:
        """Compute gates in place from their sums, the cells, their activation and the output."""
        if not self._plain:
            super().forward(gates, before, cell, active, hidden)
            return
        names = "gates, before, cell, active, hidden, bias"
        step_kernel = self._pass(names, _FORWARD, lstm_step, before is not None)
        c = cell if before is None else before
        step_kernel(len(gates), self.width, gates, c, cell, active, hidden, self.bias)

    def backward(
        self,
        gates: Array,
        before: Array | None,
        cell: Array,
        active: Array,
        d_hidden: Array,
        d_cell: Array,
        d_gates: Array,
    ) -> None:
        """Compute the gradients of the gates' sums; the cells' gradient becomes that of the previous cells."""
        if not self._plain:
            super().backward(gates, before, cell, active, d_hidden, d_cell, d_gates)
            return
        names = "gates, before, cell, active, d_hidden, d_cell, d_gates, bias"
        step_kernel = self._pass(names, _BACKWARD, lstm_step_back, before is not None)
        c = cell if before is None else before
        step_kernel(
            len(gates), self.width, gates, c, cell, active, d_hidden, d_cell, d_gates, self.bias
        )
