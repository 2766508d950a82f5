"""What distributions have in common: parameters, draws and divergences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, TypeVar

from ..functions import math as functions
from ..functions.random import drawn
from ..graph.layers import operators, tensors, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import check_variable
from ..graph.program.variable import Variable
from ..graph.training.backward import gradients
from ..names import publish_definitions
from ..strategies.errors import InvalidType, Unsupported
from .parameters import Limit, Parameter, aligned, broadcast, sum_last, values_of


class Distribution:
    """The base of distributions, whose class says by :class:`Parameter` what its parameters are.

    ``batch_shape`` is that of the parameters, broadcast; ``event_shape`` that of one draw. Classes of users may
    call ``super().__init__(batch_shape, event_shape)``.
    """

    _limits: Mapping[str, Limit] = {}
    _is_broadcast = False  # whether parameters have the shape of the batch
    _is_normal = False  # whether what is drawn comes from normal numbers, not from even ones
    _has_slopes = True  # whether gradients pass from what is drawn to parameters
    mean: Any
    variance: Any
    stddev = property(lambda self: unary.sqrt(self.variance))

    def __init_subclass__(cls) -> None:
        own = {n: value.limit for n, value in vars(cls).items() if isinstance(value, Parameter)}
        cls._limits = own or cls._limits

    def __init__(self, *parameters: Any, name: str | None = None, **by_name: Any) -> None:
        self.event_shape: tuple[int, ...] = ()
        self._values: dict[str, Variable] = {}
        kind, names = type(self).__name__, list(self._limits)
        if not names:
            batch, event = (*parameters, *by_name.values(), (), ())[:2]
            self.batch_shape, self.event_shape = tuple(batch), tuple(event)
            return
        chosen = {**dict(zip(names, parameters, strict=False)), **by_name}
        if len(chosen) != len(parameters) + len(by_name) or {*chosen} != {*names}:
            raise InvalidType(f"{kind} takes {', '.join(names)}, got {[*parameters, *by_name]}.")
        values = [values_of(chosen[n], n, kind, limit) for n, limit in self._limits.items()]
        self.batch_shape = tuple(values[0].shape or ())
        for value in values[1:]:
            self.batch_shape = broadcast(self.batch_shape, tuple(value.shape or ()), kind)
        types = [value.dtype for value in values]
        widest = reduce(lambda a, b: a if a == b else operators.wider(a, b), types)
        if widest is not None:
            values = [v if v.dtype == widest else layers.cast(v, widest) for v in values]
        self._values = dict(zip(names, values, strict=True))
        if self._is_broadcast:
            zeros = self._like()
            self._values = {n: functions.add(v, zeros) for n, v in self._values.items()}

    def __getattr__(self, name: str) -> Any:
        if name in ("mean", "variance"):
            raise Unsupported(f"{type(self).__name__} has no {name}.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _like(self) -> Variable:
        """Return zeros in the shape of a batch."""
        return reduce(functions.add, [value * 0.0 for value in self._values.values()])

    def _aligned(self, *values: Variable) -> list[Variable]:
        """Return values, as the parameters' element type, and then the parameters, all of one rank."""
        for value in values:
            check_variable(value, "value", type(self).__name__)
        own = list(self._values.values())
        kind = own[0].dtype
        same = [value if value.dtype == kind else layers.cast(value, kind) for value in values]
        return aligned(*same, *own)

    def _drawn(self, shape: Any) -> Variable:
        """Draw from [0, 1), or around 0 with deviation 1: ``shape``, the batch, and the event."""
        function, whole = f"{type(self).__name__}.sample", self.batch_shape + self.event_shape
        like = next((value for value in self._values.values() if value.shape == whole), None)
        front = tensors.sizes_of(shape, function)
        like = self._like() if like is None else like
        return drawn(like, front, function, is_normal=self._is_normal)

    def _from(self, numbers: Variable, /) -> Variable:
        """Return the draws that follow from even, or normal, numbers."""
        raise Unsupported(f"{type(self).__name__}: sample is not built.")

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by batch and event; gradients pass to the parameters."""
        if not self._has_slopes:
            raise Unsupported(
                f"{type(self).__name__}: no gradient passes through a draw. Use sample."
            )
        return self._from(self._drawn(shape))

    def sample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by batch and event; no gradient passes."""
        draw = self._from(self._drawn(shape))
        draw.stop_gradient = True
        return draw

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density, or of the probability, of ``value``."""
        raise Unsupported(f"{type(self).__name__}: log_prob is not built.")

    def prob(self, value: Variable) -> Variable:
        """The density, or the probability, of ``value``."""
        return unary.exp(self.log_prob(value))

    def probs(self, value: Variable) -> Variable:
        """As :meth:`prob`."""
        return self.prob(value)

    def entropy(self) -> Variable:
        """The mean of -log_prob, in nats."""
        raise Unsupported(f"{type(self).__name__}: entropy is not built.")

    def kl_divergence(self, other: Distribution) -> Variable:
        """The mean of log_prob minus the other's."""
        return kl_divergence(self, other)


