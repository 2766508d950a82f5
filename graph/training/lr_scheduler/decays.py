"""Schedules that fall, or rise at first, by a formula of the epoch e; ``base`` is the base rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from ....strategies.errors import InvalidArgument, StateMismatch
from .base import NUMBER, LRScheduler, check, check_type

_INNER = "LinearWarmup_LR"  # Paddle's key for the state of the schedule after the warm-up


class NoamDecay(LRScheduler):
    """base d_model^-0.5 min(e^-0.5, e warmup_steps^-1.5). Vaswani et al., arXiv 1706.03762.

    Raises:
        InvalidValue: ``d_model`` is not positive.
    """

    def __init__(
        self,
        d_model: int,
        warmup_steps: Any,  # an int: Paddle asserts it
        learning_rate: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check(d_model > 0, f"d_model must be positive, got {d_model}.")
        self.d_model, self.warmup_steps = d_model, warmup_steps
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``."""
        falling = self.last_epoch**-0.5 if self.last_epoch else 1.0
        rising = self.warmup_steps**-1.5 * self.last_epoch
        return float(self.base_lr * self.d_model**-0.5 * min(falling, rising))


class PiecewiseDecay(LRScheduler):
    """``values[i]`` until epoch ``boundaries[i]``, then the last of ``values``.

    Raises:
        InvalidValue: there are no boundaries, or no more values than boundaries.
    """

    def __init__(
        self,
        boundaries: Sequence[int],
        values: Sequence[float],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check(len(boundaries) > 0, "boundaries must not be empty.")
        check(
            len(values) > len(boundaries),
            f"{len(boundaries)} boundaries need {len(boundaries) + 1} values, got {len(values)}.",
        )
        self.boundaries, self.values = boundaries, values
        super().__init__(last_epoch=last_epoch, verbose=verbose)

    def get_lr(self) -> float:
        """Return the value of ``last_epoch``."""
        pairs = zip(self.boundaries, self.values, strict=False)
        return next((v for boundary, v in pairs if self.last_epoch < boundary), self.values[-1])


class NaturalExpDecay(LRScheduler):
    """base exp(-gamma e).

    Raises:
        InvalidArgument: ``gamma`` is not positive.
    """

    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        check(gamma > 0, f"gamma must be positive, got {gamma}.", InvalidArgument)
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``."""
        return self.base_lr * math.exp(-self.gamma * self.last_epoch)


class InverseTimeDecay(LRScheduler):
    """base / (1 + gamma e)."""

    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``."""
        return self.base_lr / (1 + self.gamma * self.last_epoch)


class PolynomialDecay(LRScheduler):
    """end_lr + (base - end_lr) (1 - min(e, decay_steps) / decay_steps)^power.

    With ``cycle``, decay_steps is instead its least multiple that is not below e.

    Raises:
        InvalidArgument: ``decay_steps`` is no positive int, or ``power`` is not positive.
    """

    def __init__(
        self,
        learning_rate: float,
        decay_steps: Any,  # an int: Paddle asserts it
        end_lr: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        _check_count("decay_steps", decay_steps)
        check(power > 0, f"power must be positive, got {power}.", InvalidArgument)
        self.decay_steps, self.end_lr, self.power = decay_steps, end_lr, power
        self.cycle = cycle
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``."""
        epoch, steps = self.last_epoch, self.decay_steps
        if self.cycle:
            steps *= math.ceil(epoch / steps) or 1
        share = 1 - min(epoch, steps) / steps
        return float((self.base_lr - self.end_lr) * share**self.power + self.end_lr)


class LinearWarmup(LRScheduler):
    """From ``start_lr`` to ``end_lr`` in ``warmup_steps``, then ``learning_rate``: a number or a schedule.

    Raises:
        InvalidType: ``learning_rate`` is neither.
        InvalidArgument: ``warmup_steps`` is no positive int, or ``end_lr`` is not above ``start_lr``.
    """

    def __init__(
        self,
        learning_rate: float | LRScheduler,
        warmup_steps: Any,  # an int: Paddle asserts it
        start_lr: float,
        end_lr: float,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        rates = (*NUMBER, LRScheduler)
        check_type("learning_rate", learning_rate, rates, "a number or an LRScheduler")
        _check_count("warmup_steps", warmup_steps)
        check(
            end_lr > start_lr,
            f"end_lr must be above start_lr, got {end_lr} and {start_lr}.",
            InvalidArgument,
        )
        self.learning_rate = learning_rate
        self.warmup_steps, self.start_lr, self.end_lr = warmup_steps, start_lr, end_lr
        super().__init__(start_lr, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``; after the warm-up, step the schedule there."""
        after = self.last_epoch - self.warmup_steps
        if after < 0:
            share = self.last_epoch / self.warmup_steps
            return (self.end_lr - self.start_lr) * share + self.start_lr
        if isinstance(self.learning_rate, LRScheduler):
            self.learning_rate.step(after)
            return self.learning_rate()
        return self.learning_rate

    def state_dict(self) -> dict[str, Any]:
        """Return what :meth:`set_state_dict` takes, with the state of the schedule after the warm-up."""
        state = super().state_dict()
        if isinstance(self.learning_rate, LRScheduler):
            state[_INNER] = self.learning_rate.state_dict()
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go back to a state that :meth:`state_dict` returned.

        Raises:
            StateMismatch: a key is missing.
        """
        state = dict(state_dict)
        if isinstance(self.learning_rate, LRScheduler):
            check(_INNER in state, f"LinearWarmup: the state lacks [{_INNER!r}].", StateMismatch)
            self.learning_rate.set_state_dict(state.pop(_INNER))
        super().set_state_dict(state)

    set_dict = set_state_dict


class ExponentialDecay(LRScheduler):
    """base gamma^e.

    Raises:
        InvalidArgument: ``gamma`` is not between 0 and 1.
    """

    def __init__(
        self, learning_rate: float, gamma: float, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        check(0 < gamma < 1, f"gamma must lie between 0 and 1, got {gamma}.", InvalidArgument)
        self.gamma = gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``."""
        return self.base_lr * self.gamma**self.last_epoch


class MultiStepDecay(LRScheduler):
    """base gamma^(number of milestones that are not above e).

    Raises:
        InvalidType: ``milestones`` is neither a list nor a tuple.
        InvalidValue: they do not rise, or ``gamma`` is 1 or more.
    """

    def __init__(
        self,
        learning_rate: float,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check_type("milestones", milestones, (list, tuple), "a list or a tuple")
        rising = all(a < b for a, b in pairwise(milestones))
        check(rising, f"milestones must rise, got {milestones}.")
        check(gamma < 1, f"gamma must be below 1, got {gamma}.")
        self.milestones, self.gamma = milestones, gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``."""
        return self.base_lr * self.gamma ** sum(self.last_epoch >= m for m in self.milestones)


class StepDecay(LRScheduler):
    """base gamma^floor(e / step_size).

    Raises:
        InvalidType: ``step_size`` is no int.
        InvalidValue: ``gamma`` is 1 or more.
        InvalidArgument: ``step_size`` is not positive.
    """

    def __init__(
        self,
        learning_rate: float,
        step_size: int,
        gamma: float = 0.1,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check(gamma < 1, f"gamma must be below 1, got {gamma}.")
        _check_count("step_size", step_size)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``."""
        return self.base_lr * self.gamma ** (self.last_epoch // self.step_size)


class LambdaDecay(LRScheduler):
    """base lr_lambda(e).

    Raises:
        InvalidType: ``lr_lambda`` cannot be called.
    """

    def __init__(
        self,
        learning_rate: float,
        lr_lambda: Callable[[int], float],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check_type("lr_lambda", lr_lambda, Callable, "a function")  # type: ignore[arg-type]
        self.lr_lambda = lr_lambda
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``."""
        return self.base_lr * self.lr_lambda(self.last_epoch)


class MultiplicativeDecay(LambdaDecay):
    """base lr_lambda(1) lr_lambda(2) ... lr_lambda(e).

    Raises:
        InvalidType: ``lr_lambda`` cannot be called.
    """

    _product = (math.nan, 0, math.nan)  # of which base rate, to which epoch, the product

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``; a step on takes one multiplication."""
        base, epoch, rate = self._product
        if base != self.base_lr or epoch > self.last_epoch:
            epoch, rate = 0, self.base_lr
        for each in range(epoch + 1, self.last_epoch + 1):
            rate *= self.lr_lambda(each)
        self._product = self.base_lr, max(self.last_epoch, 0), rate
        return rate


class LinearLR(LRScheduler):
    """From base start_factor to base end_factor in ``total_steps`` equal steps; the rate stays there.

    Each rate follows from the one before, so :meth:`step` with an epoch scales the rate in force, as in Paddle.

    Raises:
        InvalidValue: ``start_factor`` is outside (0, 1], ``end_factor`` outside [0, 1], or ``total_steps`` not
            positive.
    """

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check(0 < start_factor <= 1, f"start_factor must lie in (0, 1], got {start_factor}.")
        check(0 <= end_factor <= 1, f"end_factor must lie in [0, 1], got {end_factor}.")
        check(total_steps > 0, f"total_steps must be positive, got {total_steps}.")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_steps = total_steps
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch`` from the one before."""
        if self.last_epoch == 0:
            return self.base_lr * self.start_factor
        if self.last_epoch > self.total_steps:
            return self.last_lr
        change = self.end_factor - self.start_factor
        before = self.total_steps * self.start_factor + (self.last_epoch - 1) * change
        return self.last_lr * (1.0 + change / before)


def _check_count(name: str, value: Any) -> None:
    count = isinstance(value, int) and value > 0
    check(count, f"{name} must be a positive int, got {value!r}.", InvalidArgument)
