"""Initializers: each puts one op into the startup program that fills a parameter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...strategies.errors import InvalidValue, require_type
from ...strategies.settings_repr import SettingsRepr
from ...strategies.types import VarType
from ..program.block import Block
from ..program.operator import Operator
from ..program.variable import Variable


class Initializer(SettingsRepr):
    """Base class; calling it with a variable and a startup block prepends the op that fills it."""

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Prepend the op that fills ``variable`` to ``block``."""
        raise NotImplementedError

    def _compute_fans(self, var: Variable) -> tuple[int, int]:  # called by initializers of users
        return fans(var.shape)


# What a program chose for weights (False) and biases (True) without an initializer of their own.
CHOSEN: dict[bool, Initializer | None] = {}


def set_global_initializer(weight_init: Any, bias_init: Any = None) -> None:
    """Choose what parameters without an initializer of their own begin with; None is each layer's own choice.

    Raises:
        InvalidType: it is no initializer.
    """
    for argument, value in (("weight_init", weight_init), ("bias_init", bias_init)):
        require_type(
            value,
            Initializer | None,
            f"set_global_initializer: {argument} must be an initializer or None",
        )
    CHOSEN.update({False: weight_init, True: bias_init})


def _prepend(block: Block, variable: Variable, op_type: str, attrs: dict[str, Any]) -> Operator:
    assert variable.dtype is not None
    full = {"shape": list(variable.shape or ()), "dtype": int(variable.dtype), **attrs}
    op = block._prepend_op(op_type, None, {"Out": variable}, full)
    variable.op = op
    return op


def _seed(own: int, block: Block) -> int:
    return own or block.program.random_seed


def fans(shape: tuple[int, ...] | None) -> tuple[int, int]:
    """Return fan-in and fan-out of a weight: [in, out] for a matrix, [out, in, *kernel] for a filter."""
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    if len(shape) == 2:
        return shape[0], shape[1]
    receptive = math.prod(shape[2:])
    return shape[1] * receptive, shape[0] * receptive


class CopyInitializer(Initializer):
    """The value that another variable of the startup program begins with, in this variable's type."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Append a ``cast`` behind the op that fills the source."""
        source = block.var(self.source)
        assert variable.dtype is not None and source.dtype is not None
        attrs = {"in_dtype": int(source.dtype), "out_dtype": int(variable.dtype)}
        return block.append_op("cast", {"X": source}, {"Out": variable}, attrs)


class ConstantInitializer(Initializer):
    """Every element is ``value``."""

    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        self.value = value
        self.force_cpu = force_cpu

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Prepend ``fill_constant``."""
        attrs = {"value": float(self.value), "force_cpu": self.force_cpu}
        return _prepend(block, variable, "fill_constant", attrs)


class UniformInitializer(Initializer):
    """Uniform from ``low`` to ``high``. ``seed`` 0 means the program's."""

    def __init__(self, low: float = -1.0, high: float = 1.0, seed: int = 0) -> None:
        if not low <= high:
            raise InvalidValue(f"UniformInitializer: low={low} is above high={high}.")
        self.low, self.high, self.seed = low, high, seed

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Prepend ``uniform_random``."""
        attrs = {"min": float(self.low), "max": float(self.high), "seed": _seed(self.seed, block)}
        return _prepend(block, variable, "uniform_random", attrs)


class NormalInitializer(Initializer):
    """Normal with mean ``loc`` and standard deviation ``scale``."""

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        self.loc, self.scale, self.seed = loc, scale, seed

    op_type = "gaussian_random"

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Prepend the op that draws."""
        attrs = {"mean": float(self.loc), "std": float(self.scale), "seed": _seed(self.seed, block)}
        return _prepend(block, variable, self.op_type, attrs)


class TruncatedNormalInitializer(NormalInitializer):
    """Normal, redrawn outside two standard deviations."""

    op_type = "truncated_gaussian_random"


