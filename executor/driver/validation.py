"""Strategies of a program: refuse contradictions and what is not built; copy them, and tell of edits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...graph.program.where import warn_user
from ...strategies.errors import InvalidType, Unsupported

if TYPE_CHECKING:
    from ...strategies.build import BuildStrategy
    from ...strategies.execution import ExecutionStrategy


def validate_types(build: Any = None, execution: Any = None) -> None:
    """Refuse strategies of another type; None is the defaults.

    Raises:
        InvalidType: names the argument.
    """
    from ...strategies.build import BuildStrategy
    from ...strategies.execution import ExecutionStrategy

    for name, strategy, kind in (
        ("build_strategy", build, BuildStrategy),
        ("exec_strategy", execution, ExecutionStrategy),
    ):
        if strategy is not None and not isinstance(strategy, kind):
            raise InvalidType(
                f"{name}: a strategy must be of type {kind.__name__}, got {type(strategy).__name__}."
            )


def validate_strategies(build: BuildStrategy, execution: ExecutionStrategy) -> None:
    """Refuse strategies that contradict themselves or whose effect is not built; write what compiling decides.

    Raises:
        Unsupported: names the fields.
    """
    from ...strategies.base import unbuilt

    refused = unbuilt(build)[1] + unbuilt(execution)[1]
    if refused:
        raise Unsupported(
            f"these strategy settings are not built yet: {', '.join(refused)}. Leave the defaults."
        )
    build.is_distribution = False  # no send or recv ops: Paddle overwrites it, too
    if build.sync_batch_norm and not build._finalized:
        build.enable_sequential_execution = True


class StrategyCopies:
    """The strategies that a program is compiled with: what the user changes later has no effect on it."""

    def __init__(self, build: BuildStrategy, execution: ExecutionStrategy) -> None:
        self.build, self.execution = build.model_copy(deep=True), execution.model_copy(deep=True)
        self._pairs = (build, self.build), (execution, self.execution)
        self._edits = build.edits, execution.edits
        self._edits_seen = self._edits[0].count + self._edits[1].count

    def warn_of_edits(self) -> None:
        """Warn, once for each change, of fields that the user changed since; every step calls this."""
        edits = self._edits[0].count + self._edits[1].count
        if edits == self._edits_seen:
            return
        self._edits_seen = edits
        for original, copied in self._pairs:
            names = original.differing_fields(copied)
            if names:
                warn_user(
                    f"{type(copied).__name__}.{', '.join(names)} changed after this program was compiled, and "
                    f"the change has no effect on it. Make a new CompiledProgram."
                )
