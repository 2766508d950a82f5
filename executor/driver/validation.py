"""Validate strategies before a run: refuse contradictions and fields that are not built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...strategies.errors import InvalidType, Unsupported

if TYPE_CHECKING:
    from ...strategies.build import BuildStrategy
    from ...strategies.execution import ExecutionStrategy


def validate_strategies(build: BuildStrategy, execution: ExecutionStrategy) -> None:
    """Refuse strategies that contradict themselves or whose effect is not built; write what compiling decides.

    Raises:
        InvalidType: a strategy is of another type.
        Unsupported: names the fields.
    """
    from ...strategies.base import unbuilt
    from ...strategies.build import BuildStrategy
    from ...strategies.execution import ExecutionStrategy

    for name, strategy, kind in (
        ("build_strategy", build, BuildStrategy),
        ("exec_strategy", execution, ExecutionStrategy),
    ):
        if not isinstance(strategy, kind):
            raise InvalidType(
                f"{name}: a strategy must be of type {kind.__name__}, got {type(strategy).__name__}."
            )
    refused = unbuilt(build)[1] + unbuilt(execution)[1]
    if refused:
        raise Unsupported(
            f"these strategy settings are not built yet: {', '.join(refused)}. Leave the defaults."
        )
    build.is_distribution = False  # no send or recv ops: Paddle overwrites it, too
    if build.sync_batch_norm and not build._finalized:
        build.enable_sequential_execution = True
