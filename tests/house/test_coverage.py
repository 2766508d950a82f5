"""The page of coverage says what is there."""

from __future__ import annotations

from pathlib import Path

from rowlock.coverage import text

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


def test_the_page_of_coverage_is_true() -> None:
    assert PAGE.read_text() == text(), "rowlock coverage > docs/coverage.md"