class XavierInitializer(Initializer):
    """Variance 2 / (fan_in + fan_out). Glorot and Bengio, AISTATS 2010, equation 16."""

    def __init__(
        self,
        uniform: bool = True,
        fan_in: float | None = None,
        fan_out: float | None = None,
        seed: int = 0,
    ) -> None:
        self.uniform, self.fan_in, self.fan_out, self.seed = uniform, fan_in, fan_out, seed

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Prepend ``uniform_random`` or ``gaussian_random``."""
        own_in, own_out = self._compute_fans(variable)
        fan_in = own_in if self.fan_in is None else self.fan_in
        fan_out = own_out if self.fan_out is None else self.fan_out
        scaled = _scaled(variable, 2.0, fan_in + fan_out, self.uniform, self.seed)
        return scaled(variable, block)


class MSRAInitializer(Initializer):
    """Variance gain^2 / fan_in. He et al., ICCV 2015, equation 10."""

    def __init__(
        self,
        uniform: bool = True,
        fan_in: float | None = None,
        seed: int = 0,
        *,
        gain: float = math.sqrt(2.0),
    ) -> None:
        self.uniform, self.fan_in, self.seed, self.gain = uniform, fan_in, seed, gain

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Prepend ``uniform_random`` or ``gaussian_random``."""
        fan_in = self._compute_fans(variable)[0] if self.fan_in is None else self.fan_in
        return _scaled(variable, self.gain**2, fan_in, self.uniform, self.seed)(variable, block)


def _scaled(variable: Variable, total: float, fan: float, uniform: bool, seed: int) -> Initializer:
    """Return the initializer whose variance is ``total`` divided by a fan.

    Raises:
        InvalidValue: the fan is not above 0, as of a variable without elements.
    """
    if fan <= 0:
        raise InvalidValue(
            f"variable {variable.name!r} of shape {list(variable.shape or ())}: its initializer divides by "
            f"fan-in and fan-out, which come to {fan:g}. Give sizes above 0, fan_in, or another initializer."
        )
    variance = total / fan
    if uniform:
        limit = math.sqrt(3.0 * variance)
        return UniformInitializer(-limit, limit, seed)
    return NormalInitializer(0.0, math.sqrt(variance), seed)


class BilinearInitializer(Initializer):
    """Filters [out, in, K, K] with which a transposed convolution of stride (K + 1) // 2 interpolates linearly.

    Each is a pyramid: the product of two triangles, 1 - |x / f - c| at x, where f is ceil(K / 2), c the centre.
    Long, Shelhamer and Darrell, arXiv 1411.4038, section 3.3.
    """

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Prepend ``assign_value``.

        Raises:
            InvalidValue: the variable has not four dimensions, or its last two differ.
        """
        shape = variable.shape or ()
        if len(shape) != 4 or shape[2] != shape[3]:
            raise InvalidValue(
                f"BilinearInitializer fills square filters of shape [out, in, K, K], got {list(shape)}."
            )
        half = math.ceil(shape[3] / 2)
        centre = (2 * half - 1 - half % 2) / (2 * half)
        triangle = 1 - np.abs(np.arange(shape[3]) / half - centre)
        filters = np.broadcast_to(np.outer(triangle, triangle), shape)
        return NumpyArrayInitializer(filters)(variable, block)


# Element types -> the attribute of ``assign_value`` that holds numbers of the type
VALUE_ATTRIBUTES = {
    VarType.BOOL: "bool_values",
    VarType.FP16: "fp32_values",
    VarType.BF16: "fp32_values",
    VarType.FP32: "fp32_values",
    VarType.FP64: "fp32_values",
    VarType.INT32: "int32_values",
    VarType.INT64: "int64_values",
}


class NumpyArrayInitializer(Initializer):
    """The elements of an array of the variable's shape."""

    def __init__(self, value: np.ndarray) -> None:
        require_type(value, np.ndarray, "NumpyArrayInitializer takes a numpy array")
        self.value = value

    def __call__(self, variable: Variable, block: Block) -> Operator:
        """Prepend ``assign_value``."""
        assert variable.dtype is not None
        if self.value.shape != variable.shape:
            raise InvalidValue(
                f"NumpyArrayInitializer: parameter {variable.name!r} has shape {list(variable.shape or ())}, "
                f"the array {list(self.value.shape)}."
            )
        if variable.dtype not in VALUE_ATTRIBUTES:
            raise InvalidValue(
                f"NumpyArrayInitializer cannot fill a {variable.dtype.name} variable."
            )
        slot = VALUE_ATTRIBUTES[variable.dtype]
        kind = {"fp32_values": np.float64, "int64_values": np.int64}.get(slot, np.int32)
        return _prepend(
            block, variable, "assign_value", {slot: self.value.astype(kind).ravel().tolist()}
        )


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer
