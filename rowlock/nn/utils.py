"""``paddle.nn.utils``: weights that are computed from other parameters, and parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..executor.feed.scope import global_scope
from ..functions import math as functions
from ..functions.creation import assign
from ..graph.layers import shape as layers
from ..graph.layers import unary
from ..graph.layers.initializer import ConstantInitializer, NormalInitializer
from ..graph.ops.rules import product
from ..graph.program.program import default_startup_program, program_guard
from ..graph.program.variable import Parameter, Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidState, InvalidValue
from .common import normalize
from .layer.common import Linear
from .layer.conv import Conv1DTranspose, Conv2DTranspose, Conv3DTranspose
from .layer.layers import HookRemoveHelper, Layer

_NORMS: WeakKeyDictionary[Layer, dict[str, tuple[_Normed, HookRemoveHelper]]] = WeakKeyDictionary()


class _Normed:
    """A hook that sets a layer's weight to g v / |v|: Salimans and Kingma, arXiv 1602.07868."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def length(self, v: Variable) -> Variable:
        """Return the length of v at each index of ``dim``, or ([1]) as a whole."""
        others = [axis for axis in range(v.ndim) if axis != self.dim]
        return unary.sqrt(layers.reduce_sum(v * v, None if self.dim is None else others))

    def __call__(self, layer: Layer, inputs: Any) -> None:
        g, v = getattr(layer, f"{self.name}_g"), getattr(layer, f"{self.name}_v")
        sizes = [size if axis == self.dim else 1 for axis, size in enumerate(_sizes(v))]
        object.__setattr__(layer, self.name, v * layers.reshape(g / self.length(v), sizes))


