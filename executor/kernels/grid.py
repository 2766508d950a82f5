"""The grid of ops and back ends: what has a kernel where, and why a cell is empty."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from functools import partial
from typing import Any, NamedTuple

from ...graph.ops.collective import COLLECTIVES
from ...graph.ops.registry import OPS
from .array.optimize import SINGLES
from .back_ends import BACK_ENDS, LIBRARIES
from .registry import KERNELS
from .xla.lowering import DIFFERENTIATED, LOWERINGS

KERNEL, EXPRESSION, FORMULA, ABSENT, EMPTY = "K", "E", "F", "-", "."
MARKS = {
    KERNEL: "a kernel",
    EXPRESSION: "made from the op's expression",
    FORMULA: "made from the op's formula",
    ABSENT: "there is one, but not the library",
    EMPTY: "none: rowlock ops OP says why",
}
COLUMNS = tuple(name for module in LIBRARIES for name in (module, *LIBRARIES[module]))
_COLUMN = 5  # characters
_IN_REGIONS = "in regions only (build_cinn_pass)"


class Cell(NamedTuple):
    """One of ``MARKS``, what limits it or why it is empty, and where the kernel or expression stands."""

    mark: str
    why: str = ""
    where: str = ""


def row(op_type: str, here: Collection[str]) -> dict[str, Cell]:
    """Return the cells of an op by back end; ``here`` are the back ends that can be used."""
    cells = {name: _cell(op_type, name) for name in COLUMNS}
    return {
        name: _empty(op_type, name, cells) if cell is None else _limited(op_type, name, cell, here)
        for name, cell in cells.items()
    }


def table(here: Collection[str], op_types: Collection[str]) -> str:
    """Return the grid as lines of at most 80 characters; names of back ends stand in two lines."""
    width = max(map(len, op_types)) + 1
    lines = []
    for side in (0, 1):
        line = "" if side else "op"
        for k in range(side, len(COLUMNS), 2):
            line = line.ljust(width + _COLUMN * k) + COLUMNS[k]
        lines.append(line)
    for op_type in op_types:
        marks = "".join(cell.mark.ljust(_COLUMN) for cell in row(op_type, here).values())
        lines.append(f"{op_type:<{width}}{marks}".rstrip())
    return "\n".join([*lines, "", *(f"{mark}  {what}" for mark, what in MARKS.items())])


def place(function: Any) -> str:
    """Return the file and line where a function stands."""
    while isinstance(function, partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, partial) else inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


def _cell(op_type: str, name: str) -> Cell | None:
    """Return the cell of a back end that computes an op, wherever its library is."""
    op, kernel = OPS[op_type], KERNELS.get((op_type, name))
    lowered = LOWERINGS.get(DIFFERENTIATED.get(op_type, op_type)) if name == "xla" else None
    update = OPS[SINGLES.get(op_type, op_type)].update
    why = _IN_REGIONS if name == "xla" and kernel is None else ""
    if kernel is None and lowered is None:
        named = name in BACK_ENDS or (name == "xla" and not op.random)
        if op.formula is not None and (name in BACK_ENDS or name == "xla"):
            return Cell(FORMULA, why, place(op.formula))
        expressible = op.scalar is not None and named
        return Cell(EXPRESSION, why, place(op.scalar)) if expressible else None
    if update is not None:
        return Cell(EXPRESSION, why, place(update.rule))
    function = kernel.function if kernel is not None else lowered[0] if lowered else None
    maker = getattr(function, "__qualname__", "")
    if op.formula is not None and maker.startswith("_add."):
        return Cell(FORMULA, why, place(op.formula))
    compiled = maker.startswith("_expression.")
    return (
        Cell(EXPRESSION, why, place(op.scalar)) if compiled else Cell(KERNEL, why, place(function))
    )


def _limited(op_type: str, name: str, cell: Cell, here: Collection[str]) -> Cell:
    """Return a cell with what keeps the back end from computing the op."""
    kernel = KERNELS.get((op_type, name))
    needs = [] if kernel is None else [library for library in kernel.needs if library not in here]
    if name not in here:
        return cell._replace(mark=ABSENT, why="library not here")
    if needs:
        return cell._replace(mark=ABSENT, why=f"calls {', '.join(needs)}, not here")
    if kernel is not None and kernel.prefer_loops:
        return cell._replace(why="leaves to compiled loops what these can compute")
    return cell


def _empty(op_type: str, name: str, cells: dict[str, Cell | None]) -> Cell:
    """Return the cell of a back end that has nothing for an op: it says what computes that instead."""
    if op_type in COLLECTIVES:
        return Cell(EMPTY, "no kernel: the group of replicas does it")
    if name == "xla":
        return Cell(EMPTY, "no lowering: it stays outside regions")
    module = next(m for m, names in LIBRARIES.items() if name in (m, *names))
    others = (*LIBRARIES[module], module)
    behind = others[others.index(name) + 1 :]
    for other in behind:
        cell = cells[other]
        if cell is not None and other != "xla":
            what = {EXPRESSION: "its expression", FORMULA: "its formula"}.get(cell.mark, "it")
            return Cell(EMPTY, f"no kernel: {other} computes {what}")
    return Cell(EMPTY, "no kernel: it runs on the host beside each GPU")
