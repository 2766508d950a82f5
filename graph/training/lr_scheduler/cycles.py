"""Schedules along half waves and triangles."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from ....strategies.errors import InvalidArgument
from .base import NUMBER, LRScheduler, check, check_type


def half_cosine(start: float, end: float, share: float) -> float:
    """Return the value at a share of the way from ``start`` to ``end`` along half a cosine wave."""
    return end + (start - end) / 2.0 * (1 + math.cos(math.pi * share))


def straight(start: float, end: float, share: float) -> float:
    """Return the value at a share of the way from ``start`` to ``end``."""
    return (end - start) * share + start


class CosineAnnealingDecay(LRScheduler):
    """eta_min + (base - eta_min) (1 + cos(pi e / T_max)) / 2. Loshchilov, Hutter, arXiv 1608.03983.

    As in Paddle, :meth:`step` scales the rate before it, so a schedule that starts late (``last_epoch``) starts
    from the base rate; ``step(epoch)`` takes the formula.

    Raises:
        InvalidType: ``T_max`` is no int, or ``eta_min`` no number.
        InvalidArgument: ``T_max`` is not positive.
    """

    def __init__(
        self,
        learning_rate: float,
        T_max: int,
        eta_min: float = 0.0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check_type("T_max", T_max, int, "an int")
        check_type("eta_min", eta_min, NUMBER)
        check(T_max > 0, f"T_max must be positive, got {T_max}.", InvalidArgument)
        self.T_max, self.eta_min = T_max, float(eta_min)
        super().__init__(learning_rate, last_epoch, verbose)

    def _height(self, epoch: int) -> float:
        return 1 + math.cos(math.pi * epoch / self.T_max)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch`` from the one before."""
        if self.last_epoch == 0:
            return self.base_lr
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:  # up from the bottom
            rise = (self.base_lr - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
            return self.last_lr + rise
        ratio = self._height(self.last_epoch) / self._height(self.last_epoch - 1)
        return ratio * (self.last_lr - self.eta_min) + self.eta_min

    def _get_closed_form_lr(self) -> float:
        return half_cosine(self.base_lr, self.eta_min, self.last_epoch / self.T_max)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine wave from base to eta_min in T_0 epochs, again in T_0 T_mult, and so on. arXiv 1608.03983.

    As in Paddle, the state holds only ``last_epoch`` and ``last_lr``: a new schedule that takes it begins a
    period at its next step. ``step(last_epoch + 1)`` goes on within the period instead.

    Raises:
        InvalidValue: ``T_0`` or ``T_mult`` is no positive int, or a step to a negative epoch.
    """

    def __init__(
        self,
        learning_rate: float,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            count = isinstance(value, int) and value > 0
            check(count, f"{name} must be a positive int, got {value!r}.")
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate ``T_cur`` epochs into a period of ``T_i``."""
        return half_cosine(self.base_lr, self.eta_min, self.T_cur / self.T_i)

    def step(self, epoch: float | None = None) -> None:
        """Move on by one epoch, or jump to ``epoch``, which may have a fraction."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur -= self.T_i
                self.T_i *= self.T_mult
        else:
            check(epoch >= 0, f"epoch must not be negative, got {epoch}.")
            self._jump(epoch)
        self.last_epoch = math.floor(epoch)
        self.last_lr = self.get_lr()
        self._report()

    def _jump(self, epoch: float) -> None:
        if epoch < self.T_0 or self.T_mult == 1:
            self.T_cur, self.T_i = epoch % self.T_0, self.T_0
            return
        # The periods before the n-th sum up to T_0 (T_mult^n - 1) / (T_mult - 1).
        n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
        self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
        self.T_i = self.T_0 * self.T_mult**n


class OneCycleLR(LRScheduler):
    """From max / divide_factor up to max, then down to ``end_learning_rate``. Smith, Topin, arXiv 1708.07120.

    Args:
        max_learning_rate: highest rate.
        total_steps: steps of the cycle; a later step is refused.
        divide_factor: highest rate over the first one.
        end_learning_rate: last rate.
        phase_pct: share of the steps in which the rate rises, 0 to 1.
        anneal_strategy: "cos" or "linear".
        three_phase: fall to the first rate in as many steps as it rises, then to the last one.
        last_epoch: epoch before the first one.
        verbose: print a line at each step.

    Raises:
        InvalidType: an argument is no number of the kind it should be.
        InvalidValue: it is out of its range.
    """

    def __init__(
        self,
        max_learning_rate: float,
        total_steps: int,
        divide_factor: float = 25.0,
        end_learning_rate: float = 0.0001,
        phase_pct: float = 0.3,
        anneal_strategy: str = "cos",
        three_phase: bool = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        for name, value in (
            ("max_learning_rate", max_learning_rate),
            ("end_learning_rate", end_learning_rate),
        ):
            check_type(name, value, NUMBER)
            check(value >= 0, f"{name} must not be negative, got {value}.")
        check_type("total_steps", total_steps, int, "an int")
        check(total_steps > 0, f"total_steps must be positive, got {total_steps}.")
        check_type("phase_pct", phase_pct, float, "a float")
        check(0 <= phase_pct <= 1, f"phase_pct must lie between 0 and 1, got {phase_pct}.")
        check_type("divide_factor", divide_factor, NUMBER)
        short = not three_phase or phase_pct < 0.5
        check(short, f"phase_pct must be below 0.5 with three_phase, got {phase_pct}.")
        is_valid = anneal_strategy in ("cos", "linear")
        check(is_valid, f"anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}.")
        self._anneal = half_cosine if anneal_strategy == "cos" else straight
        self.total_steps = total_steps
        first, rise = max_learning_rate / divide_factor, phase_pct * total_steps
        self._knots = [(0.0, first), (rise - 1, float(max_learning_rate))]  # (epoch, rate)
        if three_phase:
            self._knots.append((2 * rise - 2, first))
        self._knots.append((total_steps - 1.0, float(end_learning_rate)))
        super().__init__(first, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``.

        Raises:
            InvalidValue: the cycle is over.
        """
        epoch, total = self.last_epoch, self.total_steps
        check(epoch <= total, f"step {epoch} is after the last of {total} steps.")
        phases = list(pairwise(self._knots))
        phase = next((phase for phase in phases if epoch <= phase[1][0]), phases[-1])
        (start, rate), (end, target) = phase
        share = (epoch - start) / (end - start) if end != start else 1.0
        return self._anneal(rate, target, share)


class CyclicLR(LRScheduler):
    """Up and down in straight lines between two rates. Smith, arXiv 1506.01186.

    Args:
        base_learning_rate: lowest rate.
        max_learning_rate: rate at the top of the first cycle.
        step_size_up: steps from the lowest rate to the top.
        step_size_down: steps back; as many as up by default.
        mode: height of a cycle: "triangular" (the same), "triangular2" (half the one before) or "exp_range"
            (times exp_gamma^e); not used with ``scale_fn``.
        exp_gamma: a float, for "exp_range".
        scale_fn: gives the factor of the height for a cycle (from 1) or an epoch.
        scale_mode: what ``scale_fn`` takes: "cycle" or "iterations".
        last_epoch: epoch before the first one.
        verbose: print a line at each step.

    Raises:
        InvalidType: an argument is no number of the kind it should be.
        InvalidValue: it is not positive, or a mode is not known.
    """

    def __init__(
        self,
        base_learning_rate: float,
        max_learning_rate: float,
        step_size_up: int,
        step_size_down: int | None = None,
        mode: str = "triangular",
        exp_gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        check_type("max_learning_rate", max_learning_rate, NUMBER)
        check(max_learning_rate >= 0, f"max_learning_rate is negative: {max_learning_rate}.")
        down = step_size_up if step_size_down is None else step_size_down
        for name, value in (("step_size_up", step_size_up), ("step_size_down", down)):
            check_type(name, value, int, "an int")
            check(value > 0, f"{name} must be positive, got {value}.")
        check_type("exp_gamma", exp_gamma, float, "a float")
        check_type("base_learning_rate", base_learning_rate, NUMBER)
        modes: dict[str, tuple[Callable[[float], float], str]] = {
            "triangular": (lambda cycle: 1.0, "cycle"),
            "triangular2": (lambda cycle: 2.0 ** (1 - cycle), "cycle"),
            "exp_range": (lambda epoch: exp_gamma**epoch, "iterations"),
        }
        is_valid = mode in modes or scale_fn is not None
        check(is_valid, f"mode must be one of {list(modes)} without scale_fn, got {mode!r}.")
        is_valid = scale_mode in ("cycle", "iterations")
        check(is_valid, f"scale_mode must be 'cycle' or 'iterations', got {scale_mode!r}.")
        self.scale_fn, self.scale_mode = modes[mode] if scale_fn is None else (scale_fn, scale_mode)
        self.mode, self.gamma, self.max_lr = mode, exp_gamma, float(max_learning_rate)
        self.cycle_size = float(step_size_up + down)
        self.step_up_pct = step_size_up / self.cycle_size
        self.amplitude = self.max_lr - base_learning_rate
        super().__init__(base_learning_rate, last_epoch, verbose)

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``."""
        cycle = 1 + self.last_epoch // self.cycle_size
        share = 1.0 + self.last_epoch / self.cycle_size - cycle
        rising = share <= self.step_up_pct
        height = share / self.step_up_pct if rising else (1 - share) / (1 - self.step_up_pct)
        factor = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        return self.base_lr + self.amplitude * height * factor
