"""From a user's Program to the ReplicaProgram that every replica runs. The Program is only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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

    ``keep`` lists variables or ops to compute beside the fetches; ops that none of these need are dropped. An
    empty list keeps the optimizers, unless they read a variable that is not fed. None keeps every op.

    Raises:
        FeedError: an op needs a variable that is not fed.
        NotFound: a fed or fetched name is no variable of the program.
        Unsupported: an op has no kernel on ``back_end``, or none with the precision of the strategy.
    """
    _refuse_shared(program, fetch_names)
    selector = _KernelSelector.of(target, capabilities, back_end)
    seed = seed_of(program)
    graph = from_program(program, feed_names)
    fetch_lods = _levels_of(graph, fetch_names)
    names = [*fetch_names, *dict.fromkeys(name for levels in fetch_lods for name in levels)]
    graph = with_levels_told(graph, names[len(fetch_names) :])
    if keep is not None:
        kept_names = [*names, *(name for name in keep if isinstance(name, str))]
        graph = graph.pruned(kept_names, _ops_to_keep(graph, keep) if keep else _updates(graph))
    graph = all_here(graph, program) if back_end == "numpy" else graph
    graph = _with_compiled_blocks(graph, target, selector, seed)

    target = _with_library_conditions(target, graph, tuple(names), selector)
    verifies = target.strategy is not None and target.strategy.verify_passes
    stages: list[Stage] | None = [] if verifies else None
    graph = expand_sync_ops(graph, target)
    refuse_lazy(graph, target)
    graph, records = run_pipeline(graph, target, stages)
    for text in (*selector.notes, *_unknown_onednn_ops(target)):
        graph = graph.noted(text)

    graph, kernels = selector.select(graph, fetch_names)
    alike = replicated(graph, target)
    own_states = place_states(graph, alike, target)
    lowered = lower(
        graph,
        fetch_names,
        kernels,
        seed,
        math=selector.math,
        alike=alike,
        place_states=own_states,
        checks=target.checks,
        fetch_lods=fetch_lods,
    )
    parts = cut(lowered)  # raises here rather than in the first step
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
    return Compiled(lowered, report, tuple(stages or ()), selector.alternatives(graph, kernels))


@dataclass(frozen=True)
class _KernelSelector:
    """Chooses the back end of each node, by the capabilities of replicas and the strategy.

    ``math`` is the precision of single-precision products, ``notes`` say why it is not that of the strategy.
    ``only``: library or variant -> the only op types that it may compute (none: all that it can).
    """

    capabilities: Capabilities
    back_end: str
    math: str
    notes: tuple[str, ...]
    only: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, target: Target, capabilities: Capabilities, back_end: str) -> _KernelSelector:
        """Return the selector for a target."""
        math, notes = target.math(back_end), tuple[str, ...]()
        able = libraries(capabilities, back_end).values()
        reasons = [library.exact for library in able if library.exact]
        if math != "float32" and reasons and not any(math in library.rounds for library in able):
            math, notes = (
                "float32",
                (f"cpu_math: products are computed in float32, for {reasons[0]}",),
            )
        only = dict.fromkeys(("onednn", *variants(capabilities)), target.onednn_ops)
        return cls(capabilities, back_end, math, notes, only)

    def select(self, graph: Graph, results: Sequence[str]) -> tuple[Graph, dict[Node, str]]:
        """Return the graph as back ends compute it, and the back end of each node.

        Ops without a kernel on the GPU stand on the host, images lie in the order that kernels want, and
        factors lie rounded in memory where products round them.

        Raises:
            Unsupported: a product would be exact although its factors are to be rounded.
        """
        capabilities = self.capabilities
        if self.back_end != "numpy":
            graph = place_on_host(graph, lambda node: has_kernel(node, capabilities, self.back_end))
        by_rule = select_kernels(graph, capabilities, self.back_end, self.only)
        refuse_exact(by_rule, self.math, capabilities, self.back_end)
        graph, kernels = lay_out(graph, by_rule, capabilities, self.back_end, self.math)
        if self.math != ROUNDED:
            return graph, kernels
        parts = part_numbers(lower(graph, results, kernels, 0))
        return round_factors(graph, kernels, capabilities, parts)

    def alternatives(
        self, graph: Graph, kernels: Mapping[Node, str]
    ) -> tuple[tuple[str, ...], ...]:
        """Return for each node the kernels that are worth measuring; none are on a GPU."""
        if self.back_end != "numpy":
            return ()
        return alternatives(graph, kernels, self.capabilities, self.only, self.math)


