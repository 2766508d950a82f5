"""Compute the gradients of a convolution's images and of its filters in nodes of their own.

They are two products that share nothing, and for few shapes the same kernel is the fastest for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir.graph import Graph, Node
from ..ops.conv import GRADIENTS
from .target import Pass, Target

_NAME = "split_conv_grads"
_SLOTS = ("Filter@GRAD", "Input@GRAD")  # what may travel to other replicas first


def split_conv_grads(graph: Graph, target: Target) -> Graph:
    """Replace the gradient of a convolution that has both results by a node for each."""
    nodes = [part for node in graph.nodes for part in _parts(node)]
    count = len(nodes) - len(graph.nodes)
    if not count:
        return graph
    text = f"{_NAME}: {count} convolutions have a node for the gradient of filters, one for images"
    return graph.with_nodes(nodes).noted(text)


def _parts(node: Node) -> Iterator[Node]:
    """Yield the node, or one for each result of the gradient of a convolution."""
    if node.op not in GRADIENTS or len(node.writes()) == 1:
        yield node
        return
    for result in _SLOTS:
        values = node.outputs[result]
        grads = tuple(pair for pair in node.grads if pair[1] in values)
        yield replace(node, outputs={result: values}, grads=grads)


PASS = Pass(
    _NAME,
    split_conv_grads,
    lambda target: True,
    "fusions know gradients as the program has them, collectives stand behind what finishes one",
)
