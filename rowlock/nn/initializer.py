"""``paddle.nn.initializer``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..functions.creation import diag
from ..functions.manipulation import reshape, transpose
from ..functions.random import standard_normal
from ..graph.layers import initializer as base
from ..graph.layers.initializer import Constant as Constant
from ..graph.layers.initializer import Uniform as Uniform
from ..graph.layers.initializer import set_global_initializer as set_global_initializer
from ..graph.layers.unary import sign
from ..graph.program.block import Block
from ..graph.program.operator import Operator
from ..graph.program.program import program_guard
from ..graph.program.variable import Variable
from ..linalg import qr
from ..names import publish_definitions
from ..strategies.errors import InvalidValue

_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
_LINEAR = (
    "sigmoid",
    "linear",
    *(f"conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose")),
)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By what weights in front of ``nonlinearity`` are multiplied so that variances stay.

    Args:
        param: the slope of "leaky_relu" below zero (0.01 unless told).

    Raises:
        InvalidValue: another nonlinearity.
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    gains = _GAINS | dict.fromkeys(_LINEAR, 1.0)
    if nonlinearity not in gains:
        names = ", ".join(sorted([*gains, "leaky_relu"]))
        raise InvalidValue(f"nonlinearity is one of {names}, got {nonlinearity!r}.")
    return gains[nonlinearity]


class Normal(base.NormalInitializer):
    """Normal with ``mean`` and standard deviation ``std``."""

    def __init__(self, mean: float = 0.0, std: float = 1.0, name: str | None = None) -> None:
        super().__init__(mean, std)


class TruncatedNormal(base.TruncatedNormalInitializer):
    """Normal with ``mean`` and standard deviation ``std``, redrawn outside two standard deviations."""

    def __init__(self, mean: float = 0.0, std: float = 1.0, name: str | None = None) -> None:
        super().__init__(mean, std)


class XavierUniform(base.XavierInitializer):
    """Uniform with variance 2 / (fan_in + fan_out)."""

    def __init__(
        self, fan_in: float | None = None, fan_out: float | None = None, name: str | None = None
    ) -> None:
        super().__init__(True, fan_in, fan_out)


class XavierNormal(base.XavierInitializer):
    """Normal with variance 2 / (fan_in + fan_out)."""

    def __init__(
        self, fan_in: float | None = None, fan_out: float | None = None, name: str | None = None
    ) -> None:
        super().__init__(False, fan_in, fan_out)


class KaimingUniform(base.MSRAInitializer):
    """Uniform with variance gain^2 / fan_in: see :func:`calculate_gain`."""

    def __init__(
        self, fan_in: float | None = None, negative_slope: float = 0.0, nonlinearity: str = "relu"
    ) -> None:
        super().__init__(True, fan_in, gain=calculate_gain(nonlinearity, negative_slope))


class KaimingNormal(base.MSRAInitializer):
    """Normal with variance gain^2 / fan_in: see :func:`calculate_gain`."""

    def __init__(
        self, fan_in: float | None = None, negative_slope: float = 0.0, nonlinearity: str = "relu"
    ) -> None:
        super().__init__(False, fan_in, gain=calculate_gain(nonlinearity, negative_slope))


class Assign(base.NumpyArrayInitializer):
    """The elements of an array."""

    def __init__(self, value: Any, name: str | None = None) -> None:
        super().__init__(np.asarray(value))


class Dirac(base.Initializer):
    """Filters [out, in, ...] of convolutions that hand channels on: one in the middle, of each of ``groups``.

    Raises:
        InvalidValue: the filters have not three to five dimensions, or ``groups`` does not divide their number.
    """

    def __init__(self, groups: int = 1, name: str | None = None) -> None:
        self.groups = groups

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Prepend ``assign_value``."""
        shape = variable.shape or ()
        if len(shape) not in (3, 4, 5) or shape[0] % self.groups:
            raise InvalidValue(
                f"Dirac fills filters [out, in, ...] of 3 to 5 dimensions whose number {self.groups} groups "
                f"share, got {list(shape)} for {variable.name!r}."
            )
        filters = np.zeros(shape, np.float32)
        middle = tuple(size // 2 for size in shape[2:])
        size = shape[0] // self.groups
        for group in range(self.groups):
            for channel in range(min(size, shape[1])):
                filters[(group * size + channel, channel, *middle)] = 1.0
        return base.NumpyArrayInitializer(filters)(variable, block)


class Orthogonal(base.Initializer):
    """``gain`` times a matrix with orthogonal rows, or columns where they are fewer; [rows, ...] counts as one.

    Q of a normal matrix, with the signs of R's diagonal: Saxe et al., arXiv 1312.6120.

    Raises:
        InvalidValue: the variable has less than two dimensions.
    """

    def __init__(self, gain: float = 1.0, name: str | None = None) -> None:
        self.gain = gain

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Append the ops to the startup program that ``block`` is of."""
        shape = variable.shape or ()
        if len(shape) < 2:
            raise InvalidValue(
                f"Orthogonal fills matrices, and {variable.name!r} has shape {list(shape)}."
            )
        rows, columns = shape[0], math.prod(shape[1:])
        with program_guard(block.program):
            q, r = qr(standard_normal([max(rows, columns), min(rows, columns)], variable.dtype))
            q = q * sign(diag(r))
            q = transpose(q, [1, 0]) if rows < columns else q
            full = reshape(q, list(shape))
            attrs = {"scale": float(self.gain)}
            return block.append_op("scale", {"X": full}, {"Out": variable}, attrs)


Bilinear = base.BilinearInitializer

publish_definitions(__name__, "Bilinear Constant Uniform set_global_initializer")
