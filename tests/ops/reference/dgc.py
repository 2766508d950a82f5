"""What deep gradient compression needs beside momentum."""

from __future__ import annotations

from typing import Any

from .registry import reference


@reference("rampup_limit")
def rampup_limit(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": ins["X"] + 1}
