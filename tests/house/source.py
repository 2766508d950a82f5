"""The syntax trees of files, each parsed once however many tests read it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return every node of a file."""
    return list(ast.walk(tree(path)))


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in nodes(path) if isinstance(node, ast.Import | ast.ImportFrom)]
