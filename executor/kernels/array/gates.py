"""Expressions of gates (``graph/ops/gates.py``) as array calls on the rows of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from ....graph.ops import expr as e
from ....graph.ops import gates
from ....graph.ops.gates import Results
from ....graph.ops.operands import Array
from ...codegen.array_schedule import ArraySchedule, schedule
from ...device.device import Device
from ...host.numbered import Fields, Rebound

_BY_KEYWORD = ("maximum", "minimum")  # NumPy takes their third argument as another operand


def run(xp: Any, order: ArraySchedule, arrays: Mapping[str, Any]) -> None:
    """Compute the results of a schedule; ``arrays`` holds results, operands and scratch, by name."""
    for fn, operands, out in order.each:
        values = [arrays[x] if isinstance(x, str) else x for x in operands]
        if fn in _BY_KEYWORD:
            getattr(xp, fn)(*values, out=arrays[out])
        else:
            getattr(xp, fn)(*values, arrays[out])


StepOf = Callable[[Any], Results]  # a kind of cells -> what a step, or a part of one, computes


class Layout(Rebound):
    """Where operands and results stand, by name: an array, and which of the blocks of columns in it.

    ``blocks`` are the names of an array's blocks, in order; what has none is an array. That which is a ``row``
    is the same for all sequences.
    """

    def __init__(self, row: str = "", **blocks: str) -> None:
        self._blocks = {
            name: (array, k)
            for array, names in blocks.items()
            for k, name in enumerate(names.split())
        }
        self.counts = {array: len(names.split()) for array, names in blocks.items()}
        self.row = row

    def place(self, name: str) -> tuple[str, int]:
        """Return the array of an operand or of a result, and the number of its block."""
        own = self._blocks.get(name) or self._blocks.get(name.removesuffix("_out"))
        return own or (name.removesuffix("_out"), 0)


@lru_cache(1000)
def _calls(step: StepOf, kind: Any) -> tuple[ArraySchedule, tuple[str, ...]]:
    """Return the array calls of a step, and the names of its operands and results."""
    order = schedule(step(kind), ())
    names = {name for call in order.each for name in (*call.operands, call.out)}
    own = (name for name in names if isinstance(name, str) and name not in order.scratch)
    return order, tuple(sorted(own))


class CellSteps(Fields):
    """What computes ``steps`` of so many cells of up to ``rows`` sequences: array calls.

    ``a``: the operands of the op whose cells they are.
    """

    def __init__(
        self,
        dev: Device,
        layout: Layout,
        width: int,
        rows: int,
        a: Any,
        steps: Iterable[tuple[StepOf, Any]],
    ) -> None:
        self._xp, self._layout, self._width = dev.xp, layout, width
        scratch = {name for step, kind in steps for name in _calls(step, kind)[0].scratch}
        self._scratch = tuple(sorted(scratch))
        self._work = [dev.scratch((rows, width), a.input.dtype) for _ in scratch]

    def __call__(self, step: StepOf, kind: Any, **arrays: Array) -> None:
        """Compute a step of cells of a kind on arrays, by name, of n rows."""
        (order, names), width = _calls(step, kind), self._width
        rows = len(next(array for name, array in arrays.items() if name != self._layout.row))
        places = {name: array[:rows] for name, array in zip(self._scratch, self._work, strict=True)}
        for name in names:
            array, k = self._layout.place(name)
            places[name] = arrays[array][..., k * width : (k + 1) * width]
        run(self._xp, order, places)


@lru_cache(None)
def _activation(kind: str) -> ArraySchedule:
    return schedule({"x_out": gates.ACTIVATIONS[kind](e.argument("x"))}, ())


@lru_cache(None)
def _slope(kind: str) -> ArraySchedule:
    d, result = e.argument("d"), e.argument("result")
    return schedule({"d_out": gates.times_slope(kind, d, result)}, ())


def activate(xp: Any, kind: str, x: Array) -> None:
    """Replace ``x`` by its activation of a kind."""
    if kind != "identity":
        run(xp, _activation(kind), {"x": x, "x_out": x})


def times_slope(xp: Any, kind: str, result: Array, d: Array, work: Array) -> None:
    """Multiply a gradient by the slope of an activation that returned ``result``; ``work`` is memory."""
    if kind != "identity":
        run(xp, _slope(kind), {"d": d, "d_out": d, "result": result, "scratch0": work})
