"""Folders of a room stand in one order: each imports only what stands after it, and says what it is for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from .source import imports, tree

ROOT = Path(__file__).parents[2]
# From what users meet down to what stands on nothing. Folders on one line do not import each other; ``.`` is
# what lies in the room itself.
ORDER = {
    "executor": """
        inference
        saving metrics loading
        .
        servers
        driver
        feed gang
        replica
        plan
        kernels
        codegen
        device
        simulated
        cuda
        host rpc
    """,
    "graph": """
        .
        report
        lowering
        passes
        ir
        transpiler
        training
        layers
        program
        ops
    """,
    "cluster": """
        fleet
        .
        pserver
        ray
        channel collective
        primitives
    """,
}
FILES = sorted(path for room in ORDER for path in (ROOT / room).rglob("*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def floors(room: str) -> dict[str, int]:
    """Return each folder's line in the order of its room."""
    lines = ORDER[room].split("\n")[1:]
    return {folder: number for number, line in enumerate(lines) for folder in line.split()}


@cache
def folder_of(parts: tuple[str, ...]) -> str:
    return parts[1] if len(parts) > 1 and (ROOT / parts[0] / parts[1]).is_dir() else "."


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield what a file imports of its own room, as parts of a path."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in imports(path):
        if not isinstance(node, ast.ImportFrom) or not 0 < node.level <= len(package):
            continue
        base = (*package[: len(package) - node.level + 1], *(node.module or "").split("."))
        parts = tuple(part for part in base if part)
        for alias in node.names if len(parts) == 1 else ():
            yield (*parts, alias.name)
        if len(parts) > 1 and parts[0] == package[0]:
            yield parts


def test_folders_import_downwards() -> None:
    wrong = []
    for path in FILES:
        parts = path.relative_to(ROOT).parts
        floor, own = floors(parts[0]), folder_of(parts)
        for target in imported(path):
            other = folder_of(target)
            if other == own:
                continue
            if floor[other] <= floor[own]:
                wrong.append(f"{name(path)} imports {'.'.join(target)} upwards")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("room", ORDER)
def test_every_folder_has_its_place_and_says_what_it_is_for(room: str) -> None:
    folders = {p.parent.name for p in (ROOT / room).glob("*/__init__.py")}
    assert folders == set(floors(room)) - {"."}
    for path in (ROOT / room).rglob("__init__.py"):
        assert ast.get_docstring(tree(path)), f"{name(path)} says nothing"
