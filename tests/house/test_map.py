"""The map, and what folders say of themselves, name files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("graph", "executor", "cluster", "strategies", "tests", "rowlock", "benchmarks")
PAGES = [ROOT / "docs" / "map.md", ROOT / "benchmarks" / "README.md"]
PAGES += [p for room in ROOMS for p in sorted((ROOT / room).rglob("__init__.py"))]
STEMS = {p.name for room in ROOMS for p in (ROOT / room).rglob("*.py")}
PATH = rf"((?:{'|'.join(ROOMS)})/[\w/.]+\.(?:py|cuh))"


def told(path: Path) -> str:
    """Return a page, or what a folder says of itself, with backticks as in Markdown."""
    return path.read_text().replace("``", "`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_functions_exist(page: Path) -> None:
    text = told(page)
    for path in re.findall(rf"`{PATH}`", text):
        assert (ROOT / path).exists(), path
    for stem in re.findall(r"`(\w+\.py)`", text):
        assert stem in STEMS, stem
    for path, function in re.findall(rf"`{PATH}`\s+`(?:\w+\.)?(\w+)`", text):
        assert re.search(rf"\b{function}\b", (ROOT / path).read_text()), (path, function)


def test_the_map_is_short_and_leads_to_functions() -> None:
    text = told(PAGES[0])
    assert len(text.split()) <= 700
    assert len(re.findall(rf"`{PATH}`\s+`(?:\w+\.)?(\w+)`", text)) >= 16
