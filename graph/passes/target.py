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

    replicas: how many copies run in lockstep, those of all ``trainers`` together.
    strategy: the user's switches (None: one place, no switches).
    has_loss: the program trains, so gradients are reduced.
    bucket_bytes, bucket_members: bytes and number of gradients in one collective (0 members: any number).
    delay_collectives, barrier: the execution strategy's ``allow_op_delay`` and ``use_thread_barrier``.
    fetches: names of variables whose last values must exist afterwards.
    whole_feeds: names of fed variables of which all places get the same value.
    own_states: names of persistables of which other programs left each place a value of its own.
    keeps: the driver stores values that differ by place, for a replica that replaces a lost one.
    checks: every op checks that its results are finite, before any persistable is written.
    rows: gradients of sparse embeddings may stay rows.
    part: the name of a loop's block, which ends the names of its pictures.

    Five fields tell which nodes libraries take (None: none). ``compiles``: nodes for a compiler of regions.
    ``adds_gradients``: gradients of a convolution's images, to which a value is added. ``keeps_masks``: batch
    norms with a sum and a relu, whose mask is stored. ``folds_residuals``: layer norms that compute the sum
    before them. ``drops_weights``: attentions whose weights are dropped by the library's own random numbers.
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
        """The name of the member of ReduceStrategy by which gradients are reduced."""
        return "AllReduce" if self.strategy is None else self.strategy.reduce_strategy.name


@dataclass(frozen=True)
class Pass:
    """One entry of the pipeline: its function, when it is on, and why it stands where it does.

    ``keeps_values``: values that exist both before and after the pass agree, up to rounding.
    """

    name: str
    run: Callable[[Graph, Target], Graph]
    is_on: Callable[[Target], bool]
    why_here: str
    keeps_values: bool = True
