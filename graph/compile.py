"""From a user's Program to the ReplicaProgram that every replica runs. The Program is only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..strategies.errors import nearest
from ..strategies.types import to_numpy
from .ir.reader import from_program
from .ir.replica_program import ReplicaProgram, lower
from .lowering.layout import lay_out
from .lowering.placement import all_here, place_on_host
from .lowering.select import Capabilities, refuse_exact, select_kernels
from .ops.region import REGION
from .ops.registry import OPS
from .ops.rules import product
from .passes.replicated import place_states, replicated
from .passes.sync_batch_norm import expand_sync_ops
from .passes.target import Target
from .pipeline import Stage, run_pipeline
from .program.program import Program
from .program.seeds import seed_of
from .report.report import CompileReport


@dataclass(frozen=True)
class Compiled:
    """A compiled program and the report of how it came about; ``stages`` if ``verify_passes`` wants them."""

    program: ReplicaProgram
    report: CompileReport
    stages: tuple[Stage, ...] = ()


def compile_program(
    program: Program,
    feed_names: Sequence[str],
    fetch_names: Sequence[str],
    target: Target,
    capabilities: Capabilities,
    back_end: str = "numpy",
    *,
    keep: Sequence[str] | None = None,
) -> Compiled:
    """Compile block 0 for a target. ``keep``: leave out every op that these variables do not need.

    Raises:
        FeedError: an op needs a variable that is not fed.
        NotFound: a fed or fetched name is no variable of the program.
        Unsupported: an op has no kernel on ``back_end``, or none with the precision of the strategy.
    """
    graph = from_program(program, feed_names)
    graph = graph if keep is None else graph.pruned(keep)
    graph = all_here(graph, program) if back_end == "numpy" else graph
    compiles = capabilities.get("xla", {}).get(REGION)
    target = replace(target, fetches=tuple(fetch_names), compiles=compiles)
    verifies = target.strategy is not None and target.strategy.verify_passes
    stages: list[Stage] | None = [] if verifies else None
    graph = expand_sync_ops(graph, target)
    graph, records = run_pipeline(graph, target, stages)
    if back_end != "numpy":
        graph = place_on_host(graph, capabilities[back_end])
    selected = select_kernels(graph, capabilities, back_end, target.onednn_ops)
    math = target.math(back_end)
    refuse_exact(selected, math, capabilities)
    for text in _without_effect(target):
        graph = graph.noted(text)
    graph, kernels = lay_out(graph, selected, math)
    alike = replicated(graph, target)
    own_states = place_states(graph, alike, target)
    lowered = lower(
        graph, fetch_names, kernels, seed_of(program), math, alike, own_states, target.checks
    )
    graph = graph.noted(_describe_place_states(lowered)) if own_states else graph
    report = CompileReport(
        tuple(records),
        graph,
        target.replicas,
        _ignored(target),
        tuple(sum(_nbytes(lowered, i) for i in bucket) for bucket in lowered.buckets),
        _owned_bytes(lowered, target.replicas),
        Counter(kernels.values()),
    )
    return Compiled(lowered, report, tuple(stages or ()))


def _describe_place_states(program: ReplicaProgram) -> str:
    """Describe how many persistables the driver stores for each place, and their bytes."""
    nbytes = sum(_nbytes(program, i) for i in program.fetches[len(program.user_fetches) :])
    return (
        f"each place has its own value of {len(program.place_states)} persistable(s), which go to the driver "
        f"with every step ({nbytes:,} bytes a place), for a replica that takes the place of a lost one"
    )


def _ignored(target: Target) -> tuple[str, ...]:
    """Return the fields that the user changed and nothing reads."""
    if target.strategy is None:
        return ()
    from ..strategies.base import unbuilt  # brings pydantic, as the strategy did

    return tuple(unbuilt(target.strategy)[0])


def _without_effect(target: Target) -> Iterator[str]:
    """Say of what was asked that it cannot be done."""
    for name in sorted(target.onednn_ops - OPS.keys()):
        yield f"onednn_enabled_op_types: there is no operator {name!r}.{nearest(name, OPS)}"


def _nbytes(program: ReplicaProgram, position: int) -> int:
    value = program.values[position]
    return abs(product(value.shape)) * to_numpy(value.dtype).itemsize


def _owned_bytes(program: ReplicaProgram, replicas: int) -> tuple[int, ...]:
    """Return, per rank, the bytes of the persistables that it alone holds (empty if there are none)."""
    owners = program.owners()
    nbytes = [0] * replicas
    first = {value.name: i for i, value in reversed(list(enumerate(program.values)))}
    for name, rank in owners.items():
        nbytes[rank] += _nbytes(program, first[name])
    return tuple(nbytes) if owners else ()
