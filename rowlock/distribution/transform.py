"""Functions of random numbers, and the distributions of their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..functions import math as functions
from ..functions.counting import cumprod
from ..functions.creation import constant, ones_like, zeros_like
from ..graph.layers import shape as layers
from ..graph.layers import tensors, unary
from ..graph.layers.arguments import check_variable
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..nn.activations import log_sigmoid, softmax, softplus
from ..strategies.errors import InvalidType, InvalidValue, Unsupported, require_type
from .base import Distribution
from .composed import Independent
from .parameters import aligned, broadcast, sum_last, values_of

Sizes = Sequence[int]


class Transform:
    """A function of tensors. One's own has ``_forward``, ``_inverse`` and ``_forward_log_det_jacobian``."""

    _ranks = (0, 0)  # the dimensions of an event before and behind
    _is_injective = True

    def __call__(self, input: Any) -> Any:
        """Return the function of a tensor, the distribution of its values, or the chain of both functions."""
        if isinstance(input, Distribution):
            return TransformedDistribution(input, [self])
        return (
            ChainTransform([self, input]) if isinstance(input, Transform) else self.forward(input)
        )

    def _checked(self, value: Variable, side: int, argument: str) -> Variable:
        kind, rank = type(self).__name__, self._ranks[side]
        check_variable(value, argument, kind)
        if value.ndim < rank:
            raise InvalidValue(
                f"{kind}: {argument} must have {rank} dimensions or more, got {list(value.shape or ())}."
            )
        return value

    def forward(self, x: Variable) -> Variable:
        """The function's value."""
        return self._forward(self._checked(x, 0, "x"))

    def inverse(self, y: Variable) -> Any:
        """What has the value y."""
        return self._inverse(self._checked(y, 1, "y"))

    def forward_log_det_jacobian(self, x: Variable) -> Any:
        """The logarithm of the slope at x, or of the determinant of the slopes of an event."""
        return self._forward_log_det_jacobian(self._checked(x, 0, "x"))

    def inverse_log_det_jacobian(self, y: Variable) -> Any:
        """That of the inverse."""
        return self._inverse_log_det_jacobian(self._checked(y, 1, "y"))

    def forward_shape(self, shape: Sizes) -> tuple[int, ...]:
        return tuple(shape)

    def inverse_shape(self, shape: Sizes) -> tuple[int, ...]:
        return tuple(shape)

    def _forward(self, x: Variable) -> Variable:
        raise Unsupported(f"{type(self).__name__}: _forward is not defined.")

    def _inverse(self, y: Variable) -> Any:
        raise Unsupported(f"{type(self).__name__}: _inverse is not defined.")

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        if type(self)._inverse_log_det_jacobian is not Transform._inverse_log_det_jacobian:
            return self._inverse_log_det_jacobian(self._forward(x)) * -1.0  # type: ignore[no-any-return]
        raise Unsupported(f"{type(self).__name__} has no logarithm of a slope.")

    def _inverse_log_det_jacobian(self, y: Variable) -> Any:
        return self._forward_log_det_jacobian(self._inverse(y)) * -1.0


class AbsTransform(Transform):
    """|x|, of two numbers."""

    _is_injective = False

    def _forward(self, x: Variable) -> Variable:
        return unary.abs(x)

    def _inverse(self, y: Variable) -> tuple[Variable, Variable]:
        return y * -1.0, y

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        raise Unsupported("AbsTransform has no logarithm of a slope: two numbers have one value.")

    def _inverse_log_det_jacobian(self, y: Variable) -> tuple[Variable, Variable]:
        zero = constant([0.0], y.dtype)
        return zero, zero


