"""``paddle.optimizer.lr``: schedules that ``step()`` moves on."""

from ..graph.lr_scheduler import (
    CosineAnnealingDecay,
    ExponentialDecay,
    LinearWarmup,
    LRScheduler,
    MultiStepDecay,
    NoamDecay,
    PiecewiseDecay,
    StepDecay,
)

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
