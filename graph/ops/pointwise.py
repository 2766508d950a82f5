"""Expressions of one element: activations, elementwise ops and their gradients, sum, scale."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ...strategies.types import VarType
from . import expr as e
from .differentiation import arguments as arguments
from .operands import attribute_name
from .registry import OPS
from .slopes import SLOPES

# Parameter name -> expression; a list for a slot that takes any number
Operands = Mapping[str, Any]

# The gradients of X and of Y, from the operands and that of Out.
BINARY_GRADS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "elementwise_add": lambda x, y, d_out: (e.copy(d_out), e.copy(d_out)),
    "elementwise_sub": lambda x, y, d_out: (e.copy(d_out), -d_out),
    "elementwise_mul": lambda x, y, d_out: SLOPES["multiply"](d_out, None, x, y),
    "elementwise_div": lambda x, y, d_out: (d_out / y, -(d_out * x / (y * y))),
    "elementwise_max": lambda x, y, d_out: SLOPES["maximum"](d_out, None, x, y),
    "elementwise_min": lambda x, y, d_out: SLOPES["minimum"](d_out, None, x, y),
    "elementwise_pow": lambda x, y, d_out: SLOPES["power"](d_out, x**y, x, y),
}
BINARY = frozenset(BINARY_GRADS)
BINARY_BACKWARD = frozenset(f"{name}_grad" for name in BINARY_GRADS)


def scaled(x: e.Expr, *, scale: float, bias: float, bias_after_scale: bool) -> e.Expr:
    """scale * x + bias, or scale * (x + bias)."""
    shift = bias if bias_after_scale else bias * scale
    product = x if scale == 1 else x * scale
    return product + shift if shift else e.copy(x) if product is x else product


def total(x: list[e.Expr]) -> e.Expr:
    """The sum from left to right."""
    result = x[0] if len(x) > 1 else e.copy(x[0])
    for term in x[1:]:
        result = result + term
    return result


def converted(x: e.Expr, *, in_dtype: int, out_dtype: int) -> e.Expr:
    """A float as another: of the two types the one of 16 bits tells how it is rounded."""
    low = [name for name, dtype in _LOW.items() if dtype in (out_dtype, in_dtype)]
    return e.call(low[0], x) if low else e.copy(x)


_LOW = {"float16": VarType.FP16, "bfloat16": VarType.BF16}
_OTHERS: Mapping[str, Callable[..., e.Expr]] = {"scale": scaled, "sum": total, "cast": converted}


def pointwise(op_type: str) -> bool:
    """Tell whether :func:`expressions` knows an op. One that is two functions in one is no part of others."""
    op = OPS[op_type]
    known = op.scalar is not None and op.counts is None and not op.random
    return op_type in _OTHERS or (known and "functor_list" not in op.attrs)


def expressions(op_type: str, operands: Operands, attrs: Mapping[str, Any]) -> dict[str, e.Expr]:
    """Return what an op writes, by output slot, from expressions for its operands."""
    scalar = _OTHERS.get(op_type) or OPS[op_type].scalar
    assert scalar is not None
    parameters = inspect.signature(scalar).parameters.values()
    positional = [operands.get(p.name) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    settings = {name: attrs[attribute_name(name)] for name in named}
    value = scalar(*positional, **settings)
    results = value if isinstance(value, tuple) else (value,)
    return {
        slot.name: result for slot, result in zip(OPS[op_type].output_slots, results, strict=True)
    }
