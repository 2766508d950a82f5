"""From a user's Program to the ReplicaProgram that every replica runs. The Program is only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, takewhile

from ..strategies.errors import NotFound, Unsupported, nearest
from ..strategies.types import to_numpy
from .ir.capabilities import ROUNDED, Capabilities, Takes, libraries, variants
from .ir.data_loops import Body
from .ir.graph import FEED, Graph, Node, OpKey
from .ir.host_calls import with_levels_told
from .ir.reader import from_program
from .ir.replica_program import NodeRecord, ReplicaProgram, lower
from .ir.segments import Part, cut, part_numbers
from .ir.sequences import level_name
from .lowering.factors import round_factors
from .lowering.layout import lay_out
from .lowering.placement import all_here, place_on_host
from .lowering.select import alternatives, has_kernel, refuse_exact, select_kernels
from .ops.collective import COLLECTIVES
from .ops.conv import GRAD_ADD
from .ops.fused_norm import MASKED
from .ops.region import REGION
from .ops.registry import OPS
from .ops.residual_norm import ADD_NORM
from .ops.rules import product
from .passes.fused_attention import FUSED
from .passes.replicated import place_states, replicated
from .passes.sparse_rows import counted_before, refuse_lazy
from .passes.sync_batch_norm import expand_sync_ops
from .passes.target import Target
from .pipeline import Stage, run_pipeline
from .program.program import Program
from .program.role import OpRole
from .program.seeds import seed_of
from .report.report import CompileReport


@dataclass(frozen=True)
class Compiled:
    """A compiled program, and the report that ``explain()`` prints.

    ``stages`` are the graphs before and after each pass, with ``verify_passes`` alone. ``alternatives`` lists
    for each node the kernels that are worth measuring, the program's first; nothing where there is no choice.
    """

    program: ReplicaProgram
    report: CompileReport
    stages: tuple[Stage, ...] = ()
    alternatives: tuple[tuple[str, ...], ...] = ()


def compile_program(
    program: Program,
    feed_names: Sequence[str],
    fetch_names: Sequence[str],
    target: Target,
    capabilities: Capabilities,
    back_end: str = "numpy",
    *,
    keep: Sequence[str | OpKey] | None = None,
) -> Compiled:
    """Compile block 0 of a program for a target.

    ``keep`` names variables, or ops: others that neither these nor what is fetched need are left out. Where it
    names none, optimizers are kept, unless they need what is not fed.

    Raises:
        FeedError: an op needs a variable that is not fed.
        NotFound: a fed or fetched name is no variable of the program.
        Unsupported: an op has no kernel on ``back_end``, or none with the precision of the strategy.
    """
    _refuse_shared(program, fetch_names)
    graph = from_program(program, feed_names)
    fetch_lods = _levels_of(graph, fetch_names)
    graph = with_levels_told(graph, [name for names in fetch_lods for name in names])
    level_names = list(dict.fromkeys(name for names in fetch_lods for name in names))
    if keep is not None:
        names = [*fetch_names, *level_names, *(name for name in keep if isinstance(name, str))]
        graph = graph.pruned(names, _asked(graph, keep) if keep else _updates(graph))
    graph = all_here(graph, program) if back_end == "numpy" else graph
    graph = _with_bodies(graph, target, capabilities, back_end, seed_of(program))
    target = _informed(target, graph, (*fetch_names, *level_names), capabilities, back_end)
    verifies = target.strategy is not None and target.strategy.verify_passes
    stages: list[Stage] | None = [] if verifies else None
    graph = expand_sync_ops(graph, target)
    refuse_lazy(graph, target)
    graph, records = run_pipeline(graph, target, stages)
    math, why = _math(target, capabilities, back_end)
    for text in (*([why] if why else []), *_without_effect(target)):
        graph = graph.noted(text)
    graph, kernels = _with_kernels(graph, fetch_names, target, capabilities, back_end, math)
    choices: tuple[tuple[str, ...], ...] = ()
    if back_end == "numpy":
        only = _only(target, capabilities)
        choices = alternatives(graph, kernels, capabilities, only, math)
    alike = replicated(graph, target)
    own_states = place_states(graph, alike, target)
    lowered = lower(
        graph,
        fetch_names,
        kernels,
        seed_of(program),
        math=math,
        alike=alike,
        place_states=own_states,
        checks=target.checks,
        fetch_lods=fetch_lods,
    )
    parts = cut(lowered)  # refuses here what it would refuse at the first step
    if len(parts) > 1:
        graph = graph.noted(_describe_cuts(parts))
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
    return Compiled(lowered, report, tuple(stages or ()), choices)


def _asked(graph: Graph, keep: Sequence[str | OpKey]) -> frozenset[OpKey]:
    """Return the ops that are asked for; of one that was read as several nodes, such as a branch, these."""
    keys = {node.key for node in graph.nodes}
    several = {
        name for item in keep if not isinstance(item, str) and item not in keys for name in item[2]
    }
    parts = (n.key for n in graph.nodes if any(v.name in several for v in n.writes()))
    return frozenset(item for item in keep if not isinstance(item, str)).union(parts)


def _updates(graph: Graph) -> frozenset[OpKey]:
    """Return the optimizers' ops; none if what they need is not fed."""
    updates = frozenset(node.key for node in graph.nodes if node.role & OpRole.Optimize)
    reads = {value for node in graph.pruned((), updates).nodes for value in node.reads()}
    unfed = any(value.kind == FEED and value not in graph.feeds for value in reads)
    return frozenset() if unfed else updates


