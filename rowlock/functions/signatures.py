"""Functions whose parameters differ in their order from those of others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

T = TypeVar("T")


def reordered(
    function: Callable[..., T], order: str, name: str = "", text: str = ""
) -> Callable[..., T]:
    """Return a function whose parameters come in another order, and may be fewer.

    ``order`` are their names, ``name`` and ``text`` the function's own name and documentation. It is one of the
    module that calls this.
    """
    own = signature(function)
    kind = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [own.parameters[parameter].replace(kind=kind) for parameter in order.split()]
    other = own.replace(parameters=parameters)
    own_name = name or function.__name__

    @wraps(function)
    def call(*args: Any, **settings: Any) -> T:
        try:
            values = other.bind(*args, **settings)
        except TypeError as error:
            raise TypeError(f"{own_name}() {error}") from None
        return function(**values.arguments)

    call.__name__ = call.__qualname__ = own_name
    call.__module__ = sys._getframe(1).f_globals["__name__"]
    call.__doc__ = text or function.__doc__
    call.__signature__ = other  # type: ignore[attr-defined]
    return call
