"""``paddle.nn.initializer``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.layers import initializer as base
from ..graph.layers.initializer import Constant, Normal, TruncatedNormal, Uniform
from ..names import listing, missing


class XavierUniform(base.XavierInitializer):
    """Uniform with variance 2 / (fan_in + fan_out)."""

    def __init__(self, fan_in: float | None = None, fan_out: float | None = None) -> None:
        super().__init__(True, fan_in, fan_out)


class XavierNormal(base.XavierInitializer):
    """Normal with variance 2 / (fan_in + fan_out)."""

    def __init__(self, fan_in: float | None = None, fan_out: float | None = None) -> None:
        super().__init__(False, fan_in, fan_out)


class KaimingUniform(base.MSRAInitializer):
    """Uniform with variance 2 / fan_in."""

    def __init__(self, fan_in: float | None = None) -> None:
        super().__init__(True, fan_in)


class KaimingNormal(base.MSRAInitializer):
    """Normal with variance 2 / fan_in."""

    def __init__(self, fan_in: float | None = None) -> None:
        super().__init__(False, fan_in)


class Assign(base.NumpyArrayInitializer):
    """The elements of an array."""

    def __init__(self, value: Any) -> None:
        super().__init__(np.asarray(value))


__all__ = [
    "Assign",
    "Constant",
    "KaimingNormal",
    "KaimingUniform",
    "Normal",
    "TruncatedNormal",
    "Uniform",
    "XavierNormal",
    "XavierUniform",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
