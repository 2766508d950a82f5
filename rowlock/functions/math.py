"""Arithmetic, reductions and products with Paddle 2.x's signatures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from ..graph.layers import activations, binary, matrices, operators, picks, products, tensors, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Floats, integer, number, of_family
from ..graph.layers.helper import layer
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidType, InvalidValue
from ..strategies.types import INTEGERS, VarType, to_numpy, to_var_type
from .creation import constant

Axis = int | Sequence[int] | None


def alike(x: Variable, y: Variable) -> tuple[Variable, Variable]:
    """Return two tensors of floats in the wider of their element types; others as they are."""
    kind = x.dtype if x.dtype == y.dtype else operators.wider(x.dtype, y.dtype)
    if kind is None or x.dtype == y.dtype:
        return x, y
    return (x, layers.cast(y, kind)) if x.dtype == kind else (layers.cast(x, kind), y)


def _two(
    compute: Callable[..., Variable], x: Variable, y: Variable, name: str | None = None
) -> Variable:
    return compute(*alike(x, y), name=name)


_SUM = "x + y, broadcast from the last dimension."
add = of_family(_two, binary.elementwise_add, "add", _SUM)
subtract = of_family(_two, binary.elementwise_sub, "subtract", "x - y.")
multiply = of_family(_two, binary.elementwise_mul, "multiply", "x * y.")
maximum = of_family(_two, binary.elementwise_max, "maximum", "The larger of x and y.")
minimum = of_family(_two, binary.elementwise_min, "minimum", "The smaller of x and y.")


def divide(
    x: Variable,
    y: Variable,
    name: str | None = None,
    *,
    rounding_mode: Literal["trunc", "floor"] | None = None,
) -> Variable:
    """x / y; whole numbers become float32. ``rounding_mode`` "trunc" or "floor" rounds the quotient."""
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if rounding_mode == "trunc" and x.dtype in INTEGERS:
        return binary.elementwise_floordiv(x, y, name=name)
    quotient = binary.elementwise_div(*alike(floats(x), floats(y)), name=name)
    return quotient if rounding_mode is None else unary.trunc(quotient)


def mod(x: Variable, y: Any, name: str | None = None) -> Variable:
    """The remainder of x divided by y, with the sign of y."""
    return operators.remainder(*_divided(x, y))


def floor_divide(x: Variable, y: Any, name: str | None = None) -> Variable:
    """x / y rounded down."""
    return operators.floor_divide(*_divided(x, y))


def _divided(x: Variable, y: Any) -> tuple[Variable, Variable]:
    """Return x and y, a number or a Variable, in one element type."""
    if isinstance(y, Variable):
        return alike(x, y)
    if isinstance(y, float) and x.dtype in INTEGERS:
        x = layers.cast(x, "float32")
    return x, constant(y, x.dtype)


def pow(x: Variable, y: Any, name: str | None = None) -> Variable:
    """x to the power y, a number or a Variable."""
    if isinstance(y, Variable):
        return binary.elementwise_pow(*alike(x, y), name=name)
    power = number(y, "y", "pow")
    if x.dtype in INTEGERS:
        return binary.elementwise_pow(x, constant(y, x.dtype), name=name)
    return unary.pow(x, power, name)


def most(x: Variable) -> float:
    """Return the largest number of x's element type."""
    assert x.dtype is not None
    return float(np.finfo(to_numpy(x.dtype)).max)


def clip(x: Variable, min: Any = None, max: Any = None, name: str | None = None) -> Variable:
    """x cut to [min, max]; None is no bound."""
    for bound in (min, max):
        if bound is not None and not isinstance(bound, (int, float, np.number, Variable)):
            raise InvalidType(f"clip: a bound must be a number or a Variable, got {bound!r}.")
    if x.dtype in INTEGERS or isinstance(min, Variable) or isinstance(max, Variable):
        out = x
        for bound, op in ((min, binary.elementwise_max), (max, binary.elementwise_min)):
            if bound is not None:
                out = op(out, _as_tensor(bound, x))
        return out
    low = -most(x) if min is None else float(min)
    high = most(x) if max is None else float(max)
    return unary.clip(x, low, high, name)


def _as_tensor(value: Any, like: Variable) -> Variable:
    """Return a number or a Variable in the element type of ``like``."""
    if not isinstance(value, Variable):
        return constant(value, like.dtype)
    return value if value.dtype == like.dtype else layers.cast(value, like.dtype)


