"""Which kernel computes each node, from what all replicas report they can do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ...strategies.errors import Unsupported
from ...strategies.types import LOW, VarType
from ..ir.capabilities import BackEnd, Capabilities, libraries
from ..ir.graph import Graph, Node, Value
from ..ops.conv import FORWARD


def in_single(node: Node) -> Node:
    """Return the node as if its low-precision values were float32."""
    wide = {
        v: replace(v, spec=v.spec._replace(dtype=VarType.FP32))
        for v in (*node.reads(), *node.writes())
        if v.spec.dtype in LOW
    }
    return node.reading(wide).writing(wide)


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
    *("mul", "matmul", *FORWARD),
    "fused_gemm_epilogue",
    "fused_feedforward",
    "fused_dot_product_attention",
)


def products_of(node: Node) -> set[str]:
    """Return which ops the node computes that multiply matrices and whose factors libraries can round."""
    inside = (part["op"] for part in node.attrs.get("body", ()))
    return {op.removesuffix("_grad") for op in (node.op, *inside)}.intersection(_PRODUCTS)


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
        ops = products_of(node)
        rounded = capabilities[library].rounds.get(math, frozenset())
        rounds = rounded is None or not ops.isdisjoint(rounded)
        single = any(value.spec.dtype == VarType.FP32 for value in node.reads())
        if ops and single and not node.host and not rounds:
            raise Unsupported(
                f'BuildStrategy.{field}="{math}": {node.op} (built at {node.where}) would be computed in '
                f'float32 by {library}; {capabilities[array_module].remedy}, or use "float32".'
            )


# Ops of which no kernel is the fastest for all shapes; so are their gradients.
_MEASURED = frozenset({*("mul", "matmul", *FORWARD), "pool2d", "pool3d"})


def alternatives(
    graph: Graph,
    kernels: Mapping[Node, str],
    capabilities: Capabilities,
    only: Mapping[str, Collection[str]],
    math: str,
) -> tuple[tuple[str, ...], ...]:
    """Return, node by node, the kernels that are worth measuring on a CPU, the one chosen by rule first.

    There are none (an empty tuple) where there is no choice. A node's values lie as they do for the kernel
    chosen by rule, so a choice makes a difference to no other node. Where factors are rounded, a kernel that
    rounds none is among them if it computes exactly on purpose.
    ``only``: library -> the only op types that it and its variants may compute (none: all that it can).
    """

    def can(node: Node, name: str) -> bool:
        back_end, by_rule = capabilities[name], capabilities[kernels[node]]
        takes = back_end.takes.get(node.op)
        if back_end.arrays != by_rule.arrays or node.op not in back_end.takes:
            return False
        if back_end.always_exact:
            if math == "float32" and all(v.spec.dtype != VarType.BF16 for v in _touched(node)):
                return False  # so are all
        elif math in by_rule.rounds and math not in back_end.rounds:
            return False
        if node.op not in back_end.any_order and any(v.layout for v in _touched(node)):
            return False
        return takes is None or takes(node)

    able = {
        name: {op for op in back_end.takes if not only.get(name) or op in only[name]}
        for name, back_end in capabilities.items()
    }
    choices = []
    for node in graph.nodes:
        names: list[str] = []
        if node.op.removesuffix("_grad") in _MEASURED and not node.host:
            names = [n for n in able if node.op in able[n] and n != kernels[node] and can(node, n)]
            if any(capabilities[n].variant for n in names):
                # one computes as the module, but faster
                names = [n for n in names if n != capabilities[n].arrays]
        choices.append((kernels[node], *names) if names else ())
    return tuple(choices)


def _touched(node: Node) -> list[Value]:
    return [*node.reads(), *node.writes()]


def has_kernel(node: Node, capabilities: Capabilities, array_module: str) -> bool:
    """Tell whether an array module, or a library on its arrays, computes a node."""
    able = libraries(capabilities, array_module)
    return _first(node, capabilities[array_module], able, array_module) is not None


def _choose(node: Node, always: BackEnd, able: Mapping[str, BackEnd], array_module: str) -> str:
    name = _first(node, always, able, array_module)
    if name is None:
        raise Unsupported(f"{node.op} has no kernel on {array_module}. Built at {node.where}.")
    return name


def _first(
    node: Node, always: BackEnd, able: Mapping[str, BackEnd], array_module: str
) -> str | None:
    """Return the first library that takes a node, else the array module; None if neither has a kernel."""
    for library, back_end in able.items():
        takes = back_end.takes.get(node.op)
        if node.op in back_end.takes and (takes is None or takes(node)):
            return library
    return array_module if node.op in always.takes else None
