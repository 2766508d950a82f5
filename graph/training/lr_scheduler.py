"""Learning-rate schedules that live in the user's script (Paddle 2.x): ``step()`` moves them on.

Before each run the executor writes ``get_lr()`` to the program's learning-rate variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


class LRScheduler:
    """Base class; ``rate`` gives the learning rate at ``last_epoch``."""

    def __init__(
        self, learning_rate: float = 0.1, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.base_lr = float(learning_rate)
        self.last_epoch = last_epoch
        self.verbose = verbose
        self.last_lr = self.base_lr
        self.step()

    def rate(self) -> float:
        """Return the learning rate at ``last_epoch``."""
        raise NotImplementedError

    def get_lr(self) -> float:
        """Return the learning rate in force."""
        return self.last_lr

    def step(self, epoch: int | None = None) -> None:
        """Advance by one, or to ``epoch``."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self.last_lr = self.rate()
        if self.verbose:
            print(
                f"Epoch {self.last_epoch}: {type(self).__name__} set learning rate to {self.last_lr}."
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state, for :meth:`set_state_dict`."""
        return {"last_epoch": self.last_epoch, "last_lr": self.last_lr}

    def set_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a saved state."""
        self.last_epoch, self.last_lr = state["last_epoch"], state["last_lr"]


class ExponentialDecay(LRScheduler):
    """base * gamma ^ epoch."""

    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def rate(self) -> float:
        """Return the learning rate at ``last_epoch``."""
        return self.base_lr * self.gamma**self.last_epoch


class StepDecay(LRScheduler):
    """base * gamma ^ (epoch // step_size)."""

    def __init__(
        self,
        learning_rate: float,
        step_size: int,
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def rate(self) -> float:
        """Return the learning rate at ``last_epoch``."""
        return self.base_lr * self.gamma ** (self.last_epoch // self.step_size)


class MultiStepDecay(LRScheduler):
    """base * gamma ^ (milestones passed)."""

    def __init__(
        self,
        learning_rate: float,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.milestones, self.gamma = list(milestones), gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def rate(self) -> float:
        """Return the learning rate at ``last_epoch``."""
        return self.base_lr * self.gamma ** sum(self.last_epoch >= m for m in self.milestones)


class PiecewiseDecay(LRScheduler):
    """``values[i]`` until epoch ``boundaries[i]``."""

    def __init__(
        self,
        boundaries: Sequence[int],
        values: Sequence[float],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.boundaries, self.values = list(boundaries), list(values)
        super().__init__(self.values[0], last_epoch, verbose)

    def rate(self) -> float:
        """Return the learning rate at ``last_epoch``."""
        return float(self.values[sum(self.last_epoch >= b for b in self.boundaries)])


class NoamDecay(LRScheduler):
    """base * d_model^-0.5 * min(epoch^-0.5, epoch * warmup^-1.5). Vaswani et al., arXiv 1706.03762."""

    def __init__(
        self,
        d_model: int,
        warmup_steps: int,
        learning_rate: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.d_model, self.warmup_steps = d_model, warmup_steps
        super().__init__(learning_rate, last_epoch, verbose)

    def rate(self) -> float:
        """Return the learning rate at ``last_epoch``."""
        falling = self.last_epoch**-0.5 if self.last_epoch else 1.0
        return (
            self.base_lr
            * self.d_model**-0.5
            * min(falling, self.last_epoch * self.warmup_steps**-1.5)
        )


class CosineAnnealingDecay(LRScheduler):
    """eta_min + (base - eta_min) (1 + cos(pi epoch / T_max)) / 2. Loshchilov, Hutter, arXiv 1608.03983."""

    def __init__(
        self,
        learning_rate: float,
        T_max: int,
        eta_min: float = 0.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(learning_rate, last_epoch, verbose)

    def rate(self) -> float:
        """Return the learning rate at ``last_epoch``."""
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return self.eta_min + (self.base_lr - self.eta_min) * share


class LinearWarmup(LRScheduler):
    """From ``start_lr`` to ``end_lr`` in ``warmup_steps``, then ``learning_rate`` (a number or schedule)."""

    def __init__(
        self,
        learning_rate: float | LRScheduler,
        warmup_steps: int,
        start_lr: float,
        end_lr: float,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.next_rate = learning_rate
        self.warmup_steps, self.start_lr, self.end_lr = warmup_steps, start_lr, end_lr
        super().__init__(start_lr, last_epoch, verbose)

    def rate(self) -> float:
        """Return the learning rate at ``last_epoch``."""
        if self.last_epoch < self.warmup_steps:
            return (
                self.start_lr + (self.end_lr - self.start_lr) * self.last_epoch / self.warmup_steps
            )
        if isinstance(self.next_rate, LRScheduler):
            self.next_rate.step(self.last_epoch - self.warmup_steps)
            return self.next_rate.get_lr()
        return float(self.next_rate)
