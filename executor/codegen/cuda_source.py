"""Scalar expressions as CUDA C++: one constant per part, equal parts written once.

Values have a kind: ``float`` (which 16-bit floats are computed in), ``double``, ``bool`` or an integer type.
Operands of several kinds meet in the widest; numbers of the expression take the kind of what they meet. Numbers
that are attributes or coefficients become parameters, so ops that differ in them alone share what is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...graph.ops.expr import Expr

SCALAR_SOURCE = "scalar.cuh"  # what the text needs included
_C_TYPES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "int32": "int",
    "int64": "long long", "float16": "f16", "bfloat16": "bf16", "float32": "float", "float64": "double",
}  # fmt: skip
_RANKS = {
    "bool": 0, "signed char": 1, "unsigned char": 1, "short": 2, "int": 3, "long long": 4, "float": 5,
    "double": 6,
}  # fmt: skip
_FLOATS = ("float", "double")
_INFIX = {"add": "+", "subtract": "-", "multiply": "*"}
_COMPARISONS = {
    "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<=", "equal": "==",
    "not_equal": "!=",
}  # fmt: skip
_BITS = {"bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}",
         "left_shift": "left_shift({0}, {1})", "right_shift": "right_shift({0}, {1})",
         "bitwise_not": "~{0}"}  # fmt: skip
_LOGIC = {"logical_and": "{0} && {1}", "logical_or": "{0} || {1}", "logical_xor": "{0} != {1}",
          "logical_not": "!{0}"}  # fmt: skip
_C_NAMES = {"arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
            "arctanh": "atanh"}  # fmt: skip
_OF_FLOATS = (
    "exp", "expm1", "tanh", "erf", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "sqrt",
    *_C_NAMES,
)  # fmt: skip
_STEPS = ("rint", "floor", "ceil", "trunc")  # leave integers as they are
_PATTERNS = {
    "square": "{0} * {0}",
    "negative": "-{0}",
    "positive": "{0}",
    "sign": "{0} > 0 ? 1 : {0} < 0 ? -1 : {0}",
    "floor_divide": "floor_quotient({0}, {1})",
    "remainder": "floor_rest({0}, {1})",
    "fmod": "rest({0}, {1})",
    "float16": "wide(element<f16>({0}))",
    "bfloat16": "wide(element<bf16>({0}))",
}
_PLAIN = (0, 0.5, 1, 2, 3)  # numbers that help the compiler when it knows them
_ALL = {
    *_INFIX, *_BITS, *_COMPARISONS, *_LOGIC, *_OF_FLOATS, *_STEPS, *_PATTERNS, "arg", "const", "where",
    "maximum", "minimum", "power", "divide", "reciprocal", "absolute", "isfinite",
}  # fmt: skip


class Value(NamedTuple):
    """A piece of source that may stand anywhere in an expression, and its kind."""

    text: str
    kind: str


class Constant(NamedTuple):
    """A parameter for a number: its C type, name and value."""

    kind: str
    name: str
    value: float | int


def c_type(dtype: Any) -> str:
    """Return the C type of an array's elements."""
    return _C_TYPES[dtype.name]


def kind_of(dtype: Any) -> str:
    """Return the kind in which elements are computed."""
    return {"f16": "float", "bf16": "float"}.get(c_type(dtype), c_type(dtype))


def known(root: Expr) -> bool:
    """Tell whether every function of an expression can be written as CUDA C++."""
    return root.fn in _ALL and all(known(arg) for arg in root.args)


def widest(kinds: list[str]) -> str:
    """Return the kind in which values of several kinds meet."""
    if {"signed char", "unsigned char"} <= set(kinds):
        kinds = [*kinds, "short"]
    return max(kinds, key=lambda kind: _RANKS[kind])


