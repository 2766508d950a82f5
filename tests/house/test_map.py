"""The map names files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_file_on_the_map_exists() -> None:
    text = (ROOT / "docs" / "map.md").read_text()
    for path in re.findall(
        r"`((?:graph|executor|cluster|strategies|tests|rowlock)/[\w/.]+\.py)`", text
    ):
        assert (ROOT / path).exists(), path


def test_functions_named_after_a_file_are_in_it() -> None:
    text = (ROOT / "docs" / "map.md").read_text()
    pairs = re.findall(r"`([\w/]+\.py)`\s+`(?:\w+\.)?(\w+)`", text)
    assert len(pairs) > 8
    for path, function in pairs:
        assert re.search(rf"\b{function}\b", (ROOT / path).read_text()), (path, function)
