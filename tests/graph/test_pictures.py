"""debug_graphviz_path: Paddle's three pictures, and the ops it fuses."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import rowlock
import rowlock.fluid as fluid
from tests.reference.pictures import FILE, NETS, PICTURES, drawn

PADDLE = json.loads(FILE.read_text())
FUSED = "fused_elemwise_activation_grad"


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    with rowlock.cluster(launcher="threads"):
        return {name: drawn(fluid, name) for name in NETS}


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("name", NETS)
def test_boxes_and_arrows_are_paddles(ours: dict[str, Any], name: str, picture: str) -> None:
    """One arrow is missing: the fused gradient needs no X, so it does not read it."""
    ours, expected = ours[name][picture], PADDLE[name][picture]
    assert ours["boxes"] == expected["boxes"]
    arrows = Counter(expected["arrows"]) - Counter(ours["arrows"])
    assert not Counter(ours["arrows"]) - Counter(expected["arrows"])
    assert all(arrow.endswith(f"-> {FUSED}") for arrow in arrows)
    if picture == "original_graph":
        assert not arrows
