"""RunOptions: how a loaded program is run, as the driver sends it to every replica."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ...graph.lowering.memory import MemoryOptions

if TYPE_CHECKING:
    from ...strategies.build import BuildStrategy
    from ...strategies.execution import ExecutionStrategy


@dataclass(frozen=True)
class RunOptions:
    """The strategies that a program was compiled with, and how it stands among its replicas.

    The strategies travel whole: a field is declared there and read where it acts, and no file between them
    names it. ``capped``: ``num_threads`` is the default, so a replica uses no more than its share of the
    host's cores. ``alone``: the program has no collectives, and the replica's peers take no part in it.
    ``within``: seconds that a step may take (ClusterConfig.step_deadline_s); a loop ends with an error before.
    ``trainers``: the group of all trainers' replicas that the program meets in (empty: that of the gang), and
    ``rings`` whether its own ops meet there, so that no more of it need be alike on all.
    """

    build: BuildStrategy
    execution: ExecutionStrategy
    capped: bool = False
    alone: bool = False
    within: float = math.inf
    trainers: str = ""
    rings: bool = False

    @classmethod
    def sequential(cls) -> Self:
        """Return the options of a program without strategies: one instruction after another."""
        from ...strategies.build import BuildStrategy
        from ...strategies.execution import ExecutionStrategy

        return cls(BuildStrategy(), ExecutionStrategy(num_threads=1))

    def to_plain(self) -> dict[str, Any]:
        """Return the options as data that can be sent."""
        build = self.build.to_json(changed_only=True)
        execution = self.execution.to_json(changed_only=True)
        return {**vars(self), "build": build, "execution": execution}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Return the options that :meth:`to_plain` made data of."""
        from ...strategies.build import BuildStrategy
        from ...strategies.execution import ExecutionStrategy

        build = BuildStrategy.from_json(plain["build"])
        execution = ExecutionStrategy.from_json(plain["execution"])
        return cls(**{**plain, "build": build, "execution": execution})

    @property
    def memory_options(self) -> MemoryOptions:
        """How temporaries may share memory."""
        return MemoryOptions(self.build.memory_optimize is not False, self.build.enable_inplace)

    @property
    def in_program_order(self) -> bool:
        """Whether the user wants the ops to run in the order of the program."""
        return self.build.enable_sequential_execution or self.build.sequential_run
