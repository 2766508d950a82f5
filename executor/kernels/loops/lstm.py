"""The cells of an LSTM in one compiled pass over a step's gates, forwards and backwards.

Everything is float32 and contiguous; NumPy computes what is not (``array/lstm.py``).
"""

from __future__ import annotations

import numpy as np

from ....graph.ops.lstm import LstmOperands
from ....graph.ops.operands import Array
from ...codegen import native
from ...codegen.scalar_math import definitions
from ...device.device import Device
from ..array.lstm import Cells

_ONE, _HALF = "np.float32(1.0)", "np.float32(0.5)"
_ACTS = {
    "sigmoid": f"fma({_HALF}, tanh_({_HALF} * ({{x}})), {_HALF})",
    "tanh": "tanh_({x})",
    "relu": "select(({x}) > np.float32(0.0), {x}, np.float32(0.0))",
    "identity": "({x})",
}
_SLOPES = {
    "sigmoid": f"(({_ONE} - {{y}}) * {{y}})",
    "tanh": f"({_ONE} - {{y}} * {{y}})",
    "relu": f"select({{y}} > np.float32(0.0), {_ONE}, np.float32(0.0))",
    "identity": _ONE,
}
_HEAD = """
def run(words):
    {names} = {pointers}
    count, width = words[{sizes}], words[{sizes} + 1]
    puts = f32(words[0] + 4 * width)  # columns of the gates are places of their own: so the loop is a vector's
    keeps = f32(words[0] + 8 * width)
    outs = f32(words[0] + 12 * width)
    for r in range(count):
        for i in range(width):
            at, gate = r * width + i, r * 4 * width + i
"""
_PEEPHOLES = """
            w_put = load(bias, 4 * width + i, {bias}, 9)
            w_keep = load(bias, 5 * width + i, {bias}, 9)
            w_out = load(bias, 6 * width + i, {bias}, 9)
"""
_NONE = """
            w_put = w_keep = w_out = np.float32(0.0)
"""
_FORWARD = """
            c = {before}
            candidate = {candidate}
            put = {put}
            keep = {keep}
            s = {clipped}
            out = {out}
            a = {active}
            store(gates, gate, candidate, 0, 9)
            store(puts, gate, put, 6, 9)
            store(keeps, gate, keep, 7, 9)
            store(outs, gate, out, 8, 9)
            store(cell, at, s, 2, 9)
            store(active, at, a, 3, 9)
            store(hidden, at, out * a, 4, 9)
"""
_BACKWARD = """
            c = {before}
            candidate = load(gates, gate, 0, 9)
            put = load(gates, gate + width, 0, 9)
            keep = load(gates, gate + 2 * width, 0, 9)
            out = load(gates, gate + 3 * width, 0, 9)
            a = load(active, at, 3, 9)
            d = load(d_hidden, at, 4, 9)
            d_out = d * a * {out}
            s = load(d_cell, at, 5, 9) + d * out * {active} + d_out * w_out
            s = {clipped}
            d_put = s * candidate * {put}
            d_keep = s * c * {keep}
            store(d_gates, gate, s * put * {candidate}, 6, 9)
            store(d_gates, gate + width, d_put, 6, 9)
            store(d_gates, gate + 2 * width, d_keep, 6, 9)
            store(d_gates, gate + 3 * width, d_out, 6, 9)
            store(d_cell, at, s * keep + d_put * w_put + d_keep * w_keep, 5, 9)
"""


def _source(names: str, body: str, peepholes: bool) -> str:
    pointers = names.split(", ")
    head = _HEAD.format(
        names=names,
        pointers=", ".join(f"f32(words[{k}])" for k, _ in enumerate(pointers)),
        sizes=len(pointers),
    )
    weights = _PEEPHOLES.format(bias=pointers.index("bias")) if peepholes else _NONE
    text = head + weights + body
    return definitions(text) + text


class _Pass:
    """A compiled pass, called with other addresses each time."""

    def __init__(self, source: str, count: int) -> None:
        self._words = np.zeros(count + 2, np.int64)
        self._call = native.launch(source, self._words)

    def __call__(self, rows: int, width: int, *arrays: Array) -> None:
        self._words[:] = [*(array.ctypes.data for array in arrays), rows, width]
        self._call()


class CompiledCells(Cells):
    """The arithmetic of a step, and of a step back, in one pass each."""

    def __init__(self, dev: Device, a: LstmOperands) -> None:
        super().__init__(dev, a)
        self._passes: dict[tuple[str, bool], _Pass] = {}
        self._plain = all(
            array is None or (array.flags.c_contiguous and array.dtype == np.float32)
            for array in (a.bias, *(vars(a).get(n) for n in ("batch_gate", "batch_cell_pre_act")))
        )

    def _pass(self, names: str, body: str, has_before: bool, clipped: str) -> _Pass:
        key = (names, has_before)
        if key not in self._passes:
            kinds = {"put": self.gate, "keep": self.gate, "out": self.gate}
            kinds |= {"candidate": self.candidate, "active": self.cell}
            x = {
                "candidate": "load(gates, gate, 0, 9)",
                "put": "load(puts, gate, 6, 9) + w_put * c",
                "keep": "load(keeps, gate, 7, 9) + w_keep * c",
                "out": "load(outs, gate, 8, 9) + w_out * s",
                "active": "s",
            }
            y = {name: "a" if name == "active" else name for name in kinds}
            texts = {
                name: _ACTS[kind].format(x=x[name])
                if body is _FORWARD
                else _SLOPES[kind].format(y=y[name])
                for name, kind in kinds.items()
            }
            before = "load(before, at, 1, 9)" if has_before else "np.float32(0.0)"
            source = _source(
                names, body.format(before=before, clipped=clipped, **texts), self.use_peepholes
            )
            self._passes[key] = _Pass(source, len(names.split(", ")))
        return self._passes[key]

    def forward(
        self, gates: Array, before: Array | None, cell: Array, active: Array, hidden: Array
    ) -> None:
        """Compute gates in place from their sums, the cells, their activation and what goes out."""
        if not self._plain:
            super().forward(gates, before, cell, active, hidden)
            return
        limit = f"np.float32({self.clip!r})"
        clipped = total = "candidate * put + keep * c"
        if self.clip > 0:
            clipped = f"min(max({total}, -{limit}), {limit})"
        names = "gates, before, cell, active, hidden, bias"
        step_kernel = self._pass(names, _FORWARD, before is not None, clipped)
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
        """Compute the gradients of the gates' sums; that of the cells becomes that of those before."""
        if not self._plain:
            super().backward(gates, before, cell, active, d_hidden, d_cell, d_gates)
            return
        clipped = "s"
        if self.clip > 0:
            inside = f"size_of(load(cell, at, 2, 9)) < np.float32({self.clip!r})"
            clipped = f"select({inside}, s, np.float32(0.0))"
        names = "gates, before, cell, active, d_hidden, d_cell, d_gates, bias"
        step_kernel = self._pass(names, _BACKWARD, before is not None, clipped)
        c = cell if before is None else before
        step_kernel(
            len(gates), self.width, gates, c, cell, active, d_hidden, d_cell, d_gates, self.bias
        )