class _Divided:
    """A hook that sets a layer's weight to W / (u W v); vectors u and v find its largest singular value.

    While the layer trains, v = W u / |W u| and u = W v / |W v| are taken ``count`` times, and kept.
    """

    def __init__(self, name: str, dim: int, count: int, eps: float) -> None:
        self.name, self.dim, self.count, self.eps = name, dim, count, eps

    def __call__(self, layer: Layer, inputs: Any) -> None:
        weight, u, v = (getattr(layer, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        others = [axis for axis in range(weight.ndim) if axis != self.dim]
        matrix = layers.transpose(weight, [self.dim, *others])
        matrix = layers.reshape(matrix, [_sizes(weight)[self.dim], -1])
        if layer.training:
            buffers = u, v
            for _ in range(self.count):
                v = self._unit(functions.matmul(matrix, u, transpose_x=True))
                u = self._unit(functions.matmul(matrix, v))
            for vector, buffer in zip((u, v), buffers, strict=True):
                assign(vector, buffer)
        largest = layers.reduce_sum(u * functions.matmul(matrix, v))
        object.__setattr__(layer, self.name, weight / largest)

    def _unit(self, vector: Variable) -> Variable:
        unit = normalize(vector, axis=0, epsilon=self.eps)
        unit.stop_gradient = True
        return unit


def _sizes(parameter: Variable) -> tuple[int, ...]:
    return tuple(parameter.shape or ())


def _weight(layer: Layer, name: str, function: str) -> Parameter:
    """Return a parameter of a layer.

    Raises:
        InvalidValue: it has none of this name.
    """
    parameter = layer._parameters.get(name)
    if parameter is None:
        names = ", ".join(layer._parameters) or "none"
        raise InvalidValue(
            f"{function}: {type(layer).__name__} has no parameter {name!r}; it has {names}."
        )
    return parameter


def weight_norm(layer: Layer, name: str = "weight", dim: int | None = 0) -> Layer:
    """Have ``<name>`` computed from its direction ``<name>_v`` and its length ``<name>_g``, which are trained.

    The weight begins as it was initialised. v keeps the parameter's name in the program.

    Args:
        dim: at each index of this dimension there is a length; None or -1: one for all, as in Paddle.

    Raises:
        InvalidValue: there is no such parameter, or no such dimension.
        InvalidState: it is computed so already.
    """
    if f"{name}_v" in layer._parameters:
        raise InvalidState(f"weight_norm: {name!r} of {layer.full_name()} is computed so already.")
    v = _weight(layer, name, "weight_norm")
    if dim is not None and not -v.ndim <= dim < v.ndim:
        raise InvalidValue(f"weight_norm: dim={dim} is outside the {v.ndim} dimensions of {name}.")
    hook = _Normed(name, None if dim in (None, -1) else dim % v.ndim)
    sizes = [1] if hook.dim is None else [_sizes(v)[hook.dim]]
    delattr(layer, name)
    layer.add_parameter(f"{name}_v", v)
    start = ConstantInitializer(1.0)
    g = layer.create_parameter(sizes, dtype=v.dtype, default_initializer=start)
    layer.add_parameter(f"{name}_g", g)
    startup = default_startup_program()
    with program_guard(startup, startup):
        block = startup.global_block()
        assign(hook.length(block.var(v.name)), block.var(g.name))
    hook(layer, ())
    _NORMS.setdefault(layer, {})[name] = hook, layer.register_forward_pre_hook(hook)
    return layer


def remove_weight_norm(layer: Layer, name: str = "weight") -> Layer:
    """Make the weight a parameter again. Where its parts have values in the global scope it gets theirs.

    Raises:
        InvalidValue: it is not computed by :func:`weight_norm`.
    """
    if name not in _NORMS.get(layer, {}):
        raise InvalidValue(
            f"remove_weight_norm: {name!r} of {layer.full_name()} has no weight_norm."
        )
    hook, handle = _NORMS[layer].pop(name)
    handle.remove()
    v, g = (_weight(layer, f"{name}_{part}", "remove_weight_norm") for part in "vg")
    values = [global_scope().find_var(parameter.name) for parameter in (v, g)]
    tensors = [value.get_tensor() for value in values if value is not None]
    if len(tensors) == 2 and all(tensor.initialized for tensor in tensors):
        direction, lengths = map(np.array, tensors)
        axes = tuple(axis for axis in range(direction.ndim) if axis != hook.dim)
        size = np.sqrt((direction * direction).sum(axes, keepdims=True))
        tensors[0].set(direction / size * lengths.reshape(size.shape))
    for attribute in (f"{name}_v", f"{name}_g", name):
        delattr(layer, attribute)
    layer.add_parameter(name, v)
    return layer


def spectral_norm(
    layer: Layer,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Layer:
    """Have ``<name>`` be ``<name>_orig`` by its largest singular value: Miyato et al., arXiv 1802.05957.

    Args:
        n_power_iterations: how often the vectors that find the value are bettered.
        eps: what their lengths are at least.
        dim: the rows of the weight as a matrix; None: 1 of ``Linear`` and transposed convolutions, else 0.

    Raises:
        InvalidValue: there is no such parameter, or no iteration.
        InvalidState: it is computed so already.
    """
    if n_power_iterations <= 0:
        raise InvalidValue(
            f"spectral_norm: n_power_iterations must be above 0, got {n_power_iterations}."
        )
    if f"{name}_orig" in layer._parameters:
        raise InvalidState(
            f"spectral_norm: {name!r} of {layer.full_name()} is computed so already."
        )
    weight = _weight(layer, name, "spectral_norm")
    if dim is None:
        turned = (Conv1DTranspose, Conv2DTranspose, Conv3DTranspose, Linear)
        dim = int(isinstance(layer, turned))
    hook = _Divided(name, dim % weight.ndim, n_power_iterations, eps)
    height = _sizes(weight)[hook.dim]
    sizes = [height, product(_sizes(weight)) // height]
    delattr(layer, name)
    layer.add_parameter(f"{name}_orig", weight)
    startup = default_startup_program()
    for part, size in zip("uv", sizes, strict=True):
        start = NormalInitializer(0.0, 1.0)
        vector = layer.create_parameter([size, 1], dtype=weight.dtype, default_initializer=start)
        vector.stop_gradient, vector.trainable = True, False
        layer.register_buffer(f"{name}_{part}", vector)
        with program_guard(startup, startup):
            drawn = startup.global_block().var(vector.name)
            assign(normalize(drawn, axis=0, epsilon=eps), drawn)
    hook(layer, ())
    layer.register_forward_pre_hook(hook)
    return layer


def parameters_to_vector(parameters: Iterable[Variable], name: str | None = None) -> Variable:
    """All elements of parameters, one parameter behind the other."""
    return layers.concat([layers.reshape(p, [-1]) for p in parameters], 0, name)


def vector_to_parameters(
    vec: Variable, parameters: Iterable[Variable], name: str | None = None
) -> None:
    """Have the program write a vector's elements into parameters, one behind the other.

    Raises:
        InvalidValue: there are not as many elements as those of the parameters.
    """
    every = list(parameters)
    sizes = [product(p.shape or ()) for p in every]
    if (vec.shape or (-1,))[0] not in (-1, sum(sizes)):
        raise InvalidValue(
            f"vector_to_parameters: vec has {list(vec.shape or ())} elements, and the parameters {sum(sizes)}."
        )
    for parameter, part in zip(every, layers.split(vec, sizes, 0), strict=True):
        assign(layers.reshape(part, list(parameter.shape or ())), parameter)


publish_definitions(__name__)