class _Formulas(Transform):
    """A function of each element beside its parameters: the three ``_formulas`` take all of one rank."""

    _formulas: tuple[Callable[..., Variable], ...]  # forward, inverse, the logarithm of the slope
    _names: tuple[str, ...] = ()

    def __init__(self, *parameters: Any, **by_name: Any) -> None:
        kind, names = type(self).__name__, self._names
        values = {**dict(zip(names, parameters, strict=False)), **by_name}
        if {*values} != {*names} or len(values) != len(parameters) + len(by_name):
            raise InvalidType(f"{kind} takes {', '.join(names) or 'nothing'}.")
        self._parameters = [values_of(values[name], name, kind) for name in names]
        vars(self).update(zip(names, self._parameters, strict=True))

    def _forward(self, x: Variable) -> Variable:
        return type(self)._formulas[0](*aligned(x, *self._parameters))

    def _inverse(self, y: Variable) -> Variable:
        return type(self)._formulas[1](*aligned(y, *self._parameters))

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return type(self)._formulas[2](*aligned(x, *self._parameters))

    def forward_shape(self, shape: Sizes) -> tuple[int, ...]:
        """That of x and of the parameters."""
        for value in self._parameters:
            shape = broadcast(tuple(shape), tuple(value.shape or ()), type(self).__name__)
        return tuple(shape)

    inverse_shape = forward_shape


class AffineTransform(_Formulas):
    """loc + scale x."""

    loc: Variable
    scale: Variable
    _names = ("loc", "scale")
    _formulas = (
        lambda x, loc, scale: x * scale + loc,
        lambda y, loc, scale: (y - loc) / scale,
        lambda x, loc, scale: unary.log(unary.abs(scale)),
    )


class ExpTransform(_Formulas):
    """exp(x)."""

    _formulas = unary.exp, unary.log, lambda x: x


class PowerTransform(_Formulas):
    """x^power, of x above 0."""

    power: Variable
    _names = ("power",)
    _formulas = (
        functions.pow,
        lambda y, power: functions.pow(y, unary.reciprocal(power)),
        lambda x, power: unary.log(unary.abs(power * functions.pow(x, power - 1.0))),
    )


class SigmoidTransform(_Formulas):
    """1 / (1 + exp(-x))."""

    _formulas = (
        unary.sigmoid,
        lambda y: unary.log(y) - unary.log1p(y * -1.0),
        lambda x: (softplus(x * -1.0) + softplus(x)) * -1.0,
    )


class TanhTransform(_Formulas):
    """tanh(x)."""

    _formulas = (unary.tanh, unary.atanh, lambda x: (math.log(2.0) - x - softplus(x * -2.0)) * 2.0)


class SoftmaxTransform(Transform):
    """Shares by softmax, which tell x but for a number added to all."""

    _ranks = (1, 1)
    _is_injective = False

    def _forward(self, x: Variable) -> Variable:
        return softmax(x)

    def _inverse(self, y: Variable) -> Variable:
        return unary.log(y)


class StickBreakingTransform(Transform):
    """n numbers to n + 1 shares: each takes a sigmoid's part of what those before it left."""

    _ranks = (1, 1)

    def _forward(self, x: Variable) -> Variable:
        part = unary.sigmoid(x - _falling(x, 0))
        end = ones_like(layers.slice(part, [part.ndim - 1], [0], [1]))
        rest = layers.concat([end, cumprod(1.0 - part, -1)], -1)
        return layers.concat([part, end], -1) * rest

    def _inverse(self, y: Variable) -> Variable:
        shares = _but_last(y)
        rest = unary.log(1.0 - functions.cumsum(shares, -1))
        return unary.log(shares) - rest + _falling(y, 1)

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        shifted = x - _falling(x, 0)
        logs = log_sigmoid(shifted) - shifted + unary.log(_but_last(self._forward(x)))
        return sum_last(logs, 1)

    def forward_shape(self, shape: Sizes) -> tuple[int, ...]:
        """One number more."""
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Sizes) -> tuple[int, ...]:
        """One number less."""
        return (*shape[:-1], shape[-1] - 1)


def _falling(like: Variable, less: int) -> Variable:
    """Return log(n), ..., log(1), for n numbers in the last dimension of ``like`` or some less."""
    numbers = np.log(np.arange((like.shape or ())[-1] - less, 0, -1, dtype=np.float64))
    return constant(numbers.reshape([1] * (like.ndim - 1) + [-1]), like.dtype)


