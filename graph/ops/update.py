"""The arithmetic of an optimizer, written once: a function from expressions of operands to those of results.

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

from .expr import Expr, argument, constant, folded, replaced

WITHOUT_GRAD = "_without_grad"  # the end of an op's name
Number = float | Expr
Results = Mapping[str, Expr]
Rule = Callable[..., Results]


@dataclass(frozen=True)
class Update:
    """The new values of a parameter and its state after one step.

    ``rule`` gets expressions of operands by position, under the names that their slots have as parameters, and
    attributes by keyword; it returns the new values of operands, by their names. ``own`` are
    the attributes that may differ between parameters of one fused op: the rule gets them as expressions.
    ``like_param`` are operands named after powers that are like the parameter all the same.
    """

    rule: Rule
    own: tuple[str, ...] = ()
    like_param: tuple[str, ...] = ()

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(name for name, p in self._parameters.items() if p.kind is not p.KEYWORD_ONLY)

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes that the rule reads, and their defaults."""
        parameters = self._parameters.items()
        return {name: p.default for name, p in parameters if p.kind is p.KEYWORD_ONLY}

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """The operands that have one element; all others are like the parameter."""
        single = ("learning_rate", "noise")
        ones = (n for n in self.operands if n in single or n.endswith("_pow"))
        return tuple(n for n in ones if n not in self.like_param)

    @cached_property
    def updated(self) -> tuple[str, ...]:
        """The operands that the rule updates."""
        results = self.results(self.attributes, np.float32)
        return tuple(name for name in self.operands if f"{name}_out" in results)

    def keeps(self, attrs: Mapping[str, Any]) -> bool:
        """Tell whether a parameter without gradient, and its state, stay as they are: tried on numbers."""
        numbers = {name: 0.25 + k / 16 for k, name in enumerate(self.operands)}
        numbers["grad"] = 0.0
        settings = {name: attrs[name] for name in self.attributes}
        settings |= {name: constant(settings[name]) for name in self.own}
        results = self.rule(*(constant(numbers[name]) for name in self.operands), **settings)
        tables = {n: r for n, r in results.items() if n not in self.scalars}
        return all(folded(r, np.float64, {}).value == numbers[n] for n, r in tables.items())

    @cached_property
    def without_grad(self) -> Rule:
        """The rule of a parameter whose gradient is zero; powers, which advance once a step, stay."""
        names = [name for name in self.operands if name != "grad"]

        def rule(*operands: Expr, **settings: Any) -> Results:
            known = dict(zip(names, operands, strict=True))
            results = self.rule(**known, grad=constant(0.0), **settings)
            return {name: r for name, r in results.items() if name not in self.scalars}

        rule.__name__ = f"{self.rule.__name__}{WITHOUT_GRAD}"
        parameters = [p for name, p in self._parameters.items() if name != "grad"]
        rule.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return rule

    @cached_property
    def by_element(self) -> bool:
        """Whether each element is updated by itself: nothing is summed."""
        return not self.totals(self.attributes, np.float32)

    def results(self, attrs: Mapping[str, Any], dtype: Any, *, own_read: bool = False) -> Results:
        """Return the results by output parameter, such as ``param_out``.

        Arithmetic among numbers is done in ``dtype``, as Paddle's kernels do it: 1 - beta is rounded to the
        element type. With ``own_read`` the attributes of :attr:`own` are operands. What is in :meth:`totals`
        is an operand of one element, too.
        """
        return self._trace(attrs, dtype, own_read)[0]

    def totals(
        self, attrs: Mapping[str, Any], dtype: Any, *, own_read: bool = False
    ) -> Mapping[str, Expr]:
        """Return what is summed over the elements of the operands before they are updated, by name."""
        return self._trace(attrs, dtype, own_read)[1]

    def _trace(
        self, attrs: Mapping[str, Any], dtype: Any, own_read: bool
    ) -> tuple[Results, Mapping[str, Expr]]:
        settings = tuple(
            (name, attrs[name]) for name in self.attributes if not (own_read and name in self.own)
        )
        return _traced(self, settings, np.dtype(dtype))

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.rule).parameters


@lru_cache(1000)
def _traced(
    update: Update, settings: tuple[tuple[str, Any], ...], dtype: np.dtype
) -> tuple[Results, Mapping[str, Expr]]:
    own = {name: argument(name) for name in update.own}
    numbers = {n: constant(v) if n in own else v for n, v in settings}
    results = update.rule(*map(argument, update.operands), **{**own, **numbers})
    same: dict[Expr, Expr] = {}
    exact = {f"{name}_out": folded(result, dtype, same) for name, result in results.items()}
    totals: dict[str, Expr] = {}
    known: dict[Expr, Expr] = {}

    def named(part: Expr) -> Expr | None:
        if part.fn != "total":
            return None
        name = f"total{len(totals)}"
        (totals[name],) = part.args
        return argument(name)

    return {name: replaced(result, named, known) for name, result in exact.items()}, totals
