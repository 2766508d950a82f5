"""Methods whose step depends on norms: see ``graph/ops/optimize_by_norm.py`` for their arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....strategies.errors import InvalidType, InvalidValue
from ...layers.helper import LayerHelper
from ...program.block import Block
from ...program.operator import Operator
from ...program.variable import Parameter
from .base import ParamGrad
from .methods import AdamOptimizer, Method


class LarsMomentumOptimizer(Method):
    """Momentum whose rate is scaled, for each parameter, by the norms of parameter and gradient.

    ``lars_coeff`` tells how far a layer is trusted to change, ``lars_weight_decay`` is the decay of weights.
    Parameters with a word of ``exclude_from_weight_decay`` in their name have neither decay nor a scaled rate,
    as in Paddle 2: v = momentum v + lr g; p -= v.
    """

    type = "lars_momentum"

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        exclude_from_weight_decay: Sequence[str] | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        numbers = {"lars_coeff": lars_coeff, "lars_weight_decay": lars_weight_decay}
        self._attrs = {"mu": momentum, **{name: float(n) for name, n in numbers.items()}}
        self._excluded = tuple(exclude_from_weight_decay or ())

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        parameter, grad = param_and_grad
        if not any(word in parameter.name for word in self._excluded):
            return super()._append_optimize_op(block, param_and_grad)
        helper, velocity = LayerHelper(self.type), self._get_accumulator("velocity", parameter)
        step, unit = (helper.new(grad.dtype, stop_gradient=True) for _ in range(2))
        factors = {"X": grad, "Y": self._create_param_lr(param_and_grad)}
        block.append_op("elementwise_mul", factors, {"Out": step}, {"axis": -1})
        fill = {"shape": [1], "value": 1.0, "dtype": unit.dtype}
        block.append_op("fill_constant", {}, {"Out": unit}, fill)
        inputs = {"Param": parameter, "Grad": step, "Velocity": velocity, "LearningRate": unit}
        outputs = {"ParamOut": parameter, "VelocityOut": velocity}
        return block.append_op("momentum", inputs, outputs, {"mu": self._attrs["mu"]})


class LambOptimizer(AdamOptimizer):
    """Adam with weight decay, whose step is scaled by the norms of parameter and step.

    As in Paddle 1.8, moments are not corrected for their bias: the powers of the betas stay as they are.
    ``exclude_from_weight_decay_fn(parameter)`` tells which parameters do not decay.
    """

    type = "lamb"
    writes_powers = False

    def __init__(
        self,
        learning_rate: Any = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        exclude_from_weight_decay_fn: Callable[[Parameter], bool] | None = None,
        name: str | None = None,
    ) -> None:
        options = (parameter_list, regularization, grad_clip, name)
        super().__init__(learning_rate, beta1, beta2, epsilon, *options)
        excludes = exclude_from_weight_decay_fn
        if excludes is not None and not callable(excludes):
            raise InvalidType(
                f"Lamb: exclude_from_weight_decay_fn must be a function of a parameter, got {excludes!r}."
            )
        self._weight_decay, self._excludes = lamb_weight_decay, excludes

    def correct_bias(self, always_adapt: bool = False) -> None:
        """Correct moments for their bias, as Paddle 2.x does; see the op for ``always_adapt``."""
        self.writes_powers = True
        self._attrs = {**self._attrs, "always_adapt": always_adapt, "corrects_bias": True}

    def _attrs_of(self, parameter: Parameter) -> Mapping[str, Any]:
        excluded = self._excludes is not None and self._excludes(parameter)
        return {**self._attrs, "weight_decay": 0.0 if excluded else self._weight_decay}


class DpsgdOptimizer(Method):
    """Gradient descent with a clipped gradient and noise; see the op for what it does not promise.

    ``clip`` bounds the norm of each parameter's gradient, ``sigma / batch_size`` is the noise's deviation.
    """

    type = "dpsgd"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        clip: float = 0.9,
        batch_size: float = 0.999,
        sigma: float = 1e-8,
        parameter_list: Any = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list)
        for argument, value in (("clip", clip), ("batch_size", batch_size)):
            if value <= 0:
                raise InvalidValue(f"Dpsgd: {argument} must be above 0, got {value!r}.")
        self._attrs = {"clip": clip, "batch_size": batch_size, "sigma": sigma}
        # not 0: the same noise in every step, for a search for mistakes
        self._seed: int | None = None

    def _attrs_of(self, parameter: Parameter) -> Mapping[str, Any]:
        return {**self._attrs, "seed": self._seed or 0}


LarsMomentum = LarsMomentumOptimizer
Lamb = LambOptimizer
Dpsgd = DpsgdOptimizer

__all__ = [
    "Dpsgd",
    "DpsgdOptimizer",
    "Lamb",
    "LambOptimizer",
    "LarsMomentum",
    "LarsMomentumOptimizer",
]
