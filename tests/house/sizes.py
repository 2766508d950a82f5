"""Print the longest files and functions: a place to think at, not a rule."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.source import nodes
from tests.house.test_house import FILES, name

SHOWN = 5


def functions() -> Iterator[tuple[int, str]]:
    """Yield the lines of every function's body, and where it stands."""
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                body = node.end_lineno - node.body[0].lineno + 1
                yield body, f"{name(path)}:{node.lineno} {node.name}"


def main() -> None:
    """Print the tree's size, and the longest of it."""
    sizes = sorted(((p.read_text().count("\n"), name(p)) for p in FILES), reverse=True)
    print(f"{sum(lines for lines, _ in sizes):,} lines in {len(sizes)} files. Longest files:")
    print("  " + ", ".join(f"{where} {lines}" for lines, where in sizes[:SHOWN]))
    longest = sorted(functions(), reverse=True)[:SHOWN]
    print("Longest functions:\n  " + ", ".join(f"{where} {lines}" for lines, where in longest))


if __name__ == "__main__":
    main()
