"""The syntax trees of files, each parsed once however many tests read it.

Trees last, so that searches for garbage while they grow would take most of the time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rowlock.strategies.garbage import gc_paused


@cache
def tree(path: Path) -> ast.Module:
    with gc_paused():
        return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return every node of a file."""
    with gc_paused():
        return list(ast.walk(tree(path)))


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    return [
        node for node in statements(tree(path)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a block, and of the blocks in it; no expressions, which have none."""
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        for inner in getattr(node, block, ()):
            yield inner
            yield from statements(inner)
