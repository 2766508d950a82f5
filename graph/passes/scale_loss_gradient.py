"""Set the seed of the backward pass, so that summed gradients are scaled as the strategy says."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node
from ..ops.creation import SAMPLE_SHARE
from ..program.role import OpRole
from .target import Pass, Target

_SEED = OpRole.Backward | OpRole.Loss


def is_seed(node: Node) -> bool:
    """Tell whether a node writes the loss's own gradient."""
    return node.role == _SEED and node.op == "fill_constant"


def scale_loss_gradient(graph: Graph, target: Target) -> Graph:
    """Seed with 1/N (CoeffNumDevice), 1 (One), the feed ``loss@GRAD`` (Customized), or this place's share of
    the samples (SampleWeighted)."""
    assert target.strategy is not None
    scaling = target.strategy.gradient_scale_strategy.name
    seeds = [node for node in graph.nodes if is_seed(node)]
    if not seeds or scaling == "One":
        return graph
    if scaling == "Customized":
        return _read_from_feed(graph, seeds)
    if scaling == "SampleWeighted":
        nodes = (_with_share(node) if node in seeds else node for node in graph.nodes)
        return graph.with_nodes(nodes)
    share = 1.0 / target.replicas
    nodes = (
        replace(node, attrs={**node.attrs, "value": share}) if node in seeds else node
        for node in graph.nodes
    )
    return graph.with_nodes(nodes)


def _with_share(seed: Node) -> Node:
    attrs = {name: seed.attrs[name] for name in ("shape", "dtype")}
    return replace(seed, op=SAMPLE_SHARE, inputs={}, attrs=attrs)


def _read_from_feed(graph: Graph, seeds: list[Node]) -> Graph:
    feeds = {value.name: value for value in graph.feeds}
    swap = {}
    for node in seeds:
        (seed,) = node.writes()
        swap[seed] = feeds.get(seed.name) or replace(seed, kind="feed", version=0)
    nodes = (node.reading(swap) for node in graph.nodes if node not in seeds)
    return graph.with_nodes(nodes, swap)


PASS = Pass(
    "scale_loss_gradient",
    scale_loss_gradient,
    lambda target: target.has_loss,
    "the seed must be right before its readers are fused",
    keeps_values=False,
)
