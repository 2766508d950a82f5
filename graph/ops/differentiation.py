"""Derivatives of scalar expressions: how a result changes with its operands (forward mode).

The derivative of each function stands in ``slopes.py``. A choice changes as what is chosen does, so that
infinities of the other side stay out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TypeAlias

from . import expr as e
from .expr import Expr
from .slopes import FLAT, SLOPES

Change: TypeAlias = Expr | None  # None: none at all


def changed(
    root: Expr, changes: Mapping[str, Expr], known: dict[Expr, Change] | None = None
) -> Change:
    """Return the sum of an expression's partial derivatives times the changes of its operands, by name.

    ``known`` remembers what was derived of parts that expressions share.
    """
    known = {} if known is None else known
    if root not in known:
        if root.fn == "arg":
            known[root] = changes.get(root.value)
        else:
            known[root] = _by_rule(root, [changed(arg, changes, known) for arg in root.args])
    return known[root]


def _by_rule(root: Expr, changes: list[Change]) -> Change:
    if root.fn in FLAT or all(change is None for change in changes):
        return None
    operands = [arg.value if arg.fn == "const" else arg for arg in root.args]
    if root.fn == "where":
        return e.where(operands[0], *(0 if change is None else change for change in changes[1:]))
    terms = [
        SLOPES[root.fn](change, root, *operands)[position]
        for position, change in enumerate(changes)
        if change is not None
    ]
    return reduce(lambda a, b: a + b, terms)


def derivable(roots: tuple[Expr, ...]) -> bool:
    """Tell whether the derivative of every function in expressions is known."""
    known = SLOPES.keys() | FLAT | {"arg", "const"}
    parts, seen = [*roots], set[Expr]()
    while parts:
        part = parts.pop()
        if part not in seen:
            if part.fn not in known:
                return False
            seen.add(part)
            parts += part.args
    return True


def substituted(
    root: Expr, operands: Mapping[str, Expr], known: dict[Expr, Expr] | None = None
) -> Expr:
    """Return an expression of other operands, by name; ``known`` remembers shared parts."""
    known = {} if known is None else known
    if root.fn == "arg":
        return operands[root.value]
    if root.args and root not in known:
        args = tuple(substituted(arg, operands, known) for arg in root.args)
        known[root] = Expr(root.fn, args, root.value)
    return known.get(root, root)


def arguments(roots: list[Expr]) -> set[str]:
    """Return the names of the operands that expressions read."""
    return set[str]().union(*(root.reads for root in roots))
