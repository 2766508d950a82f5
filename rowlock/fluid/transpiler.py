"""``fluid.transpiler``."""

from __future__ import annotations

from typing import Any

from ..names import listing, missing
from ..strategies.log import log


def memory_optimize(
    input_program: Any,
    skip_opt_set: Any = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """Warn that nothing is left to do: memory is planned whenever a program is compiled, as in Paddle 1.8."""
    _warn("memory_optimize")


def release_memory(input_program: Any, skip_opt_set: Any = None) -> None:
    """Warn that nothing is left to do: memory is planned whenever a program is compiled, as in Paddle 1.8."""
    _warn("release_memory")


def _warn(name: str) -> None:
    log.warning(
        "fluid.%s changes nothing: memory is planned when a program is compiled. Take the call out; "
        "BuildStrategy.memory_optimize=False turns reuse off.",
        name,
    )


__all__ = ["memory_optimize", "release_memory"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
