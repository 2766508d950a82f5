"""Steps of recurrent cells (``graph/ops/gates.py``) in one compiled pass each.

Everything is float32 and contiguous; array calls compute what is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ....graph.ops.operands import Array, Operands
from ...codegen import native
from ...codegen.scalar_math import definitions
from ...codegen.scalar_source import Writer
from ...device.device import Device
from ...host.numbered import Rebound
from ...host.writes import address
from ..array.gates import CellSteps, Layout, StepOf


class _Pass:
    """A compiled step, called with other addresses each time."""

    def __init__(self, step: StepOf, kind: Any, layout: Layout) -> None:
        source, self._names = _source(step, kind, layout)
        self._rows_of = next(name for name in self._names if name != layout.row)
        self._words = np.zeros(len(self._names) + 2, np.int64)
        self._call = native.launch(source, self._words)

    def __call__(self, width: int, arrays: dict[str, Array]) -> None:
        addresses = [address(arrays[name]) for name in self._names]
        self._words[:] = [*addresses, len(arrays[self._rows_of]), width]
        self._call()


def _source(step: StepOf, kind: Any, layout: Layout) -> tuple[str, list[str]]:
    """Return the source of a pass over the cells of a step, and the names of its arrays.

    Each block of columns is a memory of its own: the loop becomes vectors.
    """
    results = step(kind)
    reads = sorted(frozenset().union(*(result.reads for result in results.values())))
    places = list(dict.fromkeys(map(layout.place, (*reads, *results))))
    arrays = list(dict.fromkeys(array for array, _ in places))

    def at(name: str) -> str:
        place = layout.place(name)
        row = f"r * {layout.counts.get(place[0], 1)} * width + i"
        return f"m{places.index(place)}, {'i' if place[0] == layout.row else row}"

    writer = Writer({name: f"x_{name}" for name in reads})
    values = {name: writer.number(result) for name, result in results.items()}
    lines = [f"x_{name} = load({at(name)})" for name in reads]
    lines += writer.lines
    lines += [f"store({at(name)}, {value})" for name, value in values.items()]
    count = len(arrays)
    head = ["def run(words):", f"    count, width = words[{count}], words[{count + 1}]"]
    head += [f"    c{k} = np.float32({value!r})" for k, value in enumerate(writer.constants)]
    head += [
        f"    m{k} = f32(words[{arrays.index(array)}] + {4 * block} * width)"
        for k, (array, block) in enumerate(places)
    ]
    head += ["    for r in range(count):", "        for i in range(width):"]
    text = "\n".join([*head, *(f"            {line}" for line in lines), ""])
    return definitions(text) + text, arrays


class CompiledSteps(Rebound):
    """Computes steps of so many cells, each in a pass. Nothing in it depends on numbers of rows."""

    def __init__(self, layout: Layout, width: int) -> None:
        self._layout, self._width = layout, width
        self._passes: dict[tuple[StepOf, Any], _Pass] = {}

    def __call__(self, step: StepOf, kind: Any, **arrays: Array) -> None:
        """Compute a step of cells of a kind on arrays, by name, of n rows."""
        own = self._passes.get((step, kind))
        if own is None:
            own = self._passes[step, kind] = _Pass(step, kind, self._layout)
        own(self._width, arrays)


def compiled_steps(
    dev: Device,
    layout: Layout,
    width: int,
    rows: int,
    a: Operands,
    steps: Iterable[tuple[StepOf, Any]],
) -> CellSteps | CompiledSteps:
    """Return what computes steps of an op's cells, in passes where these can (see :class:`CellSteps`)."""
    arrays = [each for each in vars(a).values() if isinstance(each, np.ndarray)]
    floats = {each.dtype for each in arrays if each.dtype.kind == "f"}
    if floats != {np.dtype(np.float32)} or not all(each.flags.c_contiguous for each in arrays):
        return CellSteps(dev, layout, width, rows, a, steps)
    key = CompiledSteps, layout, width
    return dev.rebound(key, lambda: CompiledSteps(layout, width))