class CudaWriter:
    """Turns expressions into lines of source; ``operands`` maps an operand to its value in the text.

    After all values were asked for, ``lines`` compute them and ``constants`` are the parameters they read.
    ``prefix`` begins every name that is made.
    """

    def __init__(self, operands: Mapping[str, Value], prefix: str = "") -> None:
        self.operands = operands
        self.lines: list[str] = []
        self.constants: list[Constant] = []
        self._prefix = prefix
        self._kind = widest([v.kind for v in operands.values()] or ["float"])
        self._names: dict[tuple[str, str], Value] = {}
        self._seen: dict[int, Value] = {}
        self._roots: list[Expr] = []  # an id is taken as long as its owner lives

    def value(self, node: Expr) -> Value:
        """Return an expression's value, and write the lines that compute it."""
        if id(node) not in self._seen:
            self._roots.append(node)
            self._seen[id(node)] = self._value(node)
        return self._seen[id(node)]

    def number(self, node: Expr, kind: str) -> str:
        """Return the text of an expression's value in a kind."""
        if node.fn == "const":
            return self._constant(node.value, kind)
        return self._as(self.value(node), kind)

    def element(self, node: Expr, dtype: Any) -> str:
        """Return the text of an expression's value as an array's element, rounded to its type."""
        kind, storage = kind_of(dtype), c_type(dtype)
        return (
            f"element<{storage}>({self.number(node, kind)})"
            if storage != kind
            else self.number(node, kind)
        )

    def _as(self, value: Value, kind: str) -> str:
        if value.kind == kind:
            return value.text
        if kind == "bool":
            return self._named(f"{value.text} != 0", "bool").text
        if value.kind in _FLOATS and kind not in _FLOATS:
            return self._named(f"whole<{kind}>({value.text})", kind).text
        return self._named(f"({kind}){value.text}", kind).text

    def _value(self, node: Expr) -> Value:
        if node.fn == "arg":
            return self.operands[node.value]
        if node.fn == "const":
            return Value(self._constant(node.value, self._kind), self._kind)
        if node.fn in _LOGIC:
            return self._named(
                _LOGIC[node.fn].format(*(self.number(a, "bool") for a in node.args)), "bool"
            )
        operands = node.args[1:] if node.fn == "where" else node.args
        kind = self._meeting(node.fn, operands)
        texts = [self.number(arg, kind) for arg in operands]
        if node.fn == "where":
            condition = self.number(node.args[0], "bool")
            return self._named(f"{condition} ? {texts[0]} : {texts[1]}", kind)
        if node.fn in _COMPARISONS:
            return self._named(f"{texts[0]} {_COMPARISONS[node.fn]} {texts[1]}", "bool")
        if node.fn == "isfinite":
            return self._named(f"{texts[0]} - {texts[0]} == 0", "bool")
        return self._named(self._text(node, texts, kind), kind)

    def _meeting(self, fn: str, operands: tuple[Expr, ...]) -> str:
        """Return the kind in which a function computes."""
        kinds = [self.value(arg).kind for arg in operands if arg.fn != "const"]
        kind = widest(kinds or [self._kind])
        numbers = [arg.value for arg in operands if arg.fn == "const"]
        broken = any(not float(n).is_integer() for n in numbers)
        if kind not in _FLOATS and (broken or fn in (*_OF_FLOATS, "divide", "reciprocal")):
            return "double"
        same = (*_COMPARISONS, *_BITS, "where", "positive")  # leave booleans as they are
        if kind == "bool" and fn not in same:
            return self._kind if self._kind != "bool" else "int"
        return kind

    def _text(self, node: Expr, args: list[str], kind: str) -> str:
        fn, suffix = node.fn, "f" if kind == "float" else ""
        if fn in _INFIX:
            return f"{args[0]} {_INFIX[fn]} {args[1]}"
        if fn in _BITS:
            return (
                f"!{args[0]}" if (fn, kind) == ("bitwise_not", "bool") else _BITS[fn].format(*args)
            )
        if fn in _PATTERNS:
            return _PATTERNS[fn].format(*args)
        if fn in ("divide", "reciprocal"):
            return (
                f"{args[0]} / {args[1]}"
                if fn == "divide"
                else f"1{'.0f' if suffix else '.0'} / {args[0]}"
            )
        if fn in _OF_FLOATS or fn in _STEPS:
            return args[0] if kind not in _FLOATS else f"{_C_NAMES.get(fn, fn)}{suffix}({args[0]})"
        if fn == "absolute":
            return (
                f"fabs{suffix}({args[0]})"
                if kind in _FLOATS
                else f"{args[0]} < 0 ? -{args[0]} : {args[0]}"
            )
        if fn == "power":
            return self._power(node.args[1], args, kind)
        return self._extreme("<" if fn == "maximum" else ">", node, args, kind)

    def _extreme(self, sign: str, node: Expr, args: list[str], kind: str) -> str:
        """nan wins, as in NumPy, from either side."""
        first, second = args
        if kind not in _FLOATS or node.args[1].fn == "const":
            return f"{first} {sign} {second} ? {second} : {first}"
        if node.args[0].fn == "const":
            return f"{second} {sign} {first} ? {first} : {second}"
        return f"({first} {sign} {second} || {second} != {second}) ? {second} : {first}"

    def _power(self, exponent: Expr, args: list[str], kind: str) -> str:
        value = exponent.value if exponent.fn == "const" else None
        if value in (1, 2, 3):
            return " * ".join([args[0]] * int(value))
        if kind not in _FLOATS:
            return f"whole_power({args[0]}, {args[1]})"
        suffix = "f" if kind == "float" else ""
        return f"sqrt{suffix}({args[0]})" if value == 0.5 else f"pow{suffix}({', '.join(args)})"

    def _constant(self, value: Any, kind: str) -> str:
        if kind == "bool":
            return "true" if value else "false"
        whole = kind not in _FLOATS
        number = int(value) if whole else float(value)
        if abs(number) in _PLAIN and not (number == 0 and math.copysign(1, number) < 0):
            literal = str(number) if whole else f"{number}{'f' if kind == 'float' else ''}"
            if whole and kind != "int":  # a template takes both operands in one type
                return f"(({kind}){literal})"
            return f"({literal})" if number < 0 else literal
        parameter = "long long" if whole else kind
        for constant in self.constants:
            if constant.kind == parameter and constant.value == number:
                break
        else:
            constant = Constant(parameter, f"{self._prefix}c{len(self.constants)}", number)
            self.constants.append(constant)
        return f"(({kind}){constant.name})" if kind != parameter else constant.name

    def _named(self, text: str, kind: str) -> Value:
        value = self._names.get((text, kind))
        if value is None:
            value = self._names[text, kind] = Value(f"{self._prefix}t{len(self._names)}", kind)
            narrow = kind in ("signed char", "unsigned char", "short")
            text = f"({kind})({text})" if narrow else text
            self.lines.append(f"const {kind} {value.text} = {text};")
        return value
