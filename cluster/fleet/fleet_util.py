"""What the workers of a fleet print and count together."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from ...executor.feed.scope import Scope, global_scope
from ...strategies.errors import InvalidValue, NotInitialized, Unsupported
from .collective import fleet as collective_fleet
from .fleet import Fleet
from .servers import fleet as transpiler_fleet

_logger = logging.getLogger("rowlock")


class FleetUtil:
    """Helps workers of a fleet. ``mode``: "transpiler" or "collective".

    Raises:
        Unsupported: the mode is PSLib's.
        InvalidValue: there is no such mode.
    """

    def __init__(self, mode: str = "pslib") -> None:
        if mode == "pslib":
            raise Unsupported(
                "FleetUtil: PSLib's servers are not Rowlock's: FleetUtil('transpiler')."
            )
        fleets: dict[str, Fleet] = {"transpiler": transpiler_fleet, "collective": collective_fleet}
        if mode not in fleets:
            raise InvalidValue(f"FleetUtil: mode must be one of {', '.join(fleets)}, got {mode!r}.")
        self._fleet = fleets[mode]

    def rank0_print(self, s: Any) -> None:
        """Print on worker 0."""
        if self._fleet.is_first_worker():
            print(s, flush=True)

    def rank0_info(self, s: Any) -> None:
        """Log a message on worker 0."""
        if self._fleet.is_first_worker():
            _logger.info(s)

    def rank0_error(self, s: Any) -> None:
        """Log an error on worker 0."""
        if self._fleet.is_first_worker():
            _logger.error(s)

    def set_zero(
        self,
        var_name: str,
        scope: Scope | None = None,
        place: Any = None,
        param_type: str = "int64",
    ) -> None:
        """Fill a variable of a scope with zeros, such as the counts of ``layers.auc`` between two days."""
        tensor = _value(var_name, scope)
        tensor.set(np.zeros(tensor.shape(), param_type))

    def get_global_auc(
        self,
        scope: Scope | None = None,
        stat_pos: str = "_generated_var_2",
        stat_neg: str = "_generated_var_3",
    ) -> float:
        """Return the area under the ROC curve of all workers' samples, from the counts of ``layers.auc``.

        0.5 where there are no positive or no negative ones.

        Raises:
            NotInitialized: a variable holds no counts.
        """
        counts = [self._summed(name, scope) for name in (stat_pos, stat_neg)]
        positive, negative = (np.concatenate([[0.0], np.cumsum(c[::-1])]) for c in counts)
        if not positive[-1] or not negative[-1]:
            return 0.5
        steps = np.diff(negative) * (positive[1:] + positive[:-1]) / 2
        return float(steps.sum() / (positive[-1] * negative[-1]))

    def print_global_auc(
        self,
        scope: Scope | None = None,
        stat_pos: str = "_generated_var_2",
        stat_neg: str = "_generated_var_3",
        print_prefix: str = "",
    ) -> None:
        """Print what :meth:`get_global_auc` returns, on worker 0."""
        self.rank0_print(
            f"{print_prefix} global auc = {self.get_global_auc(scope, stat_pos, stat_neg)}"
        )

    def _summed(self, name: str, scope: Scope | None) -> Any:
        values = np.asarray(_value(name, scope)).ravel().tolist()
        return np.sum(self._fleet.gather_workers(values), axis=0)


def _value(name: str, scope: Scope | None) -> Any:
    variable = (global_scope() if scope is None else scope).find_var(name)
    if variable is None or not variable.get_tensor().initialized:
        raise NotInitialized(f"variable {name!r} holds no value in this scope.")
    return variable.get_tensor()
