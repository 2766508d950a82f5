"""DistributedStrategy: how a collective fleet trains."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from .base import effect, hint, semantic
from .build import BuildStrategy, Flag
from .execution import ExecutionStrategy


class DistributedStrategy(BuildStrategy):
    """Switches of the compiler, and those of a collective fleet. Names and defaults are Paddle's.

    ``mode``: "nccl2" compiles the program for all workers; "collective" puts the ops of ``collective_mode``
    ("grad_allreduce", or "local_sgd": parameters are averaged behind each update) into it. ``use_local_sgd``
    sets both. ``forward_recompute`` with ``recompute_checkpoints``: variables whose values are kept; what lies
    between them is computed again. ``use_amp``: float16 with a loss scaled by ``amp_loss_scaling`` at first.
    ``exec_strategy``: how a step is run. ``use_dist_fc`` is refused; nothing reads its ``dist_fc_config``.
    """

    mode: Literal["nccl2", "collective"] = effect("nccl2")
    collective_mode: Literal["grad_allreduce", "local_sgd"] | None = effect(None)
    use_local_sgd: Flag = effect(False)
    use_dist_fc: Flag = semantic(False)
    dist_fc_config: Any = hint(None)
    forward_recompute: Flag = effect(False)
    recompute_checkpoints: list[Any] = effect([])
    use_amp: Flag = effect(False)
    amp_loss_scaling: float = effect(2.0**15, gt=0, strict=False)
    exec_strategy: ExecutionStrategy = Field(
        default_factory=ExecutionStrategy, json_schema_extra={"built": "all"}
    )

    def build_strategy(self) -> BuildStrategy:
        """Return the switches of the compiler alone."""
        return BuildStrategy(**{name: getattr(self, name) for name in BuildStrategy.model_fields})