def round(x: Variable, decimals: int = 0, name: str | None = None) -> Variable:
    """x rounded to a number of decimals."""
    if x.dtype in INTEGERS:
        return layers.assign(x)
    if decimals == 0:
        return unary.round(x, name)
    factor = 10.0**decimals
    return unary.round(x * factor) / factor


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    name: str | None = None,
) -> Variable:
    """x @ y after the transposes."""
    return binary.matmul(x, y, transpose_x, transpose_y, name=name)


def mm(input: Variable, mat2: Variable, name: str | None = None) -> Variable:
    """The product of matrices."""
    return binary.matmul(input, mat2, name=name)


def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The products of two lists of matrices.

    Raises:
        InvalidValue: an operand has not three dimensions.
    """
    for argument, operand in (("x", x), ("y", y)):
        if operand.ndim != 3:
            raise InvalidValue(f"bmm: {argument} must have 3 dimensions, got {operand.ndim}.")
    return products.bmm(x, y, name)


def mv(x: Variable, vec: Variable, name: str | None = None) -> Variable:
    """The product of a matrix and a vector."""
    return layers.squeeze(binary.matmul(x, layers.unsqueeze(vec, [1])), [1], name)


def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The sum of products along the last dimension."""
    return layers.reduce_sum(x * y, -1, name=name)


