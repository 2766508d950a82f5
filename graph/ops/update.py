"""The arithmetic of an optimizer, written once: expressions of its results from expressions of what it reads.

``executor/kernels/array/optimize.py`` makes array calls of them, ``executor/kernels/loops/updates.py``,
``executor/kernels/cuda/optimize.py`` and ``executor/kernels/xla/updates.py`` what their back ends run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from .expr import Expr, argument, constant, folded

Number = float | Expr
Results = Mapping[str, Expr]
Rule = Callable[..., Results]


@dataclass(frozen=True)
class Update:
    """What one step makes of a parameter and its state.

    ``rule`` gets expressions of operands by position, under the names that their slots have as parameters, and
    attributes by keyword; it returns what becomes of the operands that it updates, by their names. ``own`` are
    the attributes that may differ between parameters of one fused op: the rule gets them as expressions.
    """

    rule: Rule
    own: tuple[str, ...] = ()

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(name for name, p in self._parameters.items() if p.kind is not p.KEYWORD_ONLY)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes that the rule reads, and their defaults."""
        given = self._parameters.items()
        return {name: p.default for name, p in given if p.kind is p.KEYWORD_ONLY}

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """The operands that have one element; all others are like the parameter."""
        return tuple(n for n in self.operands if n == "learning_rate" or n.endswith("_pow"))

    @cached_property
    def updated(self) -> tuple[str, ...]:
        """The operands that the rule updates."""
        results = self.results(self.attributes, np.float32)
        return tuple(name for name in self.operands if f"{name}_out" in results)

    def results(self, attrs: Mapping[str, Any], dtype: Any, *, own_read: bool = False) -> Results:
        """Return the results by output parameter, such as ``param_out``.

        Arithmetic among numbers is done in ``dtype``, as Paddle's kernels do it: 1 - beta is rounded to the
        element type. With ``own_read`` the attributes of :attr:`own` are operands.
        """
        settings = tuple(
            (name, attrs[name]) for name in self.attributes if not (own_read and name in self.own)
        )
        return _traced(self, settings, np.dtype(dtype))

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.rule).parameters


@lru_cache(1000)
def _traced(update: Update, settings: tuple[tuple[str, Any], ...], dtype: np.dtype) -> Results:
    own = {name: argument(name) for name in update.own}
    numbers = {n: constant(v) if n in own else v for n, v in settings}
    results = update.rule(*map(argument, update.operands), **{**own, **numbers})
    same: dict[Expr, Expr] = {}
    return {f"{name}_out": folded(result, dtype, same) for name, result in results.items()}
