"""Names are the field's words: a variable is the noun that it holds, and words that were replaced stay away."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .source import nodes

ROOT = Path(__file__).parents[2]
# These tell that a value exists, and not what it is.
PARTICIPLES = "made found held kept given told built created brought come came got gone wrote"
# Functions and classes by their old names; the field's words took their place.
OLD = """
    Alarm Area Begun Bound Edit Links Loaded Meeting Member Outbox Portion Rings Shared Solo Watch
    WatchPost Wishes differing given homes may_vanish meeting settle_threads told uncollected
"""
ROOMS = ("strategies", "graph", "executor", "cluster", "rowlock", "tests")
FOLDERS = sorted(
    {str(path.parent.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
)


def variables(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each name that is assigned, each parameter and each attribute that is assigned, and its line."""
    for node in nodes(path):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


@pytest.mark.parametrize("folder", FOLDERS)
def test_variables_are_nouns(folder: str) -> None:
    for path in sorted((ROOT / folder).glob("*.py")):
        for name, line in variables(path):
            assert name.strip("_") not in PARTICIPLES.split(), (
                f"{path.relative_to(ROOT)}:{line} names a variable {name!r}: name what it holds"
            )


def test_old_words_stay_away() -> None:
    for folder in (folder for folder in FOLDERS if not folder.startswith("tests")):
        for path in (ROOT / folder).glob("*.py"):
            for node in nodes(path):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    assert node.name not in OLD.split(), f"{path}:{node.lineno} has {node.name!r}"
