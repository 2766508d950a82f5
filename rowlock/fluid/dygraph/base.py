"""``fluid.dygraph.base``: there is no imperative mode, and what begins one is refused."""

from __future__ import annotations

from typing import Any, NoReturn

from ...names import publish_definitions
from ...strategies.errors import Unsupported


def enabled() -> bool:
    """Return False: there is no imperative mode."""
    return False


def guard(place: Any = None) -> NoReturn:
    """Refuse.

    Raises:
        Unsupported: there is no imperative mode.
    """
    _refuse("guard")


def to_variable(value: Any, name: str | None = None, zero_copy: Any = None) -> NoReturn:
    """Refuse.

    Raises:
        Unsupported: there is no imperative mode.
    """
    _refuse("to_variable")


def _refuse(name: str) -> NoReturn:
    raise Unsupported(
        f"fluid.dygraph.{name}: Rowlock runs static-graph programs; there is no imperative (dygraph) mode. "
        f"Declare inputs by fluid.data, build a program from layers, and feed arrays to Executor.run."
    )


publish_definitions(__name__)
