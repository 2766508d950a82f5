"""The table of references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Reference = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]
REFERENCE: dict[str, Reference] = {}


def reference(*op_types: str) -> Callable[[Reference], Reference]:
    def register(function: Reference) -> Reference:
        for op_type in op_types:
            REFERENCE[op_type] = function
        return function

    return register


def unary(op_type: str, function: Callable[..., Any]) -> None:
    REFERENCE[op_type] = lambda ins, attrs: {"Out": function(ins["X"], attrs)}


def binary(op_type: str, function: Callable[..., Any]) -> None:
    def run(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
        x, y = ins["X"], ins["Y"]
        if attrs.get("axis", -1) != -1:
            y = y.reshape(y.shape + (1,) * (x.ndim - attrs["axis"] - y.ndim))
        return {"Out": function(x, y)}

    REFERENCE[op_type] = run
