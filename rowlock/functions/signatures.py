"""Functions whose parameters differ in their order from those of others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

T = TypeVar("T")


def reordered(
    function: Callable[..., T], order: str, name: str = "", text: str = "", **defaults: Any
) -> Callable[..., T]:
    """Return a function whose parameters come in another order, and may be fewer.

    ``order`` are their names, ``new=old`` where one is renamed; ``defaults`` are default values that differ.
    ``name`` and ``text`` are its own name and documentation. It is one of the module that calls this.
    """
    own = signature(function)
    kind = Parameter.POSITIONAL_OR_KEYWORD
    names = {new: old or new for new, _, old in (word.partition("=") for word in order.split())}
    parameters = [own.parameters[old].replace(name=new, kind=kind) for new, old in names.items()]
    parameters = [p.replace(default=defaults.get(p.name, p.default)) for p in parameters]
    other = own.replace(parameters=parameters)
    own_name = name or function.__name__

    @wraps(function)
    def call(*args: Any, **settings: Any) -> T:
        try:
            values = other.bind(*args, **settings)
        except TypeError as error:
            raise TypeError(f"{own_name}() {error}") from None
        arguments = {**defaults, **values.arguments}
        return function(**{names[new]: value for new, value in arguments.items()})

    call.__name__ = call.__qualname__ = own_name
    call.__module__ = sys._getframe(1).f_globals["__name__"]
    call.__doc__ = text or function.__doc__
    call.__signature__ = other  # type: ignore[attr-defined]
    return call
