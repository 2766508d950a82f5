"""Gradients of gradient ops that compute element by element: derived from their expressions.

The slots are those of Paddle's ``*_grad_grad`` ops: what the gradient op reads (X, Y, Out; DOut, the gradient
that comes down), DDX for the gradient of its result X@GRAD, and so on; results are DX, DY, DOut (DOutNew where
DOut is read) and DDOut. What an op does not depend on is no slot of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from . import expr as e
from .differentiation import arguments, changed, derivable, substituted
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
    above = {slot: f"D{_short(slot)}" for slot in results}  # DDX for X@GRAD
    changes = _Changes(scalar, list(map(parameter_name, above.values())))
    settings = changes.settings
    every = changes({p.name: attrs[attribute_name(p.name)] for p in settings})
    nonzero = {name: change for name, change in every.items() if change is not None}
    if not nonzero:
        return None
    variables = arguments(list(nonzero.values()))
    reads = {
        _short(slot): slot for slot in slots if parameter_name(slot) in variables or slot in always
    }
    reads |= {name: f"{slot}@GRAD" for slot, name in above.items()}
    slot_of = {parameter_name(slot): slot for slot in slots}
    writes = {}
    for slot in (slot_of[name] for name in nonzero):
        short = f"{slot}@GRAD" if direct and "@GRAD" not in slot else f"D{_short(slot)}"
        writes[f"{short}New" if short in reads else short] = f"{slot}@GRAD"
    # The operands as they are called here, and in the expressions: dy for DY, which is d_y there.
    called = {parameter_name(slot): parameter_name(of) for slot, of in reads.items()}
    called |= {name: name for name in changes.weights}
    operands = [name for name, old in called.items() if old in variables | changes.weights.keys()]

    def second(*values: e.Expr | None, **attrs: Any) -> tuple[e.Expr, ...]:
        by_name = dict(zip((called[name] for name in operands), values, strict=True))
        present = {name: value for name, value in by_name.items() if value is not None}
        gradients = changes(attrs, by_name.keys() - present.keys())
        zero = e.copy(e.constant(0))
        roots = (gradients[name] for name in nonzero)
        return tuple(zero if root is None else substituted(root, present) for root in roots)

    optional = changes.weights if len(above) > 1 else ()
    second.__signature__ = _signature(operands, optional, settings)  # type: ignore[attr-defined]
    like = {}
    for slot, of in writes.items():
        base = of.removesuffix("@GRAD")  # the slot of which it is the gradient
        twin = above.get(f"{base}@GRAD", "")
        like[slot] = [s for s in (_short(base), twin, *reversed(reads)) if s in reads]
    return Second(reads, writes, like, second)


class _Changes:
    """The gradients of the operands of ``scalar``, given those of its results: parameters named ``weights``."""

    def __init__(self, scalar: Scalar, weights: Sequence[str]) -> None:
        parameters = inspect.signature(scalar).parameters.values()
        self._scalar = scalar
        self._names = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self.settings = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
        self.weights = {name: e.argument(name) for name in weights}

    def __call__(
        self, attrs: Mapping[str, Any], absent: Collection[str] = ()
    ) -> dict[str, e.Expr | None]:
        """Return the gradient of each operand; results whose weights are ``absent`` have no gradient."""
        expressions = self._scalar(*map(e.argument, self._names), **attrs)
        roots = expressions if isinstance(expressions, tuple) else (expressions,)
        if not derivable(roots):
            return {}
        pairs = [
            (root, weight)
            for root, (name, weight) in zip(roots, self.weights.items(), strict=True)
            if name not in absent
        ]
        return {name: _total(name, pairs) for name in self._names}


def _signature(
    operands: Sequence[str], optional: Collection[str], settings: Sequence[inspect.Parameter]
) -> inspect.Signature:
    positional, needed = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    parameters = (
        inspect.Parameter(name, positional, default=None if name in optional else needed)
        for name in operands
    )
    return inspect.Signature([*parameters, *settings])


def _short(slot: str) -> str:
    """Return a slot as Paddle names it in ops of second order: DOut for Out@GRAD."""
    return f"D{slot.removesuffix('@GRAD')}" if slot.endswith("@GRAD") else slot


def _total(name: str, pairs: Sequence[tuple[e.Expr, e.Expr]]) -> e.Expr | None:
    """Return the gradient of one operand: of each result, weighed with what comes down for it."""
    total: e.Expr | None = None
    for root, weight in pairs:
        change = changed(root, {name: weight})
        total = change if total is None else total if change is None else total + change
    return total
