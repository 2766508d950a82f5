"""``fluid.layers.learning_rate_scheduler``: learning rates that change with the step."""

from ...graph.training.lr import (
    cosine_decay,
    decay_step_counter,
    exponential_decay,
    inverse_time_decay,
    linear_lr_warmup,
    natural_exp_decay,
    noam_decay,
    piecewise_decay,
    polynomial_decay,
)
from ...names import listing, missing

__all__ = [
    "cosine_decay",
    "exponential_decay",
    "inverse_time_decay",
    "linear_lr_warmup",
    "natural_exp_decay",
    "noam_decay",
    "piecewise_decay",
    "polynomial_decay",
]
_decay_step_counter = decay_step_counter  # programs that schedule by themselves take it
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
