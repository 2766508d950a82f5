"""Unary activations, each a scalar expression with a scalar gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from . import expr as e
from . import operands
from .operands import Input, Operands, Unary, record_of
from .registry import Grad, define, slope
from .rules import same
from .samples import normal, sample
from .second_order import Second
from .shapes import Sized
from .slopes import SLOPES


class Activation(Unary):
    """Its attributes say which library Paddle is to use: Paddle alone reads them."""

    use_mkldnn: bool = False
    use_cudnn: bool = False


_WHOLE_TOO = ("abs", "exp", "relu", "square")  # make sense of integers


def define_activation(
    name: str,
    scalar: Callable[..., Any],
    reads: str,
    gradient: Callable[..., Any] | None = None,
    *,
    record: type[Operands] = Activation,
    attrs: Mapping[str, Any] | None = None,
    samples: tuple[Any, ...] = (sample("X [3 4]"), sample("X [5]")),
    second: Second | None = None,
) -> None:
    """Declare an activation and its gradient op, which reads ``reads`` (X, Out or none) and Out@GRAD.

    The gradient of a single function follows from it (``slopes.py``) unless told; one that reads none is 0.
    Attributes are those of ``record``, or ``attrs``. ``second`` is the gradient of the gradient, where it is
    not what the expression says.
    """
    if gradient is None:
        gradient = _derived(scalar, reads) if reads else _flat
    if attrs is not None:
        slots = Unary.declared()
        record = operands.record(name, slots.inputs, slots.outputs, attrs)
    define(
        name,
        record,
        same("X") if name in _WHOLE_TOO else Sized("X floats -> Out"),
        scalar=scalar,
        in_place={"Out": "X"},
        samples=samples,
        slope=slope(
            f"{reads.lower()} d_out",
            "d_x",
            second,
            shape=same(reads or "Out@GRAD", "X@GRAD"),
            scalar=gradient,
            in_place={"X@GRAD": "Out@GRAD"},
        ),
    )


def _flat(d_out: e.Expr) -> Any:
    """Return 0 whatever comes down: not 0 * d, which would be nan for an infinity."""
    return e.copy(e.constant(0))


def _derived(scalar: Callable[..., Any], reads: str) -> Callable[..., Any]:
    """Return the gradient of a single function, which is one of X or of Out."""
    derivative = SLOPES[scalar(e.argument("x")).fn]

    def of_x(x: e.Expr, d_out: e.Expr) -> Any:
        return derivative(d_out, scalar(x), x)[0]

    def of_out(out: e.Expr, d_out: e.Expr) -> Any:
        return derivative(d_out, out, None)[0]

    return of_x if reads == "X" else of_out


def away_from_zero(x: e.Expr) -> e.Expr:
    """The nearest whole number; halves go away from zero, unlike NumPy's rint."""
    whole = e.trunc(x)
    return e.where(e.abs_(x - whole) >= 0.5, whole + e.sign(x), whole)


def swish_slope(x: e.Expr, beta: float) -> e.Expr:
    """d/dx of x * sigmoid(beta x)."""
    share = e.sigmoid(x * beta)
    return share + x * beta * share * (1 - share)


_ROOT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715


def gelu_share(x: e.Expr, approximate: bool) -> e.Expr:
    """Phi(x), the normal distribution function, or its tanh form."""
    if approximate:
        return 0.5 + 0.5 * e.tanh(_ROOT_2_OVER_PI * (x + _CUBIC * x * x * x))
    return 0.5 + 0.5 * e.erf(x * math.sqrt(0.5))


def gelu_slope(x: e.Expr, approximate: bool) -> e.Expr:
    """d/dx of x * gelu_share(x)."""
    if approximate:
        t = e.tanh(_ROOT_2_OVER_PI * (x + _CUBIC * x * x * x))
        inner = _ROOT_2_OVER_PI * (1 + 3 * _CUBIC * x * x)
        return 0.5 + 0.5 * t + 0.5 * x * (1 - t * t) * inner
    z = x * math.sqrt(0.5)
    density = e.exp(-z * z) * (1 / math.sqrt(2 * math.pi))
    return gelu_share(x, False) + x * density


