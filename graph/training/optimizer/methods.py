"""The update methods. The arithmetic of an op is in ``graph/ops/optimize.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....strategies.errors import InvalidValue
from ...ops.operands import parameter_name
from ...ops.registry import OPS
from ...program.block import Block
from ...program.operator import Operator
from ...program.scopes import name_scope
from ...program.variable import Parameter
from .base import Optimizer, ParamGrad, ParamGrads


class Method(Optimizer):
    """An optimizer whose op reads and writes accumulators: those of its operands that it updates in place."""

    # slot -> its accumulator, if not named after it; these come first
    named: Mapping[str, str] = {}
    powers: Mapping[str, str] = {}  # accumulators of one element, which begin as their beta
    starts: Mapping[str, float] = {}  # accumulator -> its first value, if not 0
    writes_powers = True
    uses_rate = True
    _attrs: Mapping[str, Any] = {}  # of the op

    @property
    def _slots(self) -> dict[str, tuple[str, str]]:
        """The slots that read and write each accumulator."""
        written = {slot: out for out, slot in OPS[self.type].in_place.items()}
        others = ("Param", "MasterParam", *self.powers.values())
        slots = [slot for slot in dict.fromkeys((*self.named, *written)) if slot not in others]
        names = (self.named.get(slot, parameter_name(slot)) for slot in slots)
        return {name: (slot, written[slot]) for name, slot in zip(names, slots, strict=True)}

    def _attrs_of(self, parameter: Parameter) -> Mapping[str, Any]:
        """Return the attributes of one parameter's update."""
        return self._attrs

    def _create_accumulators(self, block: Block, parameters: list[Parameter]) -> None:
        for parameter in parameters:
            for name in self._slots:
                self._add_accumulator(name, parameter, fill_value=self.starts.get(name, 0.0))
            for name in self.powers:
                beta = self._attrs[name.removesuffix("_pow_acc")]
                self._add_accumulator(name, parameter, fill_value=beta, shape=[1])

    def _append_optimize_op(self, block: Block, param_and_grad: ParamGrad) -> Operator:
        parameter, grad = param_and_grad
        inputs: dict[str, Any] = {"Param": parameter, "Grad": grad}
        outputs: dict[str, Any] = {"ParamOut": parameter}
        if self.uses_rate:
            inputs["LearningRate"] = self._create_param_lr(param_and_grad)
        powers = {name: (slot, f"{slot}Out") for name, slot in self.powers.items()}
        for name, (slot, out) in {**self._slots, **powers}.items():
            inputs[slot] = self._get_accumulator(name, parameter)
            if name not in powers or self.writes_powers:
                outputs[out] = self._get_accumulator(name, parameter)
        attrs = self._attrs_of(parameter)
        master = self._masters.get(parameter.name)
        if master is not None:
            inputs["MasterParam"] = outputs["MasterParamOut"] = master
            attrs = {**attrs, "multi_precision": True}
        if self.skips and self._skip_update is not None:
            inputs["SkipUpdate"] = self._skip_update
        return block.append_op(self.type, inputs, outputs, attrs)


def check_moments(method: str, beta1: float, beta2: float, **coefficients: float) -> None:
    """Raise InvalidValue unless decay rates are in [0, 1), and other coefficients not below 0."""
    for argument, number in coefficients.items():
        if not number >= 0:
            raise InvalidValue(f"{method}: {argument} must not be below 0, got {number!r}.")
    for argument, beta in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= beta < 1:
            raise InvalidValue(f"{method}: {argument} must be in [0, 1), got {beta!r}.")


class SGDOptimizer(Method):
    """p -= lr g."""

    type = "sgd"
    has_master = True


class MomentumOptimizer(Method):
    """v = momentum v + g; p -= lr v, or Nesterov's step."""

    type = "momentum"
    has_master = True

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        parameter_list: Any = None,
        use_nesterov: bool = False,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"mu": momentum, "use_nesterov": use_nesterov}


