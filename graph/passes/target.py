"""What a graph is compiled for, and the record that declares a pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir import Graph

if TYPE_CHECKING:
    from ...strategies.build import BuildStrategy


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the program will run.

    ``replicas`` copies in lockstep; ``strategy`` the user's switches (None: one place, no switches);
    ``has_loss`` whether the program trains, so that gradients must meet; ``bucket_bytes`` how much
    gradient data travels in one collective, and ``bucket_members`` how many gradients (0: any number);
    ``delay_collectives`` and ``barrier`` are the execution strategy's ``allow_op_delay`` and
    ``use_thread_barrier``.
    """

    replicas: int = 1
    strategy: BuildStrategy | None = None
    has_loss: bool = False
    bucket_bytes: int = 2 << 20
    bucket_members: int = 0
    delay_collectives: bool = False
    barrier: bool = False

    @property
    def many(self) -> bool:
        """Whether gradients of several replicas must meet."""
        return self.has_loss and self.replicas > 1

    @property
    def in_program_order(self) -> bool:
        """Whether the user wants the ops to run in the order of the program."""
        build = self.strategy
        return build is not None and (build.enable_sequential_execution or build.sequential_run)

    @property
    def reduces_to(self) -> str:
        """Where gradients meet: a member of ReduceStrategy, by name."""
        return "AllReduce" if self.strategy is None else self.strategy.reduce_strategy.name


@dataclass(frozen=True)
class Pass:
    """One entry of the pipeline: what it does, when it is on, and why it stands where it stands."""

    name: str
    run: Callable[[Graph, Target], Graph]
    wanted: Callable[[Target], bool]
    why_here: str
