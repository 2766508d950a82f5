"""Give every dpsgd its noise, from a node that draws it: the same number at every place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...strategies.types import VarType
from ..ir.graph import Graph, Node, Value
from ..ops.registry import OPS, Spec
from .target import Pass, Target

_DRAW = "gaussian_random"


def draw_noise(graph: Graph, target: Target) -> Graph:
    """Put a standard normal number before each dpsgd; with a seed it is the same in every step."""
    if all(node.op != "dpsgd" for node in graph.nodes):
        return graph
    return graph.with_nodes([part for node in graph.nodes for part in _with_noise(node)])


def _with_noise(node: Node) -> Iterator[Node]:
    if node.op == "dpsgd" and node.attrs["sigma"] and not node.inputs.get("Noise"):
        (param,) = node.outputs["ParamOut"]
        assert param is not None
        noise = Value(f"{param.name}@NOISE", Spec((1,), VarType.FP32), version=param.version)
        attrs = {**OPS[_DRAW].attrs, "shape": [1], "seed": node.attrs["seed"]}
        yield replace(node, op=_DRAW, inputs={}, outputs={"Out": (noise,)}, attrs=attrs, grads=())
        node = replace(node, inputs={**node.inputs, "Noise": (noise,)})
    yield node


PASS = Pass(
    "draw_noise",
    draw_noise,
    lambda target: True,
    "what is drawn must be known before nodes are moved to owners or fused",
)
