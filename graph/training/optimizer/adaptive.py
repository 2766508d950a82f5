"""Methods of Paddle 2.x that adapt each element's step: see ``graph/ops/optimize_adaptive.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....strategies.errors import InvalidValue
from ...layers.regularizer import as_regularizer
from .methods import Method, check_moments


class NAdam(Method):
    """Adam with Nesterov's momentum. ``momentum_decay`` tells how fast the momentum reaches ``beta1``.

    Raises:
        InvalidValue: a coefficient is out of its range.
    """

    type = "nadam"
    starts: Mapping[str, float] = {"momentum_decay_pow": 1.0, "beta2_pow": 1.0, "mu_product": 1.0}

    def __init__(
        self,
        learning_rate: Any = 0.002,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        momentum_decay: float = 0.004,
        parameters: Any = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        decay = as_regularizer(weight_decay)
        super().__init__(learning_rate, parameters, decay, grad_clip, name)
        coefficients = {"epsilon": epsilon, "momentum_decay": momentum_decay}
        self._attrs = _checked("NAdam", learning_rate, beta1, beta2, **coefficients)


class RAdam(Method):
    """Adam that begins as momentum, until the second moment's variance can be told.

    Raises:
        InvalidValue: a coefficient is out of its range.
    """

    type = "radam"
    starts: Mapping[str, float] = {"beta1_pow": 1.0, "beta2_pow": 1.0, "rho": 1.0}

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameters: Any = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        decay = as_regularizer(weight_decay)
        super().__init__(learning_rate, parameters, decay, grad_clip, name)
        self._attrs = _checked("RAdam", learning_rate, beta1, beta2, epsilon=epsilon)


class Rprop(Method):
    """Steps by the sign of each element's gradient, at a rate of its own; for full batches.

    Rates begin with ``learning_rate``, shrink by the first of ``etas`` where the sign changes, grow by the
    second where it stays, and keep within ``learning_rate_range``.

    Raises:
        InvalidValue: ``learning_rate`` is out of its range, or an eta is.
    """

    type = "rprop"
    has_master = True
    named: Mapping[str, str] = {"Prev": "prevs"}
    uses_rate = False

    def __init__(
        self,
        learning_rate: float = 0.001,
        learning_rate_range: tuple[float, float] = (1e-5, 50.0),
        parameters: Any = None,
        etas: tuple[float, float] = (0.5, 1.2),
        grad_clip: Any = None,
        multi_precision: bool = False,
        name: str | None = None,
    ) -> None:
        (low, high), (shrinks, grows) = learning_rate_range, etas
        if not 0.0 < low <= learning_rate <= high:
            raise InvalidValue(
                f"Rprop: learning_rate must be within learning_rate_range, which must be above 0; got "
                f"{learning_rate!r} and {learning_rate_range!r}."
            )
        if not 0.0 < shrinks < 1.0 < grows:
            raise InvalidValue(f"Rprop: etas must be one below 1 and one above it, got {etas!r}.")
        super().__init__(float(learning_rate), parameters, None, grad_clip, name)
        self._multi_precision = multi_precision
        self.starts = {"learning_rates": float(learning_rate)}
        ends = {"learning_rate_min": float(low), "learning_rate_max": float(high)}
        self._attrs = {**ends, "eta_negative": float(shrinks), "eta_positive": float(grows)}


class ASGD(Method):
    """The averaged gradient's steps, as static programs of Paddle 3.3.1 take them.

    They never count their batches, so ``batch_num`` does not tell, and every step is SGD's.

    Raises:
        InvalidValue: ``batch_num`` is below 1.
    """

    type = "asgd"
    has_master = True

    def __init__(
        self,
        learning_rate: Any = 0.001,
        batch_num: int = 1,
        parameters: Any = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        multi_precision: bool = False,
        name: str | None = None,
    ) -> None:
        if batch_num < 1:
            raise InvalidValue(f"ASGD: batch_num must be an int from 1 up, got {batch_num!r}.")
        decay = as_regularizer(weight_decay)
        super().__init__(learning_rate, parameters, decay, grad_clip, name)
        self._multi_precision = multi_precision


def _checked(
    optimizer: str, learning_rate: Any, beta1: float, beta2: float, **coefficients: float
) -> dict[str, Any]:
    """Return the attributes: betas within [0, 1), and numbers not below 0."""
    rate = {"learning_rate": learning_rate} if isinstance(learning_rate, (int, float)) else {}
    check_moments(optimizer, beta1, beta2, **rate, **coefficients)
    return {"beta1": beta1, "beta2": beta2, **coefficients}
