"""``paddle.optimizer``: 2.x signatures of the optimizers, and ``lr``."""

from __future__ import annotations

from typing import Any

from ..graph.layers.regularizer import as_regularizer
from ..graph.training import optimizer as methods
from ..graph.training.optimizer import Optimizer as Optimizer
from ..graph.training.optimizer.adamw import AdamW as AdamW
from ..graph.training.optimizer.adaptive import ASGD as ASGD
from ..graph.training.optimizer.adaptive import NAdam as NAdam
from ..graph.training.optimizer.adaptive import RAdam as RAdam
from ..graph.training.optimizer.adaptive import Rprop as Rprop
from ..graph.training.optimizer.methods import check_moments
from ..names import publish_definitions
from ..strategies.errors import InvalidArgument
from . import lr as lr


class SGD(methods.SGDOptimizer):
    """p -= lr g. ``multi_precision``: parameters in low precision have a master in float32."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        parameters: Any = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        multi_precision: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameters, as_regularizer(weight_decay), grad_clip, name)
        self._multi_precision = multi_precision


class Momentum(methods.MomentumOptimizer):
    """v = momentum v + g; p -= lr v, or Nesterov's step."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        momentum: float = 0.9,
        parameters: Any = None,
        use_nesterov: bool = False,
        weight_decay: Any = None,
        grad_clip: Any = None,
        multi_precision: bool = False,
        name: str | None = None,
    ) -> None:
        decay = as_regularizer(weight_decay)
        super().__init__(learning_rate, momentum, parameters, use_nesterov, decay, grad_clip, name)
        self._multi_precision = multi_precision


class Adam(methods.AdamOptimizer):
    """Adam; epsilon is added to the root of the second moment that is corrected for its bias."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameters: Any = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        lazy_mode: bool = False,
        multi_precision: bool = False,
        use_multi_tensor: bool = False,
        amsgrad: bool = False,
        name: str | None = None,
    ) -> None:
        check_moments("Adam", beta1, beta2, epsilon=epsilon)
        decay = as_regularizer(weight_decay)
        super().__init__(
            learning_rate, beta1, beta2, epsilon, parameters, decay, grad_clip, name, lazy_mode
        )
        if amsgrad:
            self._take_largest()
        else:
            self._attrs = {**self._attrs, "scales_epsilon": True}
        self._multi_precision = multi_precision


class RMSProp(methods.RMSPropOptimizer):
    """RMSProp, with momentum, and centered."""

    def __init__(
        self,
        learning_rate: Any,
        rho: float = 0.95,
        epsilon: float = 1e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameters: Any = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        decay = as_regularizer(weight_decay)
        super().__init__(
            learning_rate, rho, epsilon, momentum, centered, parameters, decay, grad_clip, name
        )


class Adagrad(methods.AdagradOptimizer):
    """Adagrad."""

    def __init__(
        self,
        learning_rate: Any,
        epsilon: float = 1e-6,
        parameters: Any = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        options = (parameters, as_regularizer(weight_decay), grad_clip, name)
        super().__init__(learning_rate, epsilon, *options, initial_accumulator_value)


class Adadelta(methods.AdadeltaOptimizer):
    """Adadelta, whose step is multiplied by the learning rate."""

    uses_rate = True

    def __init__(
        self,
        learning_rate: Any = 0.001,
        epsilon: float = 1e-6,
        rho: float = 0.95,
        parameters: Any = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        options = (parameters, as_regularizer(weight_decay), grad_clip, name)
        super().__init__(learning_rate, epsilon, rho, *options)
        self._attrs = {**self._attrs, "with_rate": True}


class Adamax(methods.AdamaxOptimizer):
    """Adam with the infinity norm."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameters: Any = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        check_moments("Adamax", beta1, beta2, epsilon=epsilon)
        options = (parameters, as_regularizer(weight_decay), grad_clip, name)
        super().__init__(learning_rate, beta1, beta2, epsilon, *options)


class Lamb(methods.LambOptimizer):
    """Lamb, with its moments corrected for their bias.

    Without decay of weights a step is scaled by norms only if ``always_adapt``.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameters: Any = None,
        grad_clip: Any = None,
        exclude_from_weight_decay_fn: Any = None,
        multi_precision: bool = False,
        always_adapt: bool = False,
        name: str | None = None,
    ) -> None:
        options = (parameters, None, grad_clip, exclude_from_weight_decay_fn, name)
        super().__init__(learning_rate, lamb_weight_decay, beta1, beta2, epsilon, *options)
        self._multi_precision = multi_precision
        self.correct_bias(always_adapt)


class LBFGS(Optimizer):
    """Refuses: it evaluates the loss several times in a step, which needs the imperative mode."""

    def __init__(self, *args: Any, **options: Any) -> None:
        raise InvalidArgument(
            "LBFGS: its step evaluates the loss again and again by a closure, which needs the imperative mode, "
            "and Rowlock is static-graph. Use Adam or another method with one gradient a step."
        )


publish_definitions(__name__, "ASGD AdamW NAdam Optimizer RAdam Rprop lr")