_KINKED = (sample({"X": normal(3, 4, away_from=(0.0,))}),)
_POSITIVE = (sample("X 0.5:2.0 [3 4]"),)
_STEPS = (sample("X 0.1:0.4 [3 4]"),)
_ROUNDED = (sample("X -2.4:-1.6 [3 4]"), *_STEPS)

define_activation(
    "relu",
    lambda x: e.maximum(x, 0),
    "Out",
    lambda out, d_out: e.where(out <= 0, 0, d_out),
    samples=_KINKED,
)
define_activation(
    "sigmoid", lambda x: e.sigmoid(x), "Out", lambda out, d_out: d_out * out * (1 - out)
)
define_activation("tanh", lambda x: e.tanh(x), "Out")
define_activation("exp", lambda x: e.exp(x), "Out")
define_activation("square", lambda x: x * x, "X", lambda x, d_out: d_out * 2 * x)
define_activation("log", lambda x: e.log(x), "X", samples=_POSITIVE)
define_activation(
    "sqrt",
    lambda x: e.sqrt(x),
    "Out",
    samples=_POSITIVE,
    second=Second(
        {"Out": "Out", "DX": "X@GRAD", "DDX": "X@GRAD@GRAD"},
        {"DOut": "Out@GRAD", "DDOut": "Out@GRAD@GRAD"},
        {"DOut": ["Out"], "DDOut": ["Out"]},
        lambda out, dx, ddx: (-(dx * ddx / out), ddx * 0.5 / out),
    ),
)
define_activation(
    "rsqrt",
    lambda x: 1 / e.sqrt(x),
    "Out",
    lambda out, d_out: d_out * -0.5 * out * out * out,
    samples=_POSITIVE,
)
define_activation(
    "reciprocal", lambda x: 1 / x, "Out", lambda out, d_out: -(d_out * out * out), samples=_POSITIVE
)
define_activation("abs", lambda x: e.abs_(x), "X", samples=_KINKED)
define_activation("sin", lambda x: e.sin(x), "X")
define_activation("cos", lambda x: e.cos(x), "X")
define_activation("floor", lambda x: e.floor(x), "", samples=_STEPS)
define_activation("ceil", lambda x: e.ceil(x), "", samples=_STEPS)
define_activation("round", away_from_zero, "", samples=_ROUNDED)
define_activation("softplus", lambda x: e.softplus(x), "X", lambda x, d_out: d_out * e.sigmoid(x))
define_activation(
    "logsigmoid",
    lambda x: e.minimum(x, 0) - e.log1p(e.exp(-e.abs_(x))),
    "X",
    lambda x, d_out: d_out * e.sigmoid(-x),
)
define_activation(
    "softsign", lambda x: x / (1 + e.abs_(x)), "X", lambda x, d_out: d_out / e.square(1 + e.abs_(x))
)


define_activation(
    "leaky_relu",
    lambda x, *, alpha: e.maximum(x, x * alpha),
    "Out",
    lambda out, d_out, *, alpha: e.where(out > 0, d_out * max(alpha, 1.0), d_out * min(alpha, 1.0)),
    record=record_of("x", "out", alpha=0.02, use_mkldnn=False),
    samples=(*_KINKED, sample({"X": normal(3, 4, away_from=(0.0,))}, alpha=2.0)),
)


define_activation(
    "relu6",
    lambda x, *, threshold: e.minimum(e.maximum(x, 0), threshold),
    "Out",
    lambda out, d_out, *, threshold: e.where((out > 0) & (out < threshold), d_out, 0),
    record=record_of("x", "out", threshold=6.0),
    samples=_KINKED,
)


define_activation(
    "elu",
    lambda x, *, alpha: e.where(x > 0, x, e.expm1(e.minimum(x, 0)) * alpha),
    "X",
    lambda x, d_out, *, alpha: e.where(x > 0, d_out, d_out * (e.exp(e.minimum(x, 0)) * alpha)),
    record=record_of("x", "out", alpha=1.0),
    samples=_KINKED,
)


