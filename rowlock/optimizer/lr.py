"""``paddle.optimizer.lr``: schedules that ``step()`` moves on."""

from ..graph.training.lr_scheduler import (
    CosineAnnealingDecay,
    ExponentialDecay,
    LinearWarmup,
    LRScheduler,
    MultiStepDecay,
    NoamDecay,
    PiecewiseDecay,
    StepDecay,
)
from ..names import listing, missing

__all__ = [
    "CosineAnnealingDecay",
    "ExponentialDecay",
    "LRScheduler",
    "LinearWarmup",
    "MultiStepDecay",
    "NoamDecay",
    "PiecewiseDecay",
    "StepDecay",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
