"""Gradients of gradient ops that compute element by element: derived from their expressions.

The slots are those of Paddle's ``*_grad_grad`` ops: what the gradient op reads (X, Y, Out; DOut, the gradient
that comes down), DDX for the gradient of its result X@GRAD, and so on; results are DX, DY, DOut (DOutNew where
DOut is read) and DDOut. What an op does not depend on is no slot of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from . import expr as e
from .differentiation import changed, derivable, substituted
from .operands import attribute_name, parameter_name

Scalar = Callable[..., Any]


class Second(NamedTuple):
    """What is derived for a gradient op: the slots of its own gradient op, and the expressions.

    ``reads`` and ``writes`` map slots to slots of the gradient op, and to those with @GRAD for their
    gradients; ``like`` maps what is written to slots of the same shape, of which one is in use. Beside the
    gradients of several results slots may be ``optional``.
    """

    reads: Mapping[str, str]
    writes: Mapping[str, str]
    like: Mapping[str, Sequence[str]]
    scalar: Scalar | None = None
    optional: Sequence[str] = ()


def bilinear(left: str, right: str, result: str) -> Second:
    """Return the gradient of the gradient op of a product, which is linear in either operand (input slots)."""
    sides = (left, right)
    return Second(
        {left: left, right: right, f"D{result}": f"{result}@GRAD"}
        | {f"DD{side}": f"{side}@GRAD@GRAD" for side in sides},
        {f"D{side}": f"{side}@GRAD" for side in sides} | {f"DD{result}": f"{result}@GRAD@GRAD"},
        {f"D{side}": [side] for side in sides} | {f"DD{result}": [f"D{result}"]},
    )


def copied(result: str = "X", source: str = "Out") -> Second:
    """Return the gradient of the gradient op of one that gives the same elements another shape."""
    return Second(
        {f"D{source}": f"{source}@GRAD", f"DD{result}": f"{result}@GRAD@GRAD"},
        {f"DD{source}": f"{source}@GRAD@GRAD"},
        {f"DD{source}": [f"D{source}"]},
    )


def derived(
    scalar: Scalar,
    slots: Sequence[str],
    results: Sequence[str],
    attrs: Mapping[str, Any],
    *,
    always: Sequence[str] = (),
    direct: bool = False,
) -> Second | None:
    """Return the gradient of a gradient op with these input slots and results; None: it has none.

    Args:
        scalar: its expressions, which read some of its slots.
        attrs: its attributes, at their defaults.
        always: slots that are read though nothing depends on them.
        direct: the gradients of X and Y are named X@GRAD and Y@GRAD, not DX and DY.
    """
    parameters = inspect.signature(scalar).parameters.values()
    names = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    settings = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    above = {slot: f"D{_short(slot)}" for slot in results}  # DDX for X@GRAD

    def traced(
        given: Mapping[str, Any], chosen: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], list[Any]]:
        """Return the expressions of the gradient op, and the changes of its operands, in their order."""
        made = scalar(*(e.argument(n) for n in names), **chosen)
        roots = made if isinstance(made, tuple) else (made,)
        weights = [given.get(parameter_name(above[slot])) for slot in results]
        return roots, [_total(name, roots, weights) for name in names] if derivable(roots) else []

    defaults = {p.name: attrs[attribute_name(p.name)] for p in settings}
    every = {parameter_name(name): e.argument(parameter_name(name)) for name in above.values()}
    _, changes = traced(every, defaults)
    by_parameter = {parameter_name(slot): slot for slot in slots}
    if not any(change is not None for change in changes):
        return None
    kept = [name for name, change in zip(names, changes, strict=True) if change is not None]
    used = _arguments([change for change in changes if change is not None])
    reads = {_short(slot): slot for slot in slots if parameter_name(slot) in used or slot in always}
    reads |= {above[slot]: f"{slot}@GRAD" for slot in results}
    writes = {}
    for name in kept:
        slot = by_parameter[name]
        short = f"{slot}@GRAD" if direct and "@GRAD" not in slot else f"D{_short(slot)}"
        writes[f"{short}New" if short in reads else short] = f"{slot}@GRAD"
    operands = [n for n in map(parameter_name, reads) if n in used or n in every]

    def second(*given: Any, **chosen: Any) -> Any:
        found = dict(zip(operands, given, strict=True))
        in_use = {n: e.argument(n) for n, operand in found.items() if operand is not None}
        _, changes = traced(in_use, chosen)
        zero = e.copy(e.constant(0))
        by_name = dict(zip(names, changes, strict=True))
        return tuple(
            zero if by_name[name] is None else substituted(by_name[name], found) for name in kept
        )

    empty = {parameter_name(name) for name in above.values()} if len(above) > 1 else set()
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = [
        *(inspect.Parameter(n, kind, default=None if n in empty else inspect.Parameter.empty) for n in operands),
        *settings,
    ]  # fmt: skip
    second.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    like = {}
    for slot, of in writes.items():
        base = of.removesuffix("@GRAD")  # the slot of which it is the gradient
        twin = above.get(f"{base}@GRAD", "")
        like[slot] = [s for s in (_short(base), twin, *reversed(reads)) if s in reads]
    return Second(reads, writes, like, second)


def _short(slot: str) -> str:
    """Return a slot as Paddle names it in ops of second order: DOut for Out@GRAD."""
    return f"D{slot.removesuffix('@GRAD')}" if slot.endswith("@GRAD") else slot


def _total(name: str, roots: Sequence[e.Expr], weights: Sequence[e.Expr | None]) -> e.Expr | None:
    """Return the gradient of one operand: of each result, weighed with what comes down for it."""
    total: e.Expr | None = None
    for root, weight in zip(roots, weights, strict=True):
        change = None if weight is None else changed(root, {name: weight})
        total = change if total is None else total if change is None else total + change
    return total


def _arguments(roots: Sequence[e.Expr]) -> set[str]:
    return {root.value for root in roots if root.fn == "arg"}.union(
        *(_arguments(root.args) for root in roots)
    )