class AdamOptimizer(Method):
    """Adam; ``epsilon`` is added after the root, as in Paddle."""

    type = "adam"
    has_master = skips = True
    powers: Mapping[str, str] = {"beta1_pow_acc": "Beta1Pow", "beta2_pow_acc": "Beta2Pow"}

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        lazy_mode: bool = False,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        self._lazy_mode = lazy_mode

    def _attrs_of(self, parameter: Parameter) -> Mapping[str, Any]:
        return {**self._attrs, "lazy_mode": self._lazy_mode}

    def _take_largest(self) -> None:
        """Divide by the largest second moment so far."""
        self.type = "amsgrad"


class AdamaxOptimizer(Method):
    """Adam with the infinity norm."""

    type = "adamax"
    powers: Mapping[str, str] = {"beta1_pow_acc": "Beta1Pow"}
    writes_powers = False

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}

    def _finish_update(self, block: Block, parameters_and_grads: ParamGrads) -> None:
        for parameter, grad in parameters_and_grads:
            with block.program.optimized_guard([parameter, grad]), name_scope("adamx"):
                power = self._get_accumulator("beta1_pow_acc", parameter)
                block.append_op(
                    "scale", {"X": power}, {"Out": power}, {"scale": self._attrs["beta1"]}
                )


class AdagradOptimizer(Method):
    """m += g^2; p -= lr g / (sqrt(m) + epsilon)."""

    type = "adagrad"

    def __init__(
        self,
        learning_rate: Any,
        epsilon: float = 1e-6,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"epsilon": epsilon}
        self.starts = {"moment": initial_accumulator_value}


class DecayedAdagradOptimizer(Method):
    """m = decay m + (1 - decay) g^2; p -= lr g / (sqrt(m) + epsilon)."""

    type = "decayed_adagrad"

    def __init__(
        self,
        learning_rate: Any,
        decay: float = 0.95,
        epsilon: float = 1e-6,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"decay": decay, "epsilon": epsilon}


class AdadeltaOptimizer(Method):
    """Adadelta. The learning rate is accepted and unused, as in Paddle."""

    type = "adadelta"
    named: Mapping[str, str] = {
        "AvgSquaredGrad": "_avg_squared_grad",
        "AvgSquaredUpdate": "_avg_squared_update",
    }
    uses_rate = False

    def __init__(
        self,
        learning_rate: Any,
        epsilon: float = 1e-6,
        rho: float = 0.95,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"epsilon": epsilon, "rho": rho}


class RMSPropOptimizer(Method):
    """s averaged over g^2; v = momentum v + lr g / sqrt(s + epsilon); p -= v.

    ``rho`` is the decay of averages; ``centered``: s less the square of an averaged gradient.
    """

    type = "rmsprop"
    named: Mapping[str, str] = {"Moment": "momentum"}

    def __init__(
        self,
        learning_rate: Any,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        numbers = {"epsilon": epsilon, "decay": rho, "momentum": momentum}
        self._attrs = {**numbers, "centered": centered}


class FtrlOptimizer(Method):
    """Follow the regularized leader: parameters whose gradients do not outweigh ``l1`` are 0.

    ``lr_power`` is the power of the sum of squared gradients by which steps shrink.
    """

    type = "ftrl"
    named: Mapping[str, str] = {"SquaredAccumulator": "squared", "LinearAccumulator": "linear"}

    def __init__(
        self,
        learning_rate: Any,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        parameter_list: Any = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"l1": l1, "l2": l2, "lr_power": lr_power}


SGD = SGDOptimizer
Momentum = MomentumOptimizer
Adam = AdamOptimizer
Adamax = AdamaxOptimizer
Adagrad = AdagradOptimizer
DecayedAdagrad = DecayedAdagradOptimizer
Adadelta = AdadeltaOptimizer
Ftrl = FtrlOptimizer
RMSProp = RMSPropOptimizer

__all__ = [
    "SGD",
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "Adamax",
    "AdamaxOptimizer",
    "DecayedAdagrad",
    "DecayedAdagradOptimizer",
    "Ftrl",
    "FtrlOptimizer",
    "Momentum",
    "MomentumOptimizer",
    "Optimizer",
    "RMSProp",
    "RMSPropOptimizer",
    "SGDOptimizer",
]