def _but_last(x: Variable) -> Variable:
    return layers.slice(x, [x.ndim - 1], [0], [-1])


class ReshapeTransform(Transform):
    """Events of ``in_event_shape`` in another shape.

    Raises:
        InvalidValue: they have not as many elements.
    """

    def __init__(self, in_event_shape: Sizes, out_event_shape: Sizes) -> None:
        self.in_event_shape, self.out_event_shape = tuple(in_event_shape), tuple(out_event_shape)
        if math.prod(in_event_shape) != math.prod(out_event_shape):
            raise InvalidValue(
                f"ReshapeTransform: {list(in_event_shape)} and {list(out_event_shape)} must have as many "
                "elements."
            )
        self._ranks = len(self.in_event_shape), len(self.out_event_shape)

    def _forward(self, x: Variable) -> Variable:
        return layers.reshape(x, [0] * (x.ndim - self._ranks[0]) + [*self.out_event_shape])

    def _inverse(self, y: Variable) -> Variable:
        return layers.reshape(y, [0] * (y.ndim - self._ranks[1]) + [*self.in_event_shape])

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return sum_last(zeros_like(x), self._ranks[0])

    def _other(self, shape: Sizes, side: int) -> tuple[int, ...]:
        events = (self.in_event_shape, self.out_event_shape)
        front = len(shape) - self._ranks[side]
        if front < 0 or tuple(shape[front:]) != events[side]:
            raise InvalidValue(
                f"ReshapeTransform: a shape must end with {list(events[side])}, got {list(shape)}."
            )
        return (*shape[:front], *events[1 - side])

    def forward_shape(self, shape: Sizes) -> tuple[int, ...]:
        return self._other(shape, 0)

    def inverse_shape(self, shape: Sizes) -> tuple[int, ...]:
        return self._other(shape, 1)


def _transforms(values: Any, kind: str) -> list[Transform]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(t, Transform) for t in values):
        raise InvalidType(f"{kind}: transforms must be a list of Transforms, got {values!r}.")
    return list(values)


