"""Functions of host arrays that shape rules and kernels call: the executor may have compiled forms of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class HostFunction(Generic[P, R]):
    """A function of NumPy arrays, and its compiled form, which returns the same bits.

    ``compiled`` returns None for operands that it leaves to ``plain``.
    """

    def __init__(self, plain: Callable[P, R]) -> None:
        self.plain = plain
        self.compiled: Callable[P, R | None] | None = None

    def __call__(self, *operands: P.args, **settings: P.kwargs) -> R:
        result = None if self.compiled is None else self.compiled(*operands, **settings)
        return self.plain(*operands, **settings) if result is None else result
