"""Normalisation."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...functions.framework import get_default_dtype
from ...graph.layers.arguments import check_variable
from ...graph.layers.initializer import ConstantInitializer
from ...graph.layers.param_attr import ParamAttr
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...strategies.errors import InvalidValue
from .. import functional as F
from ..common import append_batch_norm
from .common import named
from .function_layer import DimensionedLayer
from .layers import Layer


class LayerNorm(Layer):
    """Normalise each sample over its last dimensions, which ``normalized_shape`` names."""

    def __init__(
        self,
        normalized_shape: Any,
        epsilon: float = 1e-5,
        *,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        weight_attr: Any = None,
        bias_attr: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype() if dtype is None else dtype)
        sizes = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
        self._normalized_shape, self._epsilon = sizes, epsilon
        self.weight = self.create_parameter(
            [math.prod(sizes)],
            weight_attr if elementwise_affine else False,
            default_initializer=ConstantInitializer(1.0),
        )
        self.bias = self.create_parameter(
            [math.prod(sizes)], bias_attr if elementwise_affine and bias else False, is_bias=True
        )

    def forward(self, input: Variable) -> Variable:
        """Return ``input`` with mean 0 and variance 1, scaled and shifted."""
        return F.layer_norm(input, self._normalized_shape, self.weight, self.bias, self._epsilon)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        return f"normalized_shape={self._normalized_shape}, epsilon={self._epsilon}"


class _Normed(Layer):
    """Scale, shift and running statistics of channels."""

    def _create(
        self,
        channels: int,
        attrs: tuple[Any, Any],
        names: tuple[str | None, str | None],
        **mean: Any,
    ) -> None:
        one = ConstantInitializer(1.0)
        self.weight = self.create_parameter([channels], attrs[0], default_initializer=one)
        self.bias = self.create_parameter([channels], attrs[1], is_bias=True)
        for attribute, name, start in zip(("_mean", "_variance"), names, (0.0, 1.0), strict=True):
            initializer = ConstantInitializer(start)
            attr = ParamAttr(name=name, initializer=initializer, trainable=False, **mean)
            parameter = self.create_parameter([channels], attr)
            parameter.stop_gradient = True
            setattr(self, attribute, parameter)

    def _batch_norm(
        self, input: Variable, data_format: str, use_global_stats: bool | None
    ) -> Variable:
        return F.batch_norm(
            input,
            self._mean,
            self._variance,
            self.weight,
            self.bias,
            self.training,
            self._momentum,
            self._epsilon,
            data_format,
            use_global_stats,
        )


class BatchNorm(_Normed):
    """Batch norm with the arguments of ``fluid.dygraph.BatchNorm``, and an activation."""

    def __init__(
        self,
        num_channels: int,
        act: str | None = None,
        is_test: bool = False,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        param_attr: Any = None,
        bias_attr: Any = None,
        dtype: Any = "float32",
        data_layout: str = "NCHW",
        in_place: bool = False,
        moving_mean_name: str | None = None,
        moving_variance_name: str | None = None,
        do_model_average_for_mean_and_var: bool = True,
        use_global_stats: bool = False,
        trainable_statistics: bool = False,
    ) -> None:
        super().__init__(dtype="float32" if dtype == "float16" else dtype)
        names = (moving_mean_name, moving_variance_name)
        averaged = do_model_average_for_mean_and_var
        self._create(num_channels, (param_attr, bias_attr), names, do_model_average=averaged)
        self._act, self._data_layout = act, data_layout
        self._momentum, self._epsilon, self._use_global_stats = momentum, epsilon, use_global_stats
        self._trainable_statistics = trainable_statistics
        self.training = not is_test

    def forward(self, input: Variable) -> Variable:
        """Normalise each channel, and apply the activation."""
        global_stats = self._use_global_stats or (False if self._trainable_statistics else None)
        y = self._batch_norm(input, self._data_layout, global_stats)
        return self._helper.activate(y, self._act)


class _BatchNorm(_Normed, DimensionedLayer):
    """Batch norm of inputs with ``_ranks`` dimensions in one of ``_formats``."""

    _ranks: ClassVar[tuple[int, ...]]
    _formats: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "",
        use_global_stats: bool | None = None,
        name: str | None = None,
    ) -> None:
        dtype = get_default_dtype()
        super().__init__(dtype="float32" if dtype == "float16" else dtype)
        self._weight_attr, self._bias_attr, self._name = weight_attr, bias_attr, name
        names = (f"{name}_mean", f"{name}_variance") if name else (None, None)
        self._create(num_features, (weight_attr, bias_attr), names)
        self._num_features, self._momentum, self._epsilon = num_features, momentum, epsilon
        self._data_format, self._use_global_stats = data_format, use_global_stats

    def forward(self, input: Variable) -> Variable:
        """Normalise each channel: over the batch while training, else by the running statistics.

        Raises:
            InvalidValue: the input has another number of dimensions, or ``data_format`` does not fit.
        """
        kind = type(self).__name__
        check_variable(input, "input", kind)
        if self._data_format not in self._formats:
            raise InvalidValue(
                f"{kind}: data_format is one of {self._formats}, got {self._data_format!r}."
            )
        if input.ndim not in self._ranks:
            ranks = " or ".join(map(str, self._ranks))
            raise InvalidValue(f"{kind}: {ranks} dimensions are needed, got {input!r}.")
        return self._normalise(input)

    def _normalise(self, input: Variable) -> Variable:
        return self._batch_norm(input, self._data_format, self._use_global_stats)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        order = "" if self._data_format == "NCHW" else f", data_format={self._data_format}"
        return (
            f"num_features={self._num_features}, momentum={self._momentum}, epsilon={self._epsilon}"
            f"{order}{named(self._name)}"
        )


class BatchNorm1D(_BatchNorm, data_format="NCL"):
    """Batch norm of rows [N, C] or sequences [N, C, L]."""

    _ranks, _formats = (2, 3), ("NC", "NCL", "NLC", "NCHW", "NHWC")


class BatchNorm2D(_BatchNorm, data_format="NCHW"):
    """Batch norm of images."""

    _ranks, _formats = (4,), ("NCHW", "NHWC")


class BatchNorm3D(_BatchNorm, data_format="NCDHW"):
    """Batch norm of volumes."""

    _ranks, _formats = (5,), ("NCHW", "NHWC", "NCDHW", "NDHWC")


class SyncBatchNorm(_BatchNorm, data_format="NCHW"):
    """Batch norm whose statistics are, while training on several places, those of the whole batch."""

    _ranks = (2, 3, 4, 5)
    _formats = ("NC", "NCL", "NLC", "NCHW", "NHWC", "NCDHW", "NDHWC")

    def __init__(
        self,
        num_features: int,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        weight_attr: Any = None,
        bias_attr: Any = None,
        data_format: str = "",
        name: str | None = None,
    ) -> None:
        attrs = (weight_attr, bias_attr)
        super().__init__(num_features, momentum, epsilon, *attrs, data_format, None, name)
        self._fix()

    def _fix(self) -> None:
        """Give the op a scale and a shift that stay, where the layer has none of its own."""
        for attribute, start in (("weight", 1.0), ("bias", 0.0)):
            if getattr(self, attribute) is None:
                fixed = ParamAttr(initializer=ConstantInitializer(start), trainable=False)
                setattr(self, attribute, self.create_parameter([self._num_features], fixed))

    def _normalise(self, input: Variable) -> Variable:
        inputs = {
            "X": input,
            "Scale": self.weight,
            "Bias": self.bias,
            "Mean": self._mean,
            "Variance": self._variance,
        }
        last = self._data_format in ("NHWC", "NLC", "NDHWC")
        attrs = {
            "momentum": self._momentum,
            "epsilon": self._epsilon,
            "is_test": not self.training,
            "data_layout": "NHWC" if last else "NCHW",
        }
        return append_batch_norm("sync_batch_norm", inputs, attrs, self._name)

    @classmethod
    def convert_sync_batchnorm(cls, layer: Layer) -> Layer:
        """Put a SyncBatchNorm with the same parameters in place of each batch norm, and return the layer."""
        if isinstance(layer, _BatchNorm) and not isinstance(layer, SyncBatchNorm):
            converted = SyncBatchNorm.__new__(SyncBatchNorm)
            Layer.__init__(converted, dtype=layer._dtype)
            settings = {k: v for k, v in vars(layer).items() if k not in vars(converted)}
            vars(converted).update(settings, training=layer.training)
            converted._parameters.update(layer._parameters)
            converted._fix()
            return converted
        for name, child in list(layer.named_children()):
            layer.add_sublayer(name, cls.convert_sync_batchnorm(child))
        return layer


publish_definitions(__name__)
