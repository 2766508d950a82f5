"""References of copies between layouts."""

from __future__ import annotations

from typing import Any

from .registry import reference


@reference("transfer_layout")
def transfer_layout(inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": inputs["X"]}
