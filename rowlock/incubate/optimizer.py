"""``paddle.incubate.optimizer``: what surrounds optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.program.program import default_main_program
from ..graph.program.variable import Parameter
from ..graph.training import optimizer as methods
from ..graph.training.optimizer import GradientMergeOptimizer, LookAhead, RecomputeOptimizer
from ..names import publish_listed


class ModelAverage(methods.ModelAverage):
    """The mean over a window of the last steps, of ``parameters`` or all of the default main program.

    Made behind the ``minimize`` of an optimizer, it appends what it needs; its own appends nothing.
    """

    def __init__(
        self,
        average_window_rate: float,
        parameters: Sequence[Parameter] | None = None,
        min_average_window: int = 10000,
        max_average_window: int = 10000,
        name: str | None = None,
    ) -> None:
        if parameters is None:
            parameters = default_main_program().all_parameters()
        window = (average_window_rate, min_average_window, max_average_window)
        super().__init__(*window, name=name, parameters=parameters)

    def minimize(  # type: ignore[override]
        self,
        loss: Any,
        startup_program: Any = None,
        parameters: Any = None,
        no_grad_set: Any = None,
    ) -> None:
        """Append nothing, as in Paddle."""


__all__ = ["GradientMergeOptimizer", "LookAhead", "ModelAverage", "RecomputeOptimizer"]

publish_listed(__name__)