class ExponentialFamily(Distribution):
    """Of density h(x) exp(sum of n(i) t(i)(x) - A(n)), whose entropy and divergence follow from A's gradients.

    A class of one's own has ``_natural_parameters`` n, ``_log_normalizer`` A, and ``_mean_carrier_measure``,
    the mean of log h. Nielsen and Nock, Entropies and cross-entropies of exponential families, ICIP 2010.
    """

    _natural_parameters: Any
    _mean_carrier_measure: Any = 0.0
    _log_normalizer: Callable[..., Variable]

    def _slopes(self) -> tuple[Variable, list[tuple[Variable, Variable]]]:
        """Return A(n), and each n with A's slope there."""
        natural = [layers.assign(value) for value in self._natural_parameters]
        for value in natural:
            value.stop_gradient = False
        normalizer = self._log_normalizer(*natural)
        slopes = gradients(normalizer, natural)
        return normalizer, [
            (value, value * 0.0 if slope is None else slope)
            for value, slope in zip(natural, slopes, strict=True)
        ]

    def entropy(self) -> Variable:
        """A(n) - sum of n(i) dA/dn(i) - the mean of log h."""
        total, pairs = self._slopes()
        for value, slope in pairs:
            total = functions.subtract(total, value * slope)
        entropy: Variable = total - self._mean_carrier_measure
        return entropy


_Function = TypeVar("_Function", bound=Callable[..., Any])
_KL: dict[tuple[type, type], Callable[[Any, Any], Variable]] = {}


def register_kl(cls_p: type, cls_q: type) -> Callable[[_Function], _Function]:
    """Have :func:`kl_divergence` call the decorated function for distributions of two classes.

    Raises:
        InvalidType: these are no distributions.
    """
    for kind in (cls_p, cls_q):
        if not (isinstance(kind, type) and issubclass(kind, Distribution)):
            raise InvalidType(f"register_kl takes classes of distributions, got {kind!r}.")

    def register(function: _Function) -> _Function:
        _KL[cls_p, cls_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Variable:
    """The mean over p of log p - log q: Kullback and Leibler's divergence.

    Raises:
        Unsupported: none is known for these classes.
    """
    for first in type(p).__mro__:
        for second in type(q).__mro__:
            if (first, second) in _KL:
                return _KL[first, second](p, q)
    raise _no_divergence(p, q)


def _no_divergence(p: Distribution, q: Distribution) -> Unsupported:
    return Unsupported(
        f"kl_divergence of {type(p).__name__} from {type(q).__name__} is not built: register_kl adds one."
    )


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Variable:
    if type(p) is not type(q):
        raise _no_divergence(p, q)
    normalizer, pairs = p._slopes()
    total = functions.subtract(q._log_normalizer(*q._natural_parameters), normalizer)
    for (value, slope), other in zip(pairs, q._natural_parameters, strict=True):
        term = functions.multiply(functions.subtract(other, value), slope)
        total = functions.subtract(total, sum_last(term, len(q.event_shape)))
    return total


publish_definitions(__name__)
