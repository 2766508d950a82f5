"""``fluid.wrapped_decorator``: decorators that keep the name, signature and documentation of a function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any

from ..names import publish_listed

signature_safe_contextmanager = contextmanager


def wrap_decorator(decorator_func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator that does the same, and keeps names, documentation and signatures."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return update_wrapper(decorator_func(function), function)

    return decorate


__all__ = ["signature_safe_contextmanager", "wrap_decorator"]

publish_listed(__name__)