def addmm(
    input: Variable,
    x: Variable,
    y: Variable,
    beta: float = 1.0,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """beta * input + alpha * x @ y."""
    product = binary.matmul(x, y, alpha=alpha)
    return product + (input if beta == 1.0 else input * float(beta))


def t(input: Variable, name: str | None = None) -> Variable:
    """The transpose of a matrix; a vector stays as it is.

    Raises:
        InvalidValue: there are more than two dimensions.
    """
    if input.ndim > 2:
        raise InvalidValue(f"t takes at most 2 dimensions, got {input.ndim}: use transpose.")
    return input.T


def kron(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Every element of x times all of y, block by block."""
    return products.kron(x, y, name=name)


max_of, min_of = max, min


def _axes(axis: Axis, layer: str) -> Any:
    for item in axis if isinstance(axis, (list, tuple)) else [axis]:
        if item is not None:
            integer(item, "axis", layer)
    return axis


def _summand(x: Variable, dtype: Any) -> Variable:
    """Return x in the type of its sum: booleans and small integers as int64."""
    if dtype is not None:
        return x if to_var_type(dtype) == x.dtype else layers.cast(x, dtype)
    small = x.dtype == VarType.BOOL or (x.dtype in INTEGERS and x.dtype != VarType.INT64)
    return layers.cast(x, "int64") if small else x


def sum(
    x: Variable,
    axis: Axis = None,
    dtype: Any = None,
    keepdim: bool = False,
    name: str | None = None,
) -> Variable:
    """Sum over ``axis`` (None: all, shape [1])."""
    return layers.reduce_sum(_summand(x, dtype), _axes(axis, "sum"), keepdim, name)


def prod(
    x: Variable,
    axis: Axis = None,
    keepdim: bool = False,
    dtype: Any = None,
    name: str | None = None,
) -> Variable:
    """Product over ``axis``."""
    x = x if dtype is None else _summand(x, dtype)
    return layers.reduce_prod(x, _axes(axis, "prod"), keepdim, name)


def mean(
    x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Mean over ``axis``; of booleans in float32."""
    x = layers.cast(x, "float32") if x.dtype == VarType.BOOL else x
    return layers.reduce_mean(x, _axes(axis, "mean"), keepdim, name)


def max(x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Maximum over ``axis``."""
    return layers.reduce_max(x, _axes(axis, "max"), keepdim, name)


def min(x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Minimum over ``axis``."""
    return layers.reduce_min(x, _axes(axis, "min"), keepdim, name)


def truth(x: Variable) -> Variable:
    """Return x as booleans: what is not zero is true."""
    return x if x.dtype == VarType.BOOL else x != 0


def all(x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Tell whether all elements along ``axis`` (None: all) are true, or not zero: bool."""
    return tensors.reduce_all(truth(x), _axes(axis, "all"), keepdim, name)


def any(x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Tell whether any element along ``axis`` (None: all) is true, or not zero: bool."""
    return tensors.reduce_any(truth(x), _axes(axis, "any"), keepdim, name)


def var(
    x: Variable,
    axis: Axis = None,
    unbiased: bool = True,
    keepdim: bool = False,
    name: str | None = None,
) -> Variable:
    """Mean squared distance from the mean; ``unbiased`` divides by one less than the count."""
    distance = x - layers.reduce_mean(x, axis, True)
    out = layers.reduce_mean(distance * distance, axis, keepdim, name)
    if not unbiased:
        return out
    shape = x.shape or ()
    picked = range(len(shape)) if axis is None else [axis] if isinstance(axis, int) else axis
    count = math.prod(shape[i] for i in picked)
    if -1 in (shape[i] for i in picked):  # a step tells it
        counts = layers.reduce_sum(layers.ones_like(x), axis, keepdim)
        return out * (counts / (counts - 1.0))
    return out * (count / (count - 1.0)) if count > 1 else out * math.nan


def std(
    x: Variable,
    axis: Axis = None,
    unbiased: bool = True,
    keepdim: bool = False,
    name: str | None = None,
) -> Variable:
    """The square root of ``var``."""
    return unary.sqrt(var(x, axis, unbiased, keepdim), name)


def logsumexp(
    x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """log of the sum of exp(x) over ``axis``."""
    x = floats(x)
    largest = layers.reduce_max(x, axis, True)
    total = unary.log(layers.reduce_sum(unary.exp(x - largest), axis, True)) + largest
    return total if keepdim else layers.reduce_sum(total, axis, False, name)


def norm(
    x: Variable, p: Any = None, axis: Any = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """The p-norm over ``axis``: of vectors, or the Frobenius norm ("fro") of matrices.

    Raises:
        InvalidValue: ``p`` is another word.
    """
    if p is None or p == "fro":
        p = 2
    if isinstance(p, str):
        raise InvalidValue(f"norm: p must be a number or 'fro', got {p!r}.")
    size = unary.abs(x)
    if math.isinf(p):
        return (max if p > 0 else min)(size, axis, keepdim, name)
    if p == 0:
        return layers.reduce_sum(layers.cast(x != 0, x.dtype), axis, keepdim, name)
    if p == 1:
        return layers.reduce_sum(size, axis, keepdim, name)
    if p == 2:
        return unary.sqrt(layers.reduce_sum(unary.square(x), axis, keepdim), name)
    return unary.pow(layers.reduce_sum(unary.pow(size, p), axis, keepdim), 1.0 / p, name)


def dist(x: Variable, y: Variable, p: float = 2, name: str | None = None) -> Variable:
    """The p-norm of x - y."""
    return products.dist(x, y, p)


def cumsum(
    x: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Sums of the elements so far along ``axis`` (None: of all, in a row)."""
    x = _summand(x, dtype)
    if axis is None:
        return tensors.cumsum(layers.reshape(x, [-1]), 0)
    return tensors.cumsum(x, axis)


def floats(x: Variable) -> Variable:
    """Return x, integers as float32."""
    return layers.cast(x, "float32") if x.dtype in INTEGERS else x


class _OfFloats(Protocol):
    def __call__(self, x: Variable, name: str | None = None) -> Variable: ...


def _on_floats(compute: Callable[..., Variable], x: Variable, name: str | None = None) -> Variable:
    return compute(floats(x), name=name)


def _of_floats(compute: Callable[..., Variable], text: str) -> _OfFloats:
    text = f"{text} Integers become float32."
    return of_family(_on_floats, compute, compute.__name__, text)


acos = _of_floats(unary.acos, "The angle in [0, pi] whose cosine is x.")
acosh = _of_floats(unary.acosh, "log(x + sqrt(x^2 - 1)).")
asin = _of_floats(unary.asin, "The angle in [-pi/2, pi/2] whose sine is x.")
asinh = _of_floats(unary.asinh, "log(x + sqrt(x^2 + 1)).")
atan = _of_floats(unary.atan, "The angle in (-pi/2, pi/2) whose tangent is x.")
atanh = _of_floats(unary.atanh, "log((1 + x) / (1 - x)) / 2.")
cosh = _of_floats(unary.cosh, "(exp(x) + exp(-x)) / 2.")
digamma = _of_floats(unary.digamma, "The derivative of log |Gamma(x)|.")
expm1 = _of_floats(unary.expm1, "exp(x) - 1, exact near 0.")
lgamma = _of_floats(unary.lgamma, "log |Gamma(x)|.")
log1p = _of_floats(unary.log1p, "log(1 + x), exact near 0.")
log2 = _of_floats(unary.log2, "The logarithm to base 2.")
log10 = _of_floats(unary.log10, "The logarithm to base 10.")
sinh = _of_floats(unary.sinh, "(exp(x) - exp(-x)) / 2.")
tan = _of_floats(unary.tan, "sin(x) / cos(x).")
cos = _of_floats(unary.cos, "The cosine.")
exp = _of_floats(unary.exp, "e to the power x.")
log = _of_floats(unary.log, "The natural logarithm.")
reciprocal = _of_floats(unary.reciprocal, "1 / x.")
rsqrt = _of_floats(unary.rsqrt, "1 / sqrt(x).")
sigmoid = _of_floats(unary.sigmoid, "1 / (1 + exp(-x)).")
sin = _of_floats(unary.sin, "The sine.")
sqrt = _of_floats(unary.sqrt, "The square root.")
tanh = _of_floats(unary.tanh, "The hyperbolic tangent.")


def erf(x: Variable, name: str | None = None) -> Variable:
    """The error function. Integers become float32."""
    return unary.erf(floats(x))


def stanh(
    x: Variable, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None
) -> Variable:
    """scale_b * tanh(scale_a * x). Integers become float32."""
    return activations.stanh(floats(x), scale_a, scale_b, name)


def ceil(x: Variable, name: str | None = None) -> Variable:
    """x rounded up; integers stay."""
    return layers.assign(x) if x.dtype in INTEGERS else unary.ceil(x, name)


def floor(x: Variable, name: str | None = None) -> Variable:
    """x rounded down; integers stay."""
    return layers.assign(x) if x.dtype in INTEGERS else unary.floor(x, name)


def trunc(input: Variable, name: str | None = None) -> Variable:
    """The whole part, towards 0."""
    return layers.assign(input) if input.dtype in INTEGERS else unary.trunc(input, name)


def frac(x: Variable, name: str | None = None) -> Variable:
    """The fraction: x - trunc(x), with the sign of x."""
    return x - trunc(x)


def rad2deg(x: Variable, name: str | None = None) -> Variable:
    """An angle in degrees."""
    return unary.scale(floats(x), 180.0 / math.pi, name=name)


def deg2rad(x: Variable, name: str | None = None) -> Variable:
    """An angle in radians."""
    return unary.scale(floats(x), math.pi / 180.0, name=name)


def isnan(x: Variable, name: str | None = None) -> Variable:
    """Tell which elements are NaN: bool, like x."""
    return binary.not_equal(x, x)


def isinf(x: Variable, name: str | None = None) -> Variable:
    """Tell which elements are infinite: bool, like x."""
    return binary.not_equal(x, x) if x.dtype in INTEGERS else unary.abs(x) > most(x)


def isfinite(x: Variable, name: str | None = None) -> Variable:
    """Tell which elements are finite: bool, like x."""
    return binary.equal(x, x) if x.dtype in INTEGERS else unary.abs(x) <= most(x)


def increment(x: Variable, value: float = 1.0, name: str | None = None) -> Variable:
    """x + value, written to x."""
    return layers.increment(x, float(value))


def multiplex(inputs: Sequence[Variable], index: Variable, name: str | None = None) -> Variable:
    """Row i is row i of input ``index[i]``."""
    return picks.multiplex(inputs, index)


def numel(x: Variable, name: str | None = None) -> Variable:
    """The number of elements, as an int64 of one element."""
    return matrices.size(x)


def cross(x: Variable, y: Variable, axis: int = 9, name: str | None = None) -> Variable:
    """The vector product along ``axis``; 9 stands for the first dimension of 3 elements."""
    return products.cross(x, y, None if axis == 9 else axis)


def inverse(x: Floats, name: str | None = None) -> Variable:
    """The inverses of square matrices; a step with one that has none fails."""
    return layer("inverse", name, input=x)


def cholesky(x: Floats, upper: bool = False, name: str | None = None) -> Variable:
    """Lower triangles L with L L^T = x, or upper ones U with U^T U = x, of positive definite matrices."""
    return layer("cholesky", name, x=x, upper=bool(upper))


publish_definitions(__name__, withhold=(alike, floats, most, truth))
