"""Normalisation of samples: groups of channels, single ones, nearby ones; weights by their spectrum."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...functions.framework import get_default_dtype
from ...graph.layers.arguments import check_variable
from ...graph.layers.helper import layer
from ...graph.layers.initializer import ConstantInitializer, NormalInitializer
from ...graph.layers.param_attr import ParamAttr
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...strategies.errors import InvalidValue
from .. import functional as F
from ..norms import channels_last, group_norm
from .common import named
from .function_layer import DimensionedLayer, FunctionLayer
from .layers import Layer


class GroupNorm(Layer):
    """Normalise the channels of each group together, of every sample."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        epsilon: float = 1e-5,
        *,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype() if dtype is None else dtype)
        last = channels_last(data_format, "GroupNorm")
        self._num_groups, self._num_channels, self._epsilon = num_groups, num_channels, epsilon
        self._data_format = "NHWC" if last else "NCHW"
        one = ConstantInitializer(1.0)
        self.weight = self.create_parameter(
            [num_channels], weight_attr if affine else False, default_initializer=one
        )
        self.bias = self.create_parameter(
            [num_channels], bias_attr if affine else False, is_bias=True
        )

    def forward(self, input: Variable) -> Variable:
        """Return ``input`` with groups of mean 0 and variance 1, scaled and shifted."""
        settings = (self._num_groups, self._epsilon, self.weight, self.bias, self._data_format)
        return group_norm(input, *settings)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        return (
            f"num_groups={self._num_groups}, num_channels={self._num_channels}, "
            f"epsilon={self._epsilon}"
        )


class _InstanceNorm(DimensionedLayer):
    _ranks: ClassVar[tuple[int, ...]]

    def __init__(
        self,
        num_features: int,
        epsilon: float = 1e-5,
        momentum: float = 0.9,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "",
        name: str | None = None,
    ) -> None:
        super().__init__()
        if (weight_attr is False) != (bias_attr is False):
            kind = type(self).__name__
            raise InvalidValue(f"{kind}: weight_attr and bias_attr are both False, or neither.")
        self._num_features, self._epsilon, self._momentum = num_features, epsilon, momentum
        self._data_format = data_format
        one = ConstantInitializer(1.0)
        self.scale = self.create_parameter([num_features], weight_attr, default_initializer=one)
        self.bias = self.create_parameter([num_features], bias_attr, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        """Return ``input`` with channels of mean 0 and variance 1, by sample, scaled and shifted."""
        check_variable(input, "input", type(self).__name__)
        if input.ndim not in self._ranks:
            ranks = " or ".join(map(str, self._ranks))
            kind = type(self).__name__
            raise InvalidValue(f"{kind}: {ranks} dimensions are needed, got {input!r}.")
        return F.instance_norm(input, weight=self.scale, bias=self.bias, eps=self._epsilon)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        return f"num_features={self._num_features}, epsilon={self._epsilon}"


class InstanceNorm1D(_InstanceNorm, data_format="NCL"):
    """Normalise each channel of each sequence [N, C, L], or row [N, C]."""

    _ranks = (2, 3)


class InstanceNorm2D(_InstanceNorm, data_format="NCHW"):
    """Normalise each channel of each image."""

    _ranks = (4,)


class InstanceNorm3D(_InstanceNorm, data_format="NCDHW"):
    """Normalise each channel of each volume."""

    _ranks = (5,)


class LocalResponseNorm(FunctionLayer, of=F.local_response_norm):
    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        order = "" if self.data_format == "NCHW" else f", data_format={self.data_format}"
        return (
            f"size={self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
            f"{order}{named(self.name)}"
        )


class SpectralNorm(Layer):
    """Divide a weight by its largest singular value, as a matrix whose rows are dimension ``dim``."""

    def __init__(
        self,
        weight_shape: Any,
        dim: int = 0,
        power_iters: int = 1,
        eps: float = 1e-12,
        dtype: Any = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        sizes = list(weight_shape)
        if min(sizes, default=0) <= 0 or not -len(sizes) <= dim < len(sizes):
            raise InvalidValue(f"SpectralNorm: no dimension {dim} of sizes above 0 in {sizes}.")
        self._dim, self._power_iters, self._eps = dim, power_iters, eps
        for attribute, size in (
            ("weight_u", sizes[dim]),
            ("weight_v", math.prod(sizes) // sizes[dim]),
        ):
            start = NormalInitializer(0.0, 1.0)
            vector = self.create_parameter([size], ParamAttr(), dtype, default_initializer=start)
            vector.stop_gradient = True
            setattr(self, attribute, vector)

    def forward(self, x: Variable) -> Variable:
        """Return the weight in its shape, with a largest singular value of about 1."""
        check_variable(x, "x", "SpectralNorm")
        attrs = {"dim": self._dim, "power_iters": self._power_iters, "eps": float(self._eps)}
        vectors = {"u": self.weight_u, "v": self.weight_v}
        return layer("spectral_norm", self.full_name(), weight=x, **vectors, **attrs)


publish_definitions(__name__)
