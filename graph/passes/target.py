"""Target, the places and strategy a graph is compiled for; Pass, the declaration of one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.graph import Graph, Node

if TYPE_CHECKING:
    from ...strategies.build import BuildStrategy


@dataclass(frozen=True, kw_only=True)
class Target:
    """The places and switches that a graph is compiled for.

    ``replicas`` copies in lockstep, those of all ``trainers``;
    ``strategy`` the user's switches (None: one place, no switches);
    ``has_loss`` whether the program trains, so that gradients are reduced; ``bucket_bytes`` how much
    gradient data travels in one collective, and ``bucket_members`` how many gradients (0: any number);
    ``delay_collectives`` and ``barrier`` are the execution strategy's ``allow_op_delay`` and
    ``use_thread_barrier``. ``fetches`` names the variables whose last values must still be there afterwards.
    ``compiles`` tells which nodes a compiler of regions can take (None: there is no compiler),
    ``adds_gradients`` to which gradients of a convolution's images a library adds a value (None: to none),
    ``keeps_masks`` of which batch norms with a sum and a relu a library keeps the relu's mask (None: of none),
    ``folds_residuals`` into which layer norms one folds a sum (None: into none), ``drops_weights`` of which
    attentions one drops weights by its own numbers (None: of none).

    ``whole_feeds`` names the fed variables of which all places get the same value; ``own_states`` the
    persistables of which other programs left each place a value of its own. ``keeps``: the driver stores the
    values that differ by place, for a replica that takes the place of a lost one. ``checks``: every op checks
    that its results are finite, before any persistable is written. ``rows``: gradients of sparse embeddings may
    stay rows. ``part`` names the block of a loop, behind the path of pictures.
    """

    replicas: int = 1
    trainers: int = 1
    strategy: BuildStrategy | None = None
    has_loss: bool = False
    bucket_bytes: int = 2 << 20
    bucket_members: int = 0
    delay_collectives: bool = False
    barrier: bool = False
    fetches: tuple[str, ...] = ()
    compiles: Callable[[Node], bool] | None = None
    adds_gradients: Callable[[Node], bool] | None = None
    keeps_masks: Callable[[Node], bool] | None = None
    folds_residuals: Callable[[Node], bool] | None = None
    drops_weights: Callable[[Node], bool] | None = None
    whole_feeds: frozenset[str] = frozenset()
    own_states: frozenset[str] = frozenset()
    keeps: bool = False
    checks: bool = False
    rows: bool = False
    part: str = ""

    @property
    def many(self) -> bool:
        """Whether gradients of several replicas are reduced."""
        return self.has_loss and self.replicas > 1

    @property
    def may_idle(self) -> bool:
        """Whether a place may have no rows in a step; it then leaves out the ops that read rows."""
        build = self.strategy
        weighted = build is not None and build.gradient_scale_strategy.name == "SampleWeighted"
        return not self.has_loss or weighted

    @property
    def in_program_order(self) -> bool:
        """Whether the user wants the ops to run in the order of the program."""
        build = self.strategy
        return build is not None and (build.enable_sequential_execution or build.sequential_run)

    @property
    def onednn_ops(self) -> frozenset[str]:
        """Return the only op types that oneDNN may compute (none: all that it can)."""
        build = self.strategy
        if build is None:
            return frozenset()
        return frozenset(build.onednn_enabled_op_types | build.mkldnn_enabled_op_types)

    def math(self, back_end: str) -> str:
        """Return the precision of single-precision products on this array module."""
        if self.strategy is None:
            return "float32"
        return self.strategy.cpu_math if back_end == "numpy" else self.strategy.gpu_math

    @property
    def reduces_to(self) -> str:
        """How gradients are reduced: a member of ReduceStrategy, by name."""
        return "AllReduce" if self.strategy is None else self.strategy.reduce_strategy.name


@dataclass(frozen=True)
class Pass:
    """One entry of the pipeline: what it does, when it is on, and why it stands where it stands.

    ``keeps_values``: every value that is there before and after it is the same, but for rounding.
    """

    name: str
    run: Callable[[Graph, Target], Graph]
    is_on: Callable[[Target], bool]
    why_here: str
    keeps_values: bool = True
