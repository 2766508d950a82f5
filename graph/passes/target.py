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
    gradient data travels in one all-reduce.
    """

    replicas: int = 1
    strategy: BuildStrategy | None = None
    has_loss: bool = False
    bucket_bytes: int = 4 << 20


@dataclass(frozen=True)
class Pass:
    """One entry of the pipeline: what it does, when it is on, and why it stands where it stands."""

    name: str
    run: Callable[[Graph, Target], Graph]
    wanted: Callable[[Target], bool]
    why_here: str
