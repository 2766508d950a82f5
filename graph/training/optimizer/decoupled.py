"""Weight decay beside the gradient, for any optimizer. Loshchilov and Hutter, arXiv 1711.05101."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....strategies.errors import InvalidType, Unsupported, require_type
from ....strategies.types import LOW
from ...layers import shape, unary
from ...program.operator import Operator
from ...program.scopes import name_scope
from ...program.variable import Variable
from .base import Optimizer, ParamGrads


def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Optimizer]:
    """Return an optimizer class whose parameters p lose ``weight_decay`` p before each update.

    The gradient is that of p before. The class takes ``weight_decay`` (a float, or a Variable of one element),
    ``apply_decay_param_fun(name)``, which tells whether a parameter decays (None: all do), and what
    ``base_optimizer`` takes, by keyword.

    Raises:
        InvalidType: ``base_optimizer`` is no optimizer class; the class raises it for another ``weight_decay``.
    """
    if not isinstance(base_optimizer, type) or not issubclass(base_optimizer, Optimizer):
        raise InvalidType(
            f"extend_with_decoupled_weight_decay takes a class of optimizers, got {base_optimizer!r}."
        )

    class OptimizerWithDecoupledWeightDecay(base_optimizer):  # type: ignore[misc, valid-type]
        def __init__(
            self,
            weight_decay: float | Variable,
            apply_decay_param_fun: Callable[[str], bool] | None = None,
            **settings: Any,
        ) -> None:
            require_type(
                weight_decay, float | Variable, "weight_decay must be a float or a Variable"
            )
            super().__init__(**settings)
            self._weight_decay, self._decays = weight_decay, apply_decay_param_fun

        def apply_gradients(self, params_grads: ParamGrads) -> list[Operator]:
            """Append the decay, and behind it clipping, regularization and updates.

            Raises:
                Unsupported: a parameter in low precision, whose master would not decay.
            """
            for parameter, grad in params_grads:
                if self._decays is None or self._decays(parameter.name):
                    with (
                        parameter.block.program.optimized_guard([parameter, grad]),
                        name_scope("weight decay"),
                    ):
                        _shrink(parameter, self._weight_decay)
            return list(super().apply_gradients(params_grads))

    OptimizerWithDecoupledWeightDecay.__doc__ = (
        f"{base_optimizer.__name__} of parameters that decay by themselves."
    )
    return OptimizerWithDecoupledWeightDecay


def _shrink(parameter: Variable, share: float | Variable) -> None:
    if parameter.dtype in LOW:
        raise Unsupported(
            f"weight decay beside the gradient of parameter {parameter.name!r} in low precision is not built; "
            f"paddle.optimizer.AdamW does it."
        )
    if isinstance(share, Variable):
        own = share if share.dtype == parameter.dtype else shape.cast(share, parameter.dtype)
        shape.assign(parameter - parameter * own, parameter)
    elif share:
        shape.assign(parameter - unary.scale(parameter, share), parameter)
