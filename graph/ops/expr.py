"""The language of scalar expressions: what an elementwise op does to one element.

``executor/codegen`` turns an expression into array calls (NumPy, CuPy) or into source text.
Constants are Python numbers; comparisons make booleans; :func:`where` chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


class Arithmetic:
    """Operators of Python for expressions of one element (here) and terms of whole arrays (``formula.py``)."""

    def apply(self, fn: str, args: tuple[Any, ...]) -> Any:
        """Return a function of operands, of which this is one; others may be Python numbers."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return call("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return call("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return call("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return call("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return call("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return call("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return call("divide", other, self)

    def __rpow__(self, other: Any) -> Any:
        return call("power", other, self)

    def __pow__(self, other: Any) -> Any:
        return call("power", self, other)

    def __neg__(self) -> Any:
        return call("negative", self)

    def __gt__(self, other: Any) -> Any:
        return call("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return call("greater_equal", self, other)

    def __lt__(self, other: Any) -> Any:
        return call("less", self, other)

    def __le__(self, other: Any) -> Any:
        return call("less_equal", self, other)

    def __and__(self, other: Any) -> Any:
        return call("logical_and", self, other)

    def __or__(self, other: Any) -> Any:
        return call("logical_or", self, other)


@dataclass(frozen=True, eq=False)
class Expr(Arithmetic):
    """A function applied to expressions.

    ``fn`` is a NumPy ufunc's name, ``where``, ``arg``, ``const``, or a type of 16 bits that is rounded to.
    """

    fn: str
    args: tuple[Expr, ...] = ()
    value: Any = None  # the operand's name for "arg", the number for "const"

    @cached_property
    def form(self) -> tuple[Any, ...]:
        """What expressions that compute the same in the same way have in common; can be hashed."""
        return (self.fn, repr(self.value), *(arg.form for arg in self.args))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names of the operands."""
        own = [self.value] if self.fn == "arg" else []
        return frozenset(own).union(*(arg.reads for arg in self.args))

    def apply(self, fn: str, args: tuple[Any, ...]) -> Expr:
        """Return a function of expressions; Python numbers become constants."""
        return Expr(fn, tuple(a if isinstance(a, Expr) else constant(a) for a in args))


def argument(name: str) -> Expr:
    """Return an operand of the op."""
    return Expr("arg", (), name)


def constant(value: Any) -> Expr:
    """Return a number."""
    return Expr("const", (), value)


def call(fn: str, *args: Any) -> Any:
    """Apply a function by its NumPy name to expressions, or terms, and Python numbers."""
    first = next((a for a in args if isinstance(a, Arithmetic)), None)
    return constant(args[0]).apply(fn, args) if first is None else first.apply(fn, args)


def folded(root: Expr, dtype: Any, known: dict[Expr, Expr]) -> Expr:
    """Return an expression whose functions of numbers alone are numbers, rounded to ``dtype``.

    A choice by a number is what it chooses. ``known`` remembers what was made of parts that expressions share.
    """
    if root not in known:
        args = tuple(folded(arg, dtype, known) for arg in root.args)
        fixed = [arg.value for arg in args if arg.fn == "const"]
        if root.fn == "where" and args[0].fn == "const":
            known[root] = args[1] if args[0].value else args[2]
        elif args and len(fixed) == len(args):
            numbers = [np.dtype(dtype).type(value) for value in fixed]
            known[root] = constant(getattr(np, root.fn)(*numbers).item())
        else:
            known[root] = Expr(root.fn, args, root.value) if args else root
    return known[root]


def replaced(root: Expr, other: Callable[[Expr], Expr | None], known: dict[Expr, Expr]) -> Expr:
    """Return an expression with ``other`` of a part in the place of each part that it is not None for.

    ``known`` remembers what was made of parts that expressions share.
    """
    if root not in known:
        swap = other(root)
        args = tuple(replaced(arg, other, known) for arg in root.args) if swap is None else ()
        same = all(new is old for new, old in zip(args, root.args, strict=False))
        known[root] = swap or (root if same else Expr(root.fn, args, root.value))
    return known[root]


def _function(name: str) -> Callable[..., Any]:
    def apply(*args: Any) -> Any:
        return call(name, *args)

    apply.__name__ = name
    apply.__doc__ = f"``numpy.{name}`` of one element."
    return apply


abs_ = _function("absolute")
acos = _function("arccos")
acosh = _function("arccosh")
asin = _function("arcsin")
asinh = _function("arcsinh")
atan = _function("arctan")
atanh = _function("arctanh")
ceil = _function("ceil")
cos = _function("cos")
cosh = _function("cosh")
exp = _function("exp")
expm1 = _function("expm1")
floor = _function("floor")
floor_divide = _function("floor_divide")
log = _function("log")
log1p = _function("log1p")
log2 = _function("log2")
log10 = _function("log10")
maximum = _function("maximum")
minimum = _function("minimum")
mod = _function("remainder")
reciprocal = _function("reciprocal")
rint = _function("rint")
sign = _function("sign")
sin = _function("sin")
sinh = _function("sinh")
sqrt = _function("sqrt")
square = _function("square")
tan = _function("tan")
tanh = _function("tanh")
trunc = _function("trunc")
where = _function("where")
equal = _function("equal")
not_equal = _function("not_equal")
logical_not = _function("logical_not")
logical_xor = _function("logical_xor")
isfinite = _function("isfinite")
erf = _function("erf")
copy = _function("positive")


def sigmoid(x: Expr) -> Any:
    """Return 1 / (1 + exp(-x)): where exp overflows to infinity the quotient is 0, as it should be."""
    return 1 / (1 + exp(-x))


def softplus(x: Expr) -> Any:
    """Return log(1 + exp(x)), as a sum that does not overflow.

    At 0, where both parts have a kink, slopes are those of the second operands: they add up to 1 - 1/2.
    """
    return maximum(0, x) + log1p(exp(minimum(x, -x)))


def total(x: Expr) -> Expr:
    """Return the sum over all elements of a parameter; only updates know such (see ``update.py``)."""
    return Expr("total", (x,))
