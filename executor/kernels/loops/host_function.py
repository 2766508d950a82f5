"""Compiled forms of functions that shape rules call: see ``graph/ops/compiled.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ....graph.ops.compiled import HostFunction
from ...codegen import native

P = ParamSpec("P")
R = TypeVar("R")


def compiled(
    function: HostFunction[P, R],
) -> Callable[[Callable[P, R | None]], Callable[P, R | None]]:
    """Register the compiled form of a function, where there is a compiler."""

    def register(form: Callable[P, R | None]) -> Callable[P, R | None]:
        if native.version():
            function.compiled = form
        return form

    return register