def _informed(
    target: Target,
    graph: Graph,
    fetches: tuple[str, ...],
    capabilities: Capabilities,
    back_end: str,
) -> Target:
    """Return the target with what passes ask about libraries and about this graph."""
    able = libraries(capabilities, back_end)
    adds, masks, folds = (_takes(op_type, able) for op_type in (GRAD_ADD, MASKED, ADD_NORM))
    return replace(
        target,
        fetches=fetches,
        compiles=_takes(REGION, capabilities),
        adds_gradients=adds,
        keeps_masks=masks,
        folds_residuals=folds,
        drops_weights=able["cudnn"].takes.get(FUSED) if "cudnn" in able else None,
        rows=counted_before(graph, target),
    )


def _with_bodies(
    graph: Graph, target: Target, capabilities: Capabilities, back_end: str, seed: int
) -> Graph:
    """Return the graph with the block of each loop compiled, which its node then holds as plain data.

    Raises:
        Unsupported: a collective stands in a loop.
    """

    numbers, texts = count(), list[str]()

    def compiled(node: Node) -> Node:
        body = node.attrs.get("block")
        if not isinstance(body, Body):
            return node
        inside = replace(
            target,
            fetches=tuple(body.results),
            has_loss=False,
            rows=False,
            keeps=False,
            barrier=False,  # the places wait at the end of the step
            part=f"{target.part}_loop{next(numbers)}",
        )
        inner = _with_bodies(body.graph, inside, capabilities, back_end, seed)
        inner, _ = run_pipeline(inner, inside)
        meeting = next((n for n in inner.nodes if n.op in COLLECTIVES), None)
        if meeting is not None:
            raise Unsupported(
                f"{meeting.op} cannot stand in a loop: replicas may make different numbers of rounds. Built "
                f"at {meeting.where}."
            )
        math, _ = _math(target, capabilities, back_end)
        inner, kernels = _with_kernels(inner, body.results, target, capabilities, back_end, math)
        texts.extend(
            f"{text} (in {node.attrs['function']}, built at {node.where})"
            for text in inner.notes
            if text.startswith("cpu_math: ")
        )
        program = lower(inner, body.results, kernels, seed, math, checks=target.checks)
        return replace(node, attrs={**node.attrs, "block": asdict(program)})

    nodes = [compiled(node) for node in graph.nodes]
    if nodes == list(graph.nodes):
        return graph
    return replace(graph.with_nodes(nodes), notes=(*graph.notes, *texts))


