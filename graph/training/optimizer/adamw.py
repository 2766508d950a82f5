"""AdamW, with the signature of Paddle 2.x."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....strategies.errors import InvalidArgument
from ...program.variable import Parameter
from .methods import AdamOptimizer, check_moments


class AdamW(AdamOptimizer):
    """Adam whose weight decay goes past the moments: p -= lr * weight_decay * p, then Adam's step.

    ``apply_decay_param_fun(name)`` tells which parameters decay (None: all), ``lr_ratio(parameter)`` returns a
    factor of the learning rate. Unlike in ``fluid.optimizer.Adam``, epsilon is added to a second moment that is
    corrected for its bias, as Paddle 2.x does.

    Raises:
        InvalidValue: a coefficient is out of its range.
        InvalidArgument: something that is not built: groups of parameters, lazy_mode.
    """

    type = "adamw"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameters: Any = None,
        weight_decay: float = 0.01,
        use_lowprecision_moment: bool = False,
        lr_ratio: Callable[[Parameter], float] | None = None,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        grad_clip: Any = None,
        lazy_mode: bool = False,
        multi_precision: bool = False,
        amsgrad: bool = False,
        name: str | None = None,
    ) -> None:
        parameter_list = None if parameters is None else list(parameters)
        check_moments("AdamW", beta1, beta2, epsilon=epsilon)
        if any(isinstance(item, dict) for item in parameter_list or ()):
            raise InvalidArgument(
                "AdamW: groups of parameters are not built; use apply_decay_param_fun and lr_ratio."
            )
        if lazy_mode:
            raise InvalidArgument("AdamW: lazy_mode=True is not built; Adam has it.")
        options = (parameter_list, None, grad_clip, name)
        super().__init__(learning_rate, beta1, beta2, epsilon, *options)
        if amsgrad:
            self._take_largest()
        self._multi_precision = multi_precision
        self._coeff = float(weight_decay)
        self._lr_ratio = lr_ratio
        self._decays = apply_decay_param_fun

    def _attrs_of(self, parameter: Parameter) -> Mapping[str, Any]:
        decays = self._decays is None or self._decays(parameter.name)
        ratio = 1.0 if self._lr_ratio is None else self._lr_ratio(parameter)
        own = {"coeff": self._coeff, "with_decay": bool(decays), "lr_ratio": float(ratio)}
        return {**self._attrs, **own}
