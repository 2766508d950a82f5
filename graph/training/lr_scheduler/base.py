"""The base of schedules, and the schedule that follows a measure instead of the epoch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....strategies.errors import (
    EnforceNotMet,
    InvalidArgument,
    InvalidType,
    InvalidValue,
    StateMismatch,
    Unsupported,
)
from ...program.where import warn_user

Types = type | tuple[type, ...]
NUMBER = (float, int)


def check(condition: bool, message: str, error: type[EnforceNotMet] = InvalidValue) -> None:
    """Raise ``error`` with a message unless a condition holds."""
    if not condition:
        raise error(message)


def check_type(name: str, value: Any, types: Types, expected: str = "a float or an int") -> None:
    """Raise InvalidType unless a value is of one of the types."""
    check(isinstance(value, types), f"{name} must be {expected}, got {value!r}.", InvalidType)


class LRScheduler:
    """Base of schedules; a subclass defines :meth:`get_lr`, and calling a schedule gives the rate in force.

    Args:
        learning_rate: base rate, a float or an int that is not negative.
        last_epoch: epoch before the first one; the constructor steps on by one.
        verbose: print a line at each step.

    Raises:
        InvalidType: the rate is no number.
        InvalidValue: the rate is negative.
    """

    def __init__(
        self, learning_rate: float = 0.1, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        check_type("learning_rate", learning_rate, NUMBER)
        check(learning_rate >= 0, f"learning_rate must not be negative, got {learning_rate}.")
        self.base_lr = self.last_lr = float(learning_rate)
        self.last_epoch = last_epoch
        self.verbose = verbose
        self.step()

    def __call__(self) -> float:
        """Return the learning rate in force."""
        return self.last_lr

    def get_lr(self) -> float:
        """Compute the learning rate at ``last_epoch``; ``last_lr`` is the rate before it."""
        raise Unsupported(f"{type(self).__name__} must define get_lr().")

    def _get_closed_form_lr(self) -> float:
        """Compute the learning rate at ``last_epoch`` without the rate before it, for jumps."""
        return self.get_lr()

    def step(self, epoch: int | None = None) -> None:
        """Move on by one epoch, or jump to ``epoch``."""
        if epoch is None:
            self.last_epoch += 1
            self.last_lr = self.get_lr()
        else:
            self.last_epoch = epoch
            self.last_lr = self._get_closed_form_lr()
        self._report()

    def _report(self) -> None:
        if self.verbose:
            kind = type(self).__name__
            print(f"Epoch {self.last_epoch}: {kind} set learning rate to {self.last_lr}.")

    def state_keys(self) -> None:
        """Set ``keys``, the names of the attributes that :meth:`state_dict` returns."""
        self.keys = ["last_epoch", "last_lr"]

    def state_dict(self) -> dict[str, Any]:
        """Return what :meth:`set_state_dict` takes, by attribute."""
        self.state_keys()
        return {key: self.__dict__[key] for key in self.keys if key in self.__dict__}

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go back to a state that :meth:`state_dict` returned; warn of keys that are not used.

        Raises:
            StateMismatch: a key is missing.
        """
        self.state_keys()
        absent = [key for key in self.keys if key not in state_dict]
        check(not absent, f"{type(self).__name__}: the state lacks {absent}.", StateMismatch)
        self.__dict__.update({key: state_dict[key] for key in self.keys})
        unused = sorted(set(state_dict) - set(self.keys))
        if unused:
            warn_user(f"{type(self).__name__} does not use {unused} of the state.")

    set_dict = set_state_dict


class ReduceOnPlateau(LRScheduler):
    """Multiply the rate by ``factor`` when a measure has not improved for more than ``patience`` steps.

    Args:
        learning_rate: rate at first, a float or an int.
        mode: "min" if a lower measure is better, "max" if a higher one is.
        factor: below 1.
        patience: steps without an improvement that change nothing.
        threshold: what counts as an improvement, see ``threshold_mode``.
        threshold_mode: "rel" (a share of the best measure) or "abs".
        cooldown: steps after a reduction that are not counted.
        min_lr: lower bound of the rate.
        epsilon: reductions by no more than this are not made.
        verbose: print a line at each reduction.

    Raises:
        InvalidType: the rate is no number.
        InvalidValue: an unknown mode, or a factor of 1 or more.
    """

    def __init__(
        self,
        learning_rate: float,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0,
        epsilon: float = 1e-8,
        verbose: bool = False,
    ) -> None:
        self.mode, self.threshold_mode = mode.lower(), threshold_mode.lower()
        check(self.mode in ("min", "max"), f"mode must be 'min' or 'max', got {mode!r}.")
        check(factor < 1, f"factor must be below 1, got {factor}.")
        relative = self.threshold_mode in ("rel", "abs")
        check(relative, f"threshold_mode must be 'rel' or 'abs', got {threshold_mode!r}.")
        check_type("learning_rate", learning_rate, NUMBER)
        self.factor, self.patience, self.threshold = factor, patience, threshold
        self.cooldown, self.min_lr, self.epsilon = cooldown, min_lr, epsilon
        self.base_lr = self.last_lr = float(learning_rate)
        self.last_epoch, self.verbose = 0, verbose
        self.cooldown_counter = self.num_bad_epochs = 0
        self.best: float | None = None

    def state_keys(self) -> None:
        """Set ``keys``, the names of the attributes that :meth:`state_dict` returns."""
        self.keys = ["cooldown_counter", "best", "num_bad_epochs", "last_epoch", "last_lr"]

    def get_lr(self) -> float:
        """Return the learning rate in force."""
        return self.last_lr

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take a measure, a number or an array of one element, and reduce the rate on a plateau.

        Raises:
            InvalidType: the measure is no number.
            InvalidArgument: it has more than one element.
        """
        check_type("metrics", metrics, (float, int, np.number, np.ndarray), "a number or an array")
        size = np.size(metrics)
        check(size == 1, f"metrics must have one element, got {size}.", InvalidArgument)
        measure = float(np.asarray(metrics).item())
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            return
        if self.best is None or self._improves(measure, self.best):
            self.best, self.num_bad_epochs = measure, 0
        else:
            self.num_bad_epochs += 1
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            rate = max(self.last_lr * self.factor, self.min_lr)
            if self.last_lr - rate > self.epsilon:
                self.last_lr = rate
                self._report()

    def _improves(self, measure: float, best: float) -> bool:
        margin = self.threshold * (best if self.threshold_mode == "rel" else 1)
        return measure < best - margin if self.mode == "min" else measure > best + margin