def _with_kernels(
    graph: Graph,
    results: Sequence[str],
    target: Target,
    capabilities: Capabilities,
    back_end: str,
    math: str,
) -> tuple[Graph, dict[Node, str]]:
    """Return the graph as back ends compute it, and the back end of each node.

    Ops that a GPU does not compute stand on the host, images lie in the order that kernels want, and factors
    lie rounded in memory where products round them.

    Raises:
        Unsupported: a product would be exact although its factors are to be rounded.
    """
    if back_end != "numpy":
        graph = place_on_host(graph, lambda node: has_kernel(node, capabilities, back_end))
    selected = select_kernels(graph, capabilities, back_end, _only(target, capabilities))
    refuse_exact(selected, math, capabilities, back_end)
    graph, kernels = lay_out(graph, selected, capabilities, back_end, math)
    if math != ROUNDED:
        return graph, kernels
    parts = part_numbers(lower(graph, results, kernels, 0))
    return round_factors(graph, kernels, capabilities, parts)


def _takes(op_type: str, able: Capabilities) -> Takes | None:
    """Return what tells which nodes of an op the first library with conditions takes."""
    return next((takes for b in able.values() if (takes := b.takes.get(op_type))), None)


def _math(target: Target, capabilities: Capabilities, back_end: str) -> tuple[str, str]:
    """Return the precision of single-precision products, and why it is not what the strategy asks for."""
    math, able = target.math(back_end), libraries(capabilities, back_end).values()
    reasons = [b.exact for b in able if b.exact] if math != "float32" else []
    if not reasons or any(math in b.rounds for b in able):
        return math, ""
    return "float32", f"cpu_math: products are computed in float32, for {reasons[0]}"


def _only(target: Target, capabilities: Capabilities) -> dict[str, frozenset[str]]:
    """Return the only op types that a library and its variants may compute (none: all that they can)."""
    return {"onednn": target.onednn_ops, **dict.fromkeys(variants(capabilities), target.onednn_ops)}


def _refuse_shared(program: Program, fetch_names: Sequence[str]) -> None:
    for name in fetch_names:
        if name in program.shared_variables:
            raise NotFound(
                f"{name!r} cannot be fetched: memory_optimize has other values take the variable "
                f"{program.shared_variables[name]!r}, too. Name it in skip_opt_set, or take the call out."
            )


def _levels_of(graph: Graph, fetch_names: Sequence[str]) -> list[list[str]]:
    """Return, per fetch, the names of the offsets of its sequences, outermost first."""
    by_fetch = []
    for name in fetch_names:
        names = (level_name(name, level) for level in count())
        by_fetch.append(list(takewhile(graph.latest.__contains__, names)))
    return by_fetch


def _describe_cuts(parts: Sequence[Part]) -> str:
    """Say where a step is cut, and why."""
    segments = [part for part in parts if isinstance(part, ReplicaProgram)]
    calls = [part for part in parts if isinstance(part, NodeRecord)]
    cuts = [
        f"{part.nodes[0].op}, built at {part.nodes[0].where}" for part in segments[1:] if part.nodes
    ]
    runs = [f"{call.attrs['function']}, built at {call.where}" for call in calls]
    why = "for shapes depend on elements that it computes"
    if calls:
        why = f"for what runs between them ({'; '.join(runs)}), and for shapes that depend on elements"
    return (
        f"a step is cut into {len(segments)} segments, {why}: values that pass a cut are copied to the host "
        f"({'; '.join(cuts)})"
    )


def _describe_place_states(program: ReplicaProgram) -> str:
    """Describe how many persistables the driver stores for each place, and their bytes."""
    states = program.fetches[len(program.fetches) - len(program.place_states) :]
    nbytes = sum(_nbytes(program, i) for i in states)
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
    """Yield a sentence for each op type that the strategy names and that does not exist."""
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
