"""``fluid.contrib.mixed_precision.decorator``: an optimizer in float16."""

from __future__ import annotations

from ....executor.driver.mixed_precision import OptimizerWithMixedPrecision, checked_lists
from ....graph.training.amp.optimizer import Scaling
from ....graph.training.amp.rewrite import Rules
from ....graph.training.optimizer.base import Optimizer
from ....names import publish_listed
from .fp16_lists import AutoMixedPrecisionLists


def decorate(
    optimizer: Optimizer,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 2.0**15,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = True,
) -> OptimizerWithMixedPrecision:
    """Return an optimizer that trains in float16; gradients that are not finite become zeros.

    Raises:
        InvalidType: another thing than an optimizer or lists.
        InvalidValue: a number that cannot work.
        InvalidArgument: the optimizer is decorated already.
    """
    lists = AutoMixedPrecisionLists() if amp_lists is None else checked_lists(amp_lists)
    scaling = Scaling(
        init_loss_scaling,
        use_dynamic_loss_scaling,
        incr_every_n_steps,
        decr_every_n_nan_or_inf,
        incr_ratio,
        decr_ratio,
    )
    return OptimizerWithMixedPrecision(optimizer, Rules(lists, eager=False), scaling, skips=False)


__all__ = ["OptimizerWithMixedPrecision", "decorate"]

publish_listed(__name__)