class ChainTransform(Transform):
    """One function after another.

    Raises:
        InvalidType: these are no transforms.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = _transforms(transforms, "ChainTransform")
        before = behind = 0
        for transform in reversed(self.transforms):
            grown = transform._ranks[0] - transform._ranks[1]
            before = max(before + grown, transform._ranks[0])
        for transform in self.transforms:
            grown = transform._ranks[1] - transform._ranks[0]
            behind = max(behind + grown, transform._ranks[1])
        self._ranks = before, behind
        self._is_injective = all(transform._is_injective for transform in self.transforms)

    def _forward(self, x: Variable) -> Variable:
        for transform in self.transforms:
            x = transform.forward(x)
        return x

    def _inverse(self, y: Variable) -> Any:
        for transform in reversed(self.transforms):
            y = transform.inverse(y)
        return y

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        logs, rank = [], self._ranks[0]
        for transform in self.transforms:
            slope = transform.forward_log_det_jacobian(x)
            logs.append(sum_last(slope, rank - transform._ranks[0]))
            x = transform.forward(x)
            rank += transform._ranks[1] - transform._ranks[0]
        return _sum(logs)

    def forward_shape(self, shape: Sizes) -> tuple[int, ...]:
        for transform in self.transforms:
            shape = transform.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Sizes) -> tuple[int, ...]:
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        return tuple(shape)


def _sum(terms: list[Variable]) -> Variable:
    total = terms[0]
    for term in terms[1:]:
        total = functions.add(total, term)
    return total


class IndependentTransform(Transform):
    """A function whose last ``reinterpreted_batch_rank`` dimensions are one event.

    Raises:
        InvalidType: ``base`` is no transform.
        InvalidValue: the rank is not above 0.
    """

    def __init__(self, base: Transform, reinterpreted_batch_rank: int) -> None:
        (self._base,) = _transforms([base], "IndependentTransform")
        if reinterpreted_batch_rank <= 0:
            raise InvalidValue(
                "IndependentTransform: reinterpreted_batch_rank must be above 0, got "
                f"{reinterpreted_batch_rank!r}."
            )
        self._rank, self._is_injective = reinterpreted_batch_rank, base._is_injective
        self._ranks = base._ranks[0] + self._rank, base._ranks[1] + self._rank
        self.forward_shape = base.forward_shape  # type: ignore[method-assign]
        self.inverse_shape = base.inverse_shape  # type: ignore[method-assign]

    def _forward(self, x: Variable) -> Variable:
        return self._base.forward(x)

    def _inverse(self, y: Variable) -> Any:
        return self._base.inverse(y)

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return sum_last(self._base.forward_log_det_jacobian(x), self._rank)


class StackTransform(Transform):
    """A function for each slice along ``axis``."""

    def __init__(self, transforms: Sequence[Transform], axis: int = 0) -> None:
        self.transforms, self.axis = _transforms(transforms, "StackTransform"), axis
        rank = max(transform._ranks[0] for transform in self.transforms)
        self._ranks = rank, rank
        self._is_injective = all(transform._is_injective for transform in self.transforms)

    def _each(self, method: str, value: Variable) -> Variable:
        shape, count = list(value.shape or ()), len(self.transforms)
        if not -len(shape) <= self.axis < len(shape) or shape[self.axis] != count:
            raise InvalidValue(
                f"StackTransform: dimension {self.axis} must be the {count} transforms, got {shape}."
            )
        parts = zip(self.transforms, tensors.unstack(value, self.axis), strict=True)
        return layers.stack([getattr(t, method)(part) for t, part in parts], self.axis)

    def _forward(self, x: Variable) -> Variable:
        return self._each("forward", x)

    def _inverse(self, y: Variable) -> Variable:
        return self._each("inverse", y)

    def _forward_log_det_jacobian(self, x: Variable) -> Variable:
        return self._each("forward_log_det_jacobian", x)


class TransformedDistribution(Distribution):
    """The distribution of what ``transforms``, one after another, make of draws from ``base``.

    Raises:
        InvalidType: these are no distribution and no transforms.
        InvalidValue: draws have not as many dimensions as the transforms need.
    """

    def __init__(self, base: Distribution, transforms: Sequence[Transform]) -> None:
        kind = "TransformedDistribution"
        require_type(base, Distribution, f"{kind}: base must be a Distribution")
        chain = ChainTransform(_transforms(transforms, kind))
        shape, (before, behind) = base.batch_shape + base.event_shape, chain._ranks
        if len(shape) < before:
            raise InvalidValue(
                f"{kind}: base must have {before} dimensions or more, got {list(shape)}."
            )
        self._base, self._transforms = base, chain.transforms
        lacking = before - len(base.event_shape)
        if lacking > 0:
            base = Independent(base, lacking)
        rank = behind + max(len(base.event_shape) - before, 0)
        shape = chain.forward_shape(shape)
        super().__init__(shape[: len(shape) - rank], shape[len(shape) - rank :])

    def sample(self, shape: Any = ()) -> Variable:
        draw = ChainTransform(self._transforms).forward(self._base.sample(shape))
        draw.stop_gradient = True
        return draw

    def rsample(self, shape: Any = ()) -> Variable:
        return ChainTransform(self._transforms).forward(self._base.rsample(shape))

    def log_prob(self, value: Variable) -> Variable:
        """That of what has this value, less the logarithm of the slopes there.

        Raises:
            Unsupported: several numbers have one value.
        """
        logs, rank = [], len(self.event_shape)
        for transform in reversed(self._transforms):
            inner = transform.inverse(value)
            rank += transform._ranks[0] - transform._ranks[1]
            slope = transform.forward_log_det_jacobian(inner)
            logs.append(sum_last(slope, rank - transform._ranks[0]) * -1.0)
            value = inner
        own = sum_last(self._base.log_prob(value), rank - len(self._base.event_shape))
        return _sum([own, *logs])


publish_definitions(__name__)
