"""No circle of files: imports for types alone, and those inside functions, count as any other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from .source import imports

ROOT = Path(__file__).parents[2]
ROOMS = ("rowlock", "cluster", "executor", "graph", "strategies")
# Files that stand in a circle, each set one circle. These three are one structure: a block is made of
# operators and variables, a variable knows the operator that computes it, and both know their block. Upwards
# they import types alone; as one file they would be a thousand lines.
STANDING = [
    {
        "graph/program/block.py",
        "graph/program/operator.py",
        "graph/program/variable.py",
    },
]


def files() -> dict[str, Path]:
    """Return every file of the rooms by the name that it is imported by."""
    paths = {}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the names of the files that a file imports, wherever it does."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.level <= len(package):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module or "").split("."))).strip(".")
            for alias in node.names:
                name = f"{module}.{alias.name}"
                if name in known or module in known:
                    yield name if name in known else module


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of files that reach each other (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    components: list[set[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in sorted(arrows[name]):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            first = stack.index(name)
            circle = {*stack[first:]}
            del stack[first:]
            if len(circle) > 1:
                components.append(circle)

    for name in arrows:
        if name not in number:
            visit(name)
    return components


def test_files_stand_in_no_circle() -> None:
    known = files()
    arrows = {name: {*imported(path, known)} - {name} for name, path in known.items()}
    present = [{str(known[name].relative_to(ROOT)) for name in c} for c in circles(arrows)]
    new = [sorted(circle) for circle in present if circle not in STANDING]
    outdated = [sorted(circle) for circle in STANDING if circle not in present]
    assert not new, f"circles of files: {new}"
    assert not outdated, f"STANDING lists circles that are gone: {outdated}"
