"""Stores factors of products in bfloat16, where products round them to it.

A factor of several products, such as a parameter or an activation of the forward and the backward pass, is
rounded once, into a copy for all of them; if nothing else reads the value, only the copy stays in memory. Ops
that read only signs (the gradient of relu) or the shape read the copy, too. Shape rules see a float32 value, as
products compute; its layout says that it is rounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...strategies.types import VarType
from ..ir.capabilities import CHANNELS_LAST, IN_ORDER, ROUNDED, ROUNDED_LAST, Capabilities, Factors
from ..ir.graph import EVERYWHERE, STATE, TEMP, Graph, Node, Value
from .layout import TRANSFER
from .select import products_of

_ROUNDED = {IN_ORDER: ROUNDED, CHANNELS_LAST: ROUNDED_LAST}
_RECURRENCES = ("lstm", "lstmp", "attention_lstm", "gru", "gru_unit")


def round_factors(
    graph: Graph, kernels: Mapping[Node, str], capabilities: Capabilities, parts: Mapping[int, int]
) -> tuple[Graph, dict[Node, str]]:
    """Return the graph with factors of several products rounded once, and each node's back end.

    Parameters that no step changes stay as they are: libraries store copies of them in an order of their own.
    ``parts``: the number of each node -> that of its part of a step. A copy is read only in the part that makes
    its value (the first part, for values from before the step): values that pass a cut go through the host.
    """
    part_of = {v: parts[k] for k, node in enumerate(graph.nodes) for v in node.writes()}

    def factors_of(k: int, node: Node) -> list[tuple[str, Value, int]]:
        factors = _factors(node, capabilities[kernels[node]].factors)
        return [each for each in factors if part_of.get(each[1], 0) == parts[k]]

    changes = any(value.kind == STATE for node in graph.nodes for value in node.writes())
    counts: Counter[Value] = Counter()
    for k, node in enumerate(graph.nodes):
        for _, value, products in factors_of(k, node):
            counts[value] += products
    shared = {v for v, count in counts.items() if count > 1 and (changes or v.kind != STATE)}
    copies: dict[Value, Value] = {}
    placed: dict[Node, str] = {}
    for k, node in enumerate(graph.nodes):
        kernel, inputs = kernels[node], dict(node.inputs)
        for slot, value, products in factors_of(k, node):
            if value not in shared or not (products or value in copies):
                continue
            if value not in copies:
                name = f"{value.name}@{ROUNDED}"
                layout = _ROUNDED[value.layout]
                copies[value] = replace(value, name=name, kind=TEMP, layout=layout)
                copy = Node(
                    TRANSFER, {"X": (value,)}, {"Out": (copies[value],)}, {}, node.role, node.where
                )
                placed[copy] = kernel
            inputs[slot] = (copies[value],)
        placed[replace(node, inputs=inputs)] = kernel
    every = (_factors(node, capabilities[kernels[node]].factors) for node in graph.nodes)
    total = sum(products for factors in every for _, _, products in factors)
    text = _precisions(graph)
    if text:
        lying = sum(counts[value] for value in copies)
        text += f"; {len(copies)} values lie in bfloat16 in memory for {lying} of {total} factors"
        graph = graph.noted(f"{text}, the others are rounded where they are multiplied")
    return graph.with_nodes(placed), placed


def _precisions(graph: Graph) -> str:
    """Say which nodes multiply in bfloat16, and why others do not; "" if none multiplies."""
    rounded, exact = Counter[str](), Counter[str]()
    for node in graph.nodes:
        dtypes = {value.spec.dtype for value in node.reads()}
        if node.op.removesuffix("_grad") in _RECURRENCES:
            exact[f"{node.op} (steps of a recurrence)"] += 1
        elif products_of(node) and VarType.FP32 in dtypes:
            rounded[node.op] += 1
        elif products_of(node):
            exact[f"{node.op} (of {', '.join(sorted(dtype.name for dtype in dtypes))})"] += 1
    if not rounded and not exact:
        return ""
    ops, others = (", ".join(f"{n} {what}" for what, n in c.items()) for c in (rounded, exact))
    rest = f", not of {others}" if others else ""
    return f"cpu_math: factors are bfloat16, sums float32, of {ops or 'none'}{rest}"


def _factors(node: Node, factors: Mapping[str, Factors]) -> Iterator[tuple[str, Value, int]]:
    """Yield the slots that a node's kernel takes rounded, their values, and how many products these are in.

    Of none: only its signs or its shape are read.
    """
    if node.at != EVERYWHERE:
        return
    for slot, results in factors.get(node.op, {}).items():
        products = sum(value is not None for r in results for value in node.outputs.get(r, ()))
        if not results and node.attrs.get("act_type", "relu") != "relu":
            continue  # more than signs is read of it
        for value in node.inputs.get(slot, ()):
            single = value is not None and value.spec.dtype == VarType.FP32
            if value is not None and single and value.layout in _ROUNDED:
                yield slot, value, products
