"""``paddle.optimizer``: 2.x signatures of the optimizers, and ``lr``."""

from __future__ import annotations

from typing import Any

from ..graph.training import optimizer as methods
from ..graph.training.optimizer import Optimizer
from ..graph.training.optimizer.adamw import AdamW
from ..names import listing, missing
from . import lr


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
        super().__init__(learning_rate, parameters, _decay(weight_decay), grad_clip, name)
        self._multi_precision = bool(multi_precision)


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
        decay = _decay(weight_decay)
        super().__init__(learning_rate, momentum, parameters, use_nesterov, decay, grad_clip, name)
        self._multi_precision = bool(multi_precision)


class Adam(methods.AdamOptimizer):
    """Adam."""

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
        name: str | None = None,
    ) -> None:
        decay = _decay(weight_decay)
        super().__init__(
            learning_rate, beta1, beta2, epsilon, parameters, decay, grad_clip, name, lazy_mode
        )
        self._multi_precision = bool(multi_precision)


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
        decay = _decay(weight_decay)
        super().__init__(
            learning_rate, rho, epsilon, momentum, centered, parameters, decay, grad_clip, name
        )


def _decay(weight_decay: Any) -> Any:
    """Return a regularizer; a number means L2."""
    from ..graph.layers.regularizer import L2Decay

    return L2Decay(weight_decay) if isinstance(weight_decay, float) else weight_decay


__all__ = ["SGD", "Adam", "AdamW", "Momentum", "Optimizer", "RMSProp", "lr"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