def _ops_to_keep(graph: Graph, keep: Sequence[str | OpKey]) -> frozenset[OpKey]:
    """Return the ops in ``keep``; an op that became several nodes, such as a branch, stands for all of them."""
    ops = frozenset(item for item in keep if not isinstance(item, str))
    whole = {node.key for node in graph.nodes}
    results = {name for op in ops - whole for name in op[2]}
    return ops.union(n.key for n in graph.nodes if any(v.name in results for v in n.writes()))


def _updates(graph: Graph) -> frozenset[OpKey]:
    """Return the optimizers' ops; none if one of them needs a variable that is not fed."""
    updates = frozenset(node.key for node in graph.nodes if node.role & OpRole.Optimize)
    reads = {value for node in graph.pruned((), updates).nodes for value in node.reads()}
    unfed = any(value.kind == FEED and value not in graph.feeds for value in reads)
    return frozenset() if unfed else updates


def _with_library_conditions(
    target: Target, graph: Graph, fetches: tuple[str, ...], selector: _KernelSelector
) -> Target:
    """Return the target with its fetches, and the conditions of libraries that passes ask for."""
    able = libraries(selector.capabilities, selector.back_end)
    adds, masks, folds = (_takes(op_type, able) for op_type in (GRAD_ADD, MASKED, ADD_NORM))
    return replace(
        target,
        fetches=fetches,
        compiles=_takes(REGION, selector.capabilities),
        adds_gradients=adds,
        keeps_masks=masks,
        folds_residuals=folds,
        drops_weights=able["cudnn"].takes.get(FUSED) if "cudnn" in able else None,
        rows=counted_before(graph, target),
    )


def _takes(op_type: str, able: Capabilities) -> Takes | None:
    """Return the first library's condition on nodes of an op type (None: no library has a condition)."""
    return next((takes for b in able.values() if (takes := b.takes.get(op_type))), None)


def _with_compiled_blocks(
    graph: Graph, target: Target, selector: _KernelSelector, seed: int
) -> Graph:
    """Compile the block of each loop; the loop's node then holds it as plain data.

    Raises:
        Unsupported: a collective stands in a loop.
    """
    numbers, notes = count(), list[str]()

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
        inner = _with_compiled_blocks(body.graph, inside, selector, seed)
        inner, _ = run_pipeline(inner, inside)
        collective = next((n for n in inner.nodes if n.op in COLLECTIVES), None)
        if collective is not None:
            raise Unsupported(
                f"{collective.op} cannot stand in a loop: replicas may make different numbers of rounds. Built "
                f"at {collective.where}."
            )
        inner, kernels = selector.select(inner, body.results)
        notes.extend(
            f"{text} (in {node.attrs['function']}, built at {node.where})"
            for text in inner.notes
            if text.startswith("cpu_math: ")
        )
        program = lower(inner, body.results, kernels, seed, selector.math, checks=target.checks)
        return replace(node, attrs={**node.attrs, "block": asdict(program)})

    nodes = [compiled(node) for node in graph.nodes]
    if nodes == list(graph.nodes):
        return graph
    return replace(graph.with_nodes(nodes), notes=(*graph.notes, *notes))


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
    """Return the strategy fields that the user changed and that have no effect here."""
    if target.strategy is None:
        return ()
    from ..strategies.base import unbuilt  # brings pydantic, as the strategy did

    return tuple(unbuilt(target.strategy)[0])


def _unknown_onednn_ops(target: Target) -> Iterator[str]:
    """Yield a note for each op type in the strategy's oneDNN lists that does not exist."""
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
