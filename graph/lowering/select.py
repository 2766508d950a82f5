"""Which kernel computes each node, from what all replicas report they can do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ...strategies.errors import Unsupported
from ...strategies.types import LOW, VarType
from ..ir.capabilities import BackEnd, Capabilities, libraries
from ..ir.graph import Graph, Node


def in_single(node: Node) -> Node:
    """Return the node as if its low-precision values were float32."""
    values = {v: v for v in (*node.reads(), *node.writes())}
    if not any(v.spec.dtype in LOW for v in values):
        return node
    for v in values:
        if v.spec.dtype in LOW:
            values[v] = replace(v, spec=v.spec._replace(dtype=VarType.FP32))
    inputs, outputs = (
        {s: tuple(v if v is None else values[v] for v in held) for s, held in slots.items()}
        for slots in (node.inputs, node.outputs)
    )
    return replace(node, inputs=inputs, outputs=outputs)


def select_kernels(
    graph: Graph,
    capabilities: Capabilities,
    array_module: str = "numpy",
    only: Mapping[str, Collection[str]] | None = None,
) -> dict[Node, str]:
    """Return the back end for each node: the first library that takes it, else the array module.

    What is placed on the host beside a GPU is computed as on a CPU.

    ``only``: library -> the only op types that it may compute (none: all that it can).

    Raises:
        Unsupported: an op has no kernel on ``array_module``.
    """
    able = libraries(capabilities, array_module)
    for name, ops in (only or {}).items():
        if ops and name in able:
            takes = {op: t for op, t in able[name].takes.items() if op in ops}
            able[name] = replace(able[name], takes=takes)
    host = libraries(capabilities, "numpy")
    return {
        node: _choose(node, capabilities["numpy"], host, "numpy")
        if node.host
        else _choose(node, capabilities[array_module], able, array_module)
        for node in graph.nodes
    }


# Ops that multiply; libraries can round their factors.
_PRODUCTS = (
    "mul",
    "matmul",
    "conv2d",
    "depthwise_conv2d",
    "conv3d",
    "conv2d_transpose",
    "depthwise_conv2d_transpose",
    "conv3d_transpose",
    "fused_gemm_epilogue",
    "fused_feedforward",
    "fused_dot_product_attention",
)


def refuse_exact(
    kernels: Mapping[Node, str], math: str, capabilities: Capabilities, array_module: str
) -> None:
    """Refuse single-precision products that would be exact although their factors are to be rounded.

    Raises:
        Unsupported: no library that can round computes one; the message names it.
    """
    if math == "float32":
        return
    field = "cpu_math" if array_module == "numpy" else "gpu_math"
    for node, library in kernels.items():
        inside = (part["op"] for part in node.attrs.get("body", ()))
        ops = {op.removesuffix("_grad") for op in (node.op, *inside)}
        rounded = capabilities[library].rounds.get(math, frozenset())
        rounds = rounded is None or not ops.isdisjoint(rounded)
        single = any(value.spec.dtype == VarType.FP32 for value in node.reads())
        if single and not node.host and not rounds and not ops.isdisjoint(_PRODUCTS):
            raise Unsupported(
                f'BuildStrategy.{field}="{math}": {node.op} (built at {node.where}) would be computed in '
                f'float32 by {library}; {capabilities[array_module].remedy}, or use "float32".'
            )


def _choose(node: Node, always: BackEnd, able: Mapping[str, BackEnd], array_module: str) -> str:
    if node.op not in always.takes:
        raise Unsupported(f"{node.op} has no kernel on {array_module}. Built at {node.where}.")
    for library, back_end in able.items():
        takes = back_end.takes.get(node.op)
        if node.op in back_end.takes and (takes is None or takes(node)):
            return library
    return array_module
