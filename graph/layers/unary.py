"""Activations and other functions of one tensor, element by element."""

from __future__ import annotations

from typing import Any

from ..program.variable import Variable
from .arguments import of_family
from .helper import LayerHelper, layer, layers
from .numbers import numbers_of


def _of_elements(op_type: str, x: Variable, name: str | None = None) -> Variable:
    """Apply ``{name}`` to every element of ``x``; the shape and type stay."""
    return layer(op_type, name, x=x)


abs = of_family(_of_elements, "abs")
acos = of_family(_of_elements, "acos")
acosh = of_family(_of_elements, "acosh")
asin = of_family(_of_elements, "asin")
asinh = of_family(_of_elements, "asinh")
atan = of_family(_of_elements, "atan")
atanh = of_family(_of_elements, "atanh")
ceil = of_family(_of_elements, "ceil")
cos = of_family(_of_elements, "cos")
cosh = of_family(_of_elements, "cosh")
digamma = of_family(_of_elements, "digamma")
exp = of_family(_of_elements, "exp")
expm1 = of_family(_of_elements, "expm1")
floor = of_family(_of_elements, "floor")
lgamma = of_family(_of_elements, "lgamma")
log = of_family(_of_elements, "log")
log2 = of_family(_of_elements, "log2")
log10 = of_family(_of_elements, "log10")
logsigmoid = of_family(_of_elements, "logsigmoid")
reciprocal = of_family(_of_elements, "reciprocal")
relu = of_family(_of_elements, "relu")
round = of_family(_of_elements, "round")
rsqrt = of_family(_of_elements, "rsqrt")
sigmoid = of_family(_of_elements, "sigmoid")
sign = of_family(_of_elements, "sign")
sin = of_family(_of_elements, "sin")
sinh = of_family(_of_elements, "sinh")
softplus = of_family(_of_elements, "softplus")
softsign = of_family(_of_elements, "softsign")
sqrt = of_family(_of_elements, "sqrt")
square = of_family(_of_elements, "square")
tan = of_family(_of_elements, "tan")
tanh = of_family(_of_elements, "tanh")
trunc = of_family(_of_elements, "trunc")


def erf(x: Variable) -> Variable:
    """The error function."""
    return layer("erf", x=x)


def log1p(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """log(1 + x), exact near 0; written to ``out`` if that is given."""
    return layer("log1p", name, x=x, out=out)


def gelu(x: Variable, approximate: bool = False) -> Variable:
    """x * Phi(x), or its tanh form."""
    return layer("gelu", x=x, approximate=approximate)


def leaky_relu(x: Variable, alpha: float = 0.02, name: str | None = None) -> Variable:
    """x where positive, else alpha x."""
    return layer("leaky_relu", name, x=x, alpha=alpha)


def relu6(x: Variable, threshold: float = 6.0, name: str | None = None) -> Variable:
    """min(max(x, 0), threshold)."""
    return layer("relu6", name, x=x, threshold=threshold)


def elu(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """x where positive, else alpha (exp(x) - 1)."""
    return layer("elu", name, x=x, alpha=alpha)


def swish(x: Variable, beta: float = 1.0, name: str | None = None) -> Variable:
    """x * sigmoid(beta x)."""
    return layer("swish", name, x=x, beta=beta)


def hard_sigmoid(
    x: Variable, slope: float = 0.2, offset: float = 0.5, name: str | None = None
) -> Variable:
    """slope x + offset, cut to [0, 1]."""
    return layer("hard_sigmoid", name, x=x, slope=slope, offset=offset)


def hard_swish(
    x: Variable,
    threshold: float = 6.0,
    scale: float = 6.0,
    offset: float = 3.0,
    name: str | None = None,
) -> Variable:
    """x * min(max(x + offset, 0), threshold) / scale."""
    return layer("hard_swish", name, x=x, threshold=threshold, scale=scale, offset=offset)


def pow(x: Variable, factor: Any = 1.0, name: str | None = None) -> Variable:
    """x to the power ``factor`` (a number or a Variable)."""
    return layer("pow", name, x=x, **numbers_of("pow", "factor", factor))


def clip(x: Variable, min: Any, max: Any, name: str | None = None) -> Variable:
    """x cut to [min, max] (numbers or Variables)."""
    low, high = (numbers_of("clip", attr, value) for attr, value in (("min", min), ("max", max)))
    return layer("clip", name, x=x, **low, **high)


def clip_by_norm(x: Variable, max_norm: float, name: str | None = None) -> Variable:
    """x scaled down to a norm of at most ``max_norm``."""
    return layer("clip_by_norm", name, x=x, max_norm=max_norm)


def softmax(
    input: Variable, use_cudnn: bool = False, name: str | None = None, axis: int = -1
) -> Variable:
    """exp(x) / sum(exp(x)) along ``axis``, of floats; the shape and type stay.

    Raises:
        ShapeError: ``input`` holds no floats, or ``axis`` is outside.
    """
    return layer("softmax", name, x=input, axis=axis, use_cudnn=use_cudnn)


def scale(
    x: Variable,
    scale: Any = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """scale x + bias, or scale (x + bias); ``scale`` is a number or a Variable."""
    helper = LayerHelper("scale", name)
    attrs = {"bias": bias, "bias_after_scale": bias_after_scale}
    out = helper.layer("scale", x=x, **numbers_of("scale", "scale", scale), **attrs)
    return helper.activate(out, act)


def dropout(
    x: Variable,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Zero elements with ``dropout_prob`` while training.

    ``downgrade_in_infer`` multiplies by 1 - p when testing, ``upscale_in_train`` divides by it in training.
    Each step draws anew, unless ``seed`` is set here: the program's seed makes runs the same, not steps.
    Shape and type stay. A clone ``for_test`` is one with ``is_test``.

    Raises:
        NotANumber: ``dropout_prob`` is no number.
        ShapeError: it is not between 0 and 1, or ``dropout_implementation`` is neither.
    """
    attrs = {
        "dropout_prob": dropout_prob,
        "is_test": is_test,
        "fix_seed": seed is not None,
        "seed": seed or 0,
        "dropout_implementation": dropout_implementation,
    }
    return layers("dropout", name, "Out Mask", "Mask", x=x, **attrs)[0]