define_activation(
    "swish",
    lambda x, *, beta: x * e.sigmoid(x * beta),
    "X",
    lambda x, d_out, *, beta: d_out * swish_slope(x, beta),
    record=record_of("x", "out", beta=1.0, use_mkldnn=False),
)


define_activation(
    "hard_sigmoid",
    lambda x, *, slope, offset: e.minimum(e.maximum(x * slope + offset, 0), 1),
    "Out",
    lambda out, d_out, *, slope: e.where((out > 0) & (out < 1), d_out * slope, 0),
    record=record_of("x", "out", slope=0.2, offset=0.5),
    samples=_KINKED,
)


define_activation(
    "hard_swish",
    lambda x, *, threshold, scale, offset: (
        x * e.minimum(e.maximum(x + offset, 0), threshold) / scale
    ),
    "X",
    lambda x, d_out, *, threshold, scale, offset: (
        d_out
        * e.where(
            (x + offset > 0) & (x + offset < threshold),
            (2 * x + offset) / scale,
            e.minimum(e.maximum(x + offset, 0), threshold) / scale,
        )
    ),
    record=record_of("x", "out", threshold=6.0, scale=6.0, offset=3.0),
    samples=_KINKED,
)


class Gelu(Unary):
    approximate: bool = False
    use_mkldnn: bool = False
    use_cudnn: bool = False


define_activation(
    "gelu",  # Hendrycks and Gimpel, arXiv 1606.08415: x * Phi(x), or its tanh form
    lambda x, *, approximate: x * gelu_share(x, approximate),
    "X",
    lambda x, d_out, *, approximate: d_out * gelu_slope(x, approximate),
    record=Gelu,
    samples=(sample("X [3 4]"), sample("X [3 4]", approximate=True)),
)


class Scale(Unary):
    scale_tensor: Input | None
    scale: float = 1.0
    bias: float = 0.0
    bias_after_scale: bool = True


define(
    "sign",
    Unary,
    same("X"),
    grad=Grad.swap("scale", attrs=lambda attrs: {"scale": 0.0}),
    scalar=lambda x: e.sign(x),
    samples=_KINKED,
)


define(
    "scale",
    Scale,
    same("X"),
    numbers={"ScaleTensor": "scale"},
    grad=Grad.swap(
        "scale", "ScaleTensor", attrs=lambda attrs: {**attrs, "bias": 0.0, "bias_after_scale": True}
    ),
    in_place={"Out": "X"},
    samples=(
        sample("X [3 4]", scale=2.0, bias=0.5),
        sample("X [3 4]", scale=2.0, bias=0.5, bias_after_scale=False),
    ),
)


define(
    "pow",
    record_of("x factor_tensor?", "out", factor=1.0),
    same(),
    numbers={"FactorTensor": "factor"},
    scalar=lambda x, *, factor: x**factor,
    samples=(sample("X 0.5:2.0 [3 4]", factor=2.5),),
    slope=slope(
        "x factor_tensor d_out",
        "d_x",
        numbers={"FactorTensor": "factor"},
        scalar=lambda x, d_out, *, factor: d_out * factor * x ** (factor - 1),
    ),
)


define(
    "clip",
    record_of("x min_tensor:Min? max_tensor:Max?", "out", min=0.0, max=0.0),
    Sized("X -> Out", "min <= max"),
    numbers={"Min": "min", "Max": "max"},
    scalar=lambda x, *, min, max: e.minimum(e.maximum(x, min), max),
    in_place={"Out": "X"},
    samples=(sample({"X": normal(3, 4, away_from=(-0.5, 0.5))}, min=-0.5, max=0.5),),
    slope=slope(
        "x min_tensor max_tensor d_out",
        "d_x",
        numbers={"Min": "min", "Max": "max"},
        scalar=lambda x, d_out, *, min, max: e.where((x > min) & (x < max), d_out, 0),
    ),
)
