"""Activations."""

from __future__ import annotations

from typing import Any

from ...functions.framework import get_default_dtype
from ...graph.layers.initializer import ConstantInitializer
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...strategies.errors import InvalidValue
from .. import functional as F
from .function_layer import FunctionLayer
from .layers import Layer


class CELU(FunctionLayer, of=F.celu): ...


class ELU(FunctionLayer, of=F.elu): ...


class GELU(FunctionLayer, of=F.gelu): ...


class GLU(FunctionLayer, of=F.glu): ...


class Hardshrink(FunctionLayer, of=F.hardshrink): ...


class Hardsigmoid(FunctionLayer, of=F.hardsigmoid, without=("slope", "offset")): ...


class Hardswish(FunctionLayer, of=F.hardswish): ...


class Hardtanh(FunctionLayer, of=F.hardtanh): ...


class LeakyReLU(FunctionLayer, of=F.leaky_relu): ...


class LogSigmoid(FunctionLayer, of=F.log_sigmoid): ...


class LogSoftmax(FunctionLayer, of=F.log_softmax, without=("dtype",)): ...


class Maxout(FunctionLayer, of=F.maxout): ...


class Mish(FunctionLayer, of=F.mish): ...


class ReLU(FunctionLayer, of=F.relu): ...


class ReLU6(FunctionLayer, of=F.relu6): ...


class RReLU(FunctionLayer, of=F.rrelu): ...


class SELU(FunctionLayer, of=F.selu): ...


class Sigmoid(FunctionLayer, of=F.sigmoid): ...


class Silu(FunctionLayer, of=F.silu): ...


SiLU = Silu


class Softmax(FunctionLayer, of=F.softmax, without=("dtype",)): ...


class Softmax2D(Layer):
    """Softmax over the channels of images [N, C, H, W], or [C, H, W]."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Variable) -> Variable:
        """Return shares that sum to 1 at each place.

        Raises:
            InvalidValue: x has neither three nor four dimensions.
        """
        if x.ndim not in (3, 4):
            raise InvalidValue(f"Softmax2D: x must be [N, C, H, W] or [C, H, W], got {x!r}.")
        return F.softmax(x, axis=-3, name=self._name)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        return f"name={self._name}" if self._name else ""


class Softplus(FunctionLayer, of=F.softplus): ...


class Softshrink(FunctionLayer, of=F.softshrink): ...


class Softsign(FunctionLayer, of=F.softsign): ...


class Swish(FunctionLayer, of=F.swish): ...


class Tanh(FunctionLayer, of=F.tanh): ...


class Tanhshrink(FunctionLayer, of=F.tanhshrink): ...


class ThresholdedReLU(FunctionLayer, of=F.thresholded_relu): ...


class PReLU(Layer):
    """x where positive, else weight x; the weights, one or one a channel, are trained and begin at ``init``."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        weight_attr: Any = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._num_parameters, self._init = num_parameters, init
        self._data_format, self._name = data_format, name
        self._weight = self.create_parameter(
            [num_parameters],
            weight_attr,
            get_default_dtype(),
            default_initializer=ConstantInitializer(init),
        )

    def forward(self, x: Variable) -> Variable:
        """x where positive, else weight x."""
        return F.prelu(x, self._weight, self._data_format)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        return (
            f"num_parameters={self._num_parameters}, data_format={self._data_format}, init={self._init}, "
            f"dtype={self._dtype}" + (f", name={self._name}" if self._name else "")
        )


publish_definitions(__name__)
