"""The compiler: one tuple of passes, run in order, each checked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ..strategies.errors import ShapeError
from .ir import Graph, infer_node
from .passes import collectives, commit, order, place_updates, scale_loss_gradient, sync_batch_norm
from .passes.target import Pass, Target
from .report import write_dot

PIPELINE: tuple[Pass, ...] = (
    sync_batch_norm.PASS,
    scale_loss_gradient.PASS,
    collectives.INSERT,
    collectives.COALESCE,
    place_updates.PASS,
    order.DELAY,
    order.BARRIER_AT_END,
    commit.PASS,
    order.ORDER,
)


@dataclass(frozen=True)
class PassRecord:
    """What one pass did: nodes before and after, whether it changed the graph, seconds taken."""

    name: str
    before: int
    after: int
    changed: bool
    seconds: float


def run_pipeline(graph: Graph, target: Target) -> tuple[Graph, list[PassRecord]]:
    """Run every wanted pass; after each, re-derive the specs of what it made.

    With ``debug_graphviz_path`` a numbered ``.dot`` is written before the first and after each pass.

    Raises:
        AssertionError: a pass broke the graph; the message names the pass and the node.
    """
    records: list[PassRecord] = []
    picture = target.strategy.debug_graphviz_path if target.strategy is not None else ""
    if picture:
        write_dot(graph, Path(f"{picture}_original_graph"))
    for entry in PIPELINE:
        if not entry.wanted(target):
            continue
        started = time.perf_counter()
        changed = entry.run(graph, target)
        if changed is not graph:
            check(changed, entry.name)
        seconds = time.perf_counter() - started
        same = changed.nodes == graph.nodes
        records.append(
            PassRecord(entry.name, len(graph.nodes), len(changed.nodes), not same, seconds)
        )
        graph = changed
        if picture:
            write_dot(graph, Path(f"{picture}_{len(records):02d}_{entry.name}.dot"))
    return graph, records


def check(graph: Graph, pass_name: str) -> None:
    """Assert that every value is made before it is read and has the spec its node derives."""
    made = set(graph.feeds)
    for node in graph.nodes:
        for value in node.reads():
            known = value in made or value.version == 0
            assert known, f"{pass_name}: {node} reads {value} before it is made\n{graph}"
        made.update(node.writes())
        try:
            specs = infer_node(node, lambda value: value.spec)
        except ShapeError as error:
            raise AssertionError(f"{pass_name} broke {node}: {error}\n{graph}") from error
        for slot, values in node.outputs.items():
            for made_value, spec in zip(values, specs.get(slot, ()), strict=False):
                assert made_value is None or made_value.spec == spec, (
                    f"{pass_name}: {node}: {made_value} is {made_value.spec}, derived {spec}"
                )
