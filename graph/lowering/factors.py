"""Which values lie in bfloat16 in memory, where products round their factors to it.

What several products read, as those of the forward and the backward pass read a parameter or an activation, is
rounded once, into a copy for all of them; of a value that nothing else reads, that copy alone lasts. To shape
rules the copy is float32, as the products compute: that it is rounded is its layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...strategies.types import VarType
from ..ir.capabilities import IN_ORDER, ROUNDED, Capabilities, Factors
from ..ir.graph import EVERYWHERE, STATE, TEMP, Graph, Node, Value
from .layout import TRANSFER


def round_factors(
    graph: Graph, kernels: Mapping[Node, str], capabilities: Capabilities
) -> tuple[Graph, dict[Node, str]]:
    """Return the graph in which what several products read is rounded once, and each node's back end.

    A parameter that no step changes stays as it is: libraries keep a copy of it in the order that they like.
    """
    changes = any(value.kind == STATE for node in graph.nodes for value in node.writes())
    counts: Counter[Value] = Counter()
    for node in graph.nodes:
        for _, value, products in _factors(node, capabilities[kernels[node]].factors):
            counts[value] += products
    shared = {v for v, count in counts.items() if count > 1 and (changes or v.kind != STATE)}
    copies: dict[Value, Value] = {}
    placed: dict[Node, str] = {}
    for node in graph.nodes:
        kernel, inputs = kernels[node], dict(node.inputs)
        for slot, value, _ in _factors(node, capabilities[kernel].factors):
            if value not in shared:
                continue
            if value not in copies:
                name = f"{value.name}@{ROUNDED}"
                copies[value] = replace(value, name=name, kind=TEMP, layout=ROUNDED)
                copy = Node(
                    TRANSFER, {"X": (value,)}, {"Out": (copies[value],)}, {}, node.role, node.where
                )
                placed[copy] = kernel
            inputs[slot] = (copies[value],)
        placed[replace(node, inputs=inputs)] = kernel
    total = sum(counts.values())
    text = (
        f"cpu_math: {len(copies)} values lie in bfloat16 in memory for {sum(counts[v] for v in copies)} of "
        f"{total} factors of matrix products; the others are rounded where they are multiplied"
    )
    return graph.with_nodes(placed).noted(text), placed


def _factors(node: Node, factors: Mapping[str, Factors]) -> Iterator[tuple[str, Value, int]]:
    """Yield the slots that a node's kernel takes rounded, their values, and how many products these are in."""
    if node.at != EVERYWHERE:
        return
    for slot, results in factors.get(node.op, {}).items():
        products = sum(value is not None for r in results for value in node.outputs.get(r, ()))
        for value in node.inputs.get(slot, ()):
            single = value is not None and value.spec.dtype == VarType.FP32
            if value is not None and single and value.layout == IN_ORDER and products:
                yield slot, value, products
