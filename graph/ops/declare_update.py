"""Declares an optimizer's update as an op.

The rule is the declaration. Its operands are the op's inputs, in their order; what it returns are the op's
outputs, each the same memory as the input it updates; its keywords are attributes with their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...strategies.types import LOW, VarType
from .expr import Expr, constant
from .operands import Slot, parameter_name, record
from .registry import Inference, Spec, Specs, define
from .samples import normal, sample, uniform
from .update import Rule, Update

MASTER, SKIP = "MasterParam", "SkipUpdate"


def _shapes(
    like_param: Sequence[str], singles: Sequence[str], sources: Mapping[str, str]
) -> Callable[[Inference], Mapping[str, Specs]]:
    """Return the shape rule of an update: ``like_param`` are like Param, ``singles`` have one element.

    ``sources`` maps an output slot to the input it updates; those of ``singles`` may be left out.

    Beside a parameter in low precision its state and gradient may be float32, as its master is.
    """

    def rule(op: Inference) -> Mapping[str, Specs]:
        param = op.spec("Param")
        wide = param._replace(dtype=VarType.FP32)
        low = param.dtype in LOW
        for slot in like_param:
            fits = op.spec(slot) == param or (low and op.spec(slot) == wide)
            op.require(fits, f"{slot} must be like Param")
        for slot in singles:
            fits = not op.has(slot) or op.shape(slot) == (1,)
            op.require(fits, f"{slot} must have one element")
        if op.has(SKIP):
            op.require(op.spec(SKIP) == Spec((1,), VarType.BOOL), f"{SKIP} must be one boolean")
        updated: dict[str, Specs] = {slot: op.spec(source) for slot, source in sources.items()}
        if op.has(MASTER):
            op.require(
                op.spec(MASTER) == wide and low,
                f"{MASTER} must be float32, of the shape of Param in low precision",
            )
            updated[f"{MASTER}Out"] = wide
        return updated

    return rule


def _slot(name: str) -> str:
    """Return the slot of an operand: ``beta1_pow`` is Beta1Pow."""
    return "".join(part.capitalize() for part in name.split("_"))


def _optional(slot: str) -> Slot:
    return Slot(slot, False, True, parameter_name(slot))


def _operands(like: Sequence[str], singles: Sequence[str]) -> dict[str, Any]:
    """Return a sample's operands: slots ``like`` the parameter, and those of one element."""
    signed = ("Param", "Grad", "Velocity", "Moment1", "LinearAccumulator", "Prev")
    operands = {
        slot: normal(3, 4) if slot in signed else uniform(3, 4, low=0.1)
        for slot in ("Param", *like)
    }
    for slot in singles:
        is_rate = slot == "LearningRate"
        operands[slot] = uniform(1, low=0.1) if is_rate else uniform(1, low=0.5, high=0.9)
    return operands


def declare_update(
    *,
    own: tuple[str, ...] = (),
    like_param: tuple[str, ...] = (),
    outputs: Mapping[str, str] | None = None,
    unread: Mapping[str, Any] | None = None,
    numbers: Mapping[str, str] | None = None,
    optional: tuple[str, ...] = (),
    dispensable: tuple[str, ...] = (),
    tried: Mapping[str, Any] | None = None,
) -> Callable[[Rule], Rule]:
    """Declare the op that a rule is named after.

    ``own`` and ``like_param``: see :class:`Update`. ``outputs`` are output slots that are not named after their
    operand's. ``unread`` are attributes that the rule does not use, ``numbers`` slots that stand for
    attributes, ``optional`` those of MasterParam and SkipUpdate that the op takes. A program may leave
    ``dispensable`` slots out, where the rule does not read them. ``tried`` are the sample's attributes.

    Where a gradient of zero changes an element, the update of elements without gradient is an op of its own.
    """

    def declare(rule: Rule) -> Rule:
        update = Update(rule, own, like_param)
        named = {name: _slot(name) for name in update.operands}
        written = {name: (outputs or {}).get(name, f"{named[name]}Out") for name in update.updated}
        singles = [named[name] for name in update.scalars]
        masters = {f"{slot}Out": slot for slot in optional if slot == MASTER}
        like = [s for s in named.values() if s not in (*singles, "Param")]
        operands = _operands(like, singles)
        inputs = [Slot(slot, False, slot in dispensable, name) for name, slot in named.items()]
        results = [
            Slot(slot, False, slot in dispensable, f"{name}_out") for name, slot in written.items()
        ]
        inputs += map(_optional, (*(numbers or {}), *optional))
        attrs = {**update.attributes, **(unread or {})}
        if masters:
            attrs["multi_precision"] = False
        results += map(_optional, masters)
        sources = {slot: named[name] for name, slot in written.items()}
        define(
            rule.__name__,
            record(rule.__name__, inputs, results, attrs),
            _shapes(like, singles, sources),
            update=update,
            numbers=numbers or {},
            in_place={**sources, **masters},
            samples=(sample(operands, **(tried or {})),),
            refuses=(sample({**operands, [*like, *singles][0]: normal(4, 3)}),),
        )
        if "grad" in named and update.by_element and not update.keeps({**attrs, **(tried or {})}):
            declare(update.without_grad)
        return rule

    return declare


def averaged(old: Expr, new: Expr, beta: float) -> Expr:
    """Return a running mean; 1 - beta is rounded in the element type, as in Paddle."""
    return old * beta + new * (1 - constant(beta))
