"""Scalar expressions as source for a compiled loop: one assignment per part, equal parts written once.

Numbers that are attributes or coefficients stand in a table beside the loop, not in its source, so ops that
differ in them alone share their compiled form.
"""

from __future__ import annotations

import math
from typing import Any

from ...graph.ops.expr import Expr

_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "greater": ">", "greater_equal": ">=",
    "less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!=", "logical_and": "&",
    "logical_or": "|", "logical_xor": "!=",
}  # fmt: skip
_CALLS = {
    "exp": "exp_", "expm1": "expm1_", "tanh": "tanh_", "erf": "erf_", "log": "log_", "log1p": "log1p_",
    "log2": "log2_", "log10": "log10_", "sin": "sin_", "cos": "cos_", "tan": "tan_", "arcsin": "asin_",
    "arccos": "acos_", "arctan": "atan_", "sinh": "sinh_", "cosh": "cosh_", "arcsinh": "asinh_",
    "arccosh": "acosh_", "arctanh": "atanh_", "sqrt": "root", "rint": "nearest", "floor": "whole_below",
    "ceil": "whole_above", "trunc": "cut", "absolute": "size_of",
}  # fmt: skip
_PATTERNS = {
    "square": "{0} * {0}",
    "reciprocal": "np.float32(1.0) / {0}",
    "negative": "-{0}",
    "positive": "{0}",
    "where": "select({0}, {1}, {2})",
    "sign": "select({0} > ZERO, ONE, select({0} < ZERO, -ONE, {0}))",
    "isfinite": "size_of({0}) < np.float32(np.inf)",
    "logical_not": "{0} == False",
}
_TRUTHS = {
    "greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "logical_and", "logical_or",
    "logical_not", "logical_xor", "isfinite",
}  # fmt: skip
_PLAIN = (0.0, 0.5, 1.0, 2.0, 3.0)  # numbers that help the compiler when it knows them
_LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not")


def known(root: Expr) -> bool:
    """Tell whether every function of an expression can be written as source."""
    able = root.fn in ("arg", "const", "maximum", "minimum", "power") or any(
        root.fn in table for table in (_INFIX, _CALLS, _PATTERNS)
    )
    return able and all(known(arg) for arg in root.args)


class Writer:
    """Turns expressions into lines of source; ``operands`` maps an operand to the source of its value."""

    def __init__(self, operands: dict[str, str]) -> None:
        self.operands = operands
        self.lines: list[str] = []
        self.constants: list[float] = []
        self._names: dict[Any, str] = {}
        self._seen: dict[int, str] = {}

    def value(self, node: Expr) -> str:
        """Return the name of an expression's value, and write the lines that compute it."""
        if id(node) not in self._seen:
            self._seen[id(node)] = self._value(node)
        return self._seen[id(node)]

    def truth(self, node: Expr) -> str:
        """Return the name of a condition: what is no comparison is true where it is not zero."""
        name = self.value(node)
        if node.fn in _TRUTHS or name.startswith("b_"):
            return name
        return self._named(f"{name} != np.float32(0.0)")

    def number(self, node: Expr) -> str:
        """Return the name of a number: a comparison is 1 or 0."""
        name = self.value(node)
        if node.fn not in _TRUTHS:
            return name
        return self._named(f"select({name}, np.float32(1.0), np.float32(0.0))")

    def _value(self, node: Expr) -> str:
        if node.fn == "const":
            return self._constant(float(node.value))
        if node.fn == "arg":
            return self.operands[node.value]
        if node.fn == "power":
            return self._power(node)
        if node.fn in _LOGIC:
            args = [self.truth(arg) for arg in node.args]
        elif node.fn == "where":
            args = [self.truth(node.args[0]), *(self.number(arg) for arg in node.args[1:])]
        else:
            args = [self.number(arg) for arg in node.args]
        return self._named(self._text(node, args))

    def _text(self, node: Expr, args: list[str]) -> str:
        if node.fn in _INFIX:
            return f"{args[0]} {_INFIX[node.fn]} {args[1]}"
        if node.fn in _CALLS:
            return f"{_CALLS[node.fn]}({args[0]})"
        if node.fn in _PATTERNS:
            pattern = _PATTERNS[node.fn].replace("ZERO", "np.float32(0.0)")
            return pattern.replace("ONE", "np.float32(1.0)").format(*args)
        first, second = args
        sign = "<" if node.fn == "maximum" else ">"  # nan wins, as in NumPy, from either side
        if node.args[1].fn == "const":
            return f"select({first} {sign} {second}, {second}, {first})"
        if node.args[0].fn == "const":
            return f"select({second} {sign} {first}, {first}, {second})"
        return f"select(({first} {sign} {second}) | ({second} != {second}), {second}, {first})"

    def _power(self, node: Expr) -> str:
        base, exponent = node.args
        value = exponent.value if exponent.fn == "const" else None
        if value == 0.5:
            return self._named(f"root({self.number(base)})")
        if value in (1, 2, 3):
            return self._named(" * ".join([self.number(base)] * int(value)))
        return self._named(f"pow_({self.number(base)}, {self.number(exponent)})")

    def _constant(self, number: float) -> str:
        if abs(number) in _PLAIN and not (number == 0 and math.copysign(1, number) < 0):
            return f"np.float32({number})"
        if number not in self.constants:
            self.constants.append(number)
        return f"c{self.constants.index(number)}"

    def _named(self, text: str) -> str:
        if text not in self._names:
            self._names[text] = f"t{len(self._names)}"
            self.lines.append(f"{self._names[text]} = {text}")
        return self._names[text]
