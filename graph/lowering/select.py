"""Which kernel computes each node, from what all replicas report they can do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from ...strategies.errors import Unsupported
from ...strategies.types import LOW, VarType
from ..ir.graph import Graph, Node

Takes = Callable[[Node], bool]
Capabilities = Mapping[str, Mapping[str, Takes | None]]  # back end -> op type -> which of its nodes
# Array module -> libraries that compute on its arrays, in the order in which they are preferred.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "numpy": ("onednn", "numba", "xla"),
    "cupy": ("cudnn", "cublaslt", "cuda"),
}

ON_HOST = frozenset({"numpy", *LIBRARIES["numpy"]})  # back ends that compute on a host


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
    onednn_ops: Collection[str] = (),
) -> dict[Node, str]:
    """Return the back end for each node: the first library that takes it, else the array module.

    What is placed on the host beside a GPU is computed as on a CPU.

    ``onednn_ops``: the only op types that oneDNN may compute (none: all that it can).

    Raises:
        Unsupported: an op has no kernel on ``array_module``.
    """
    able = {name: capabilities[name] for name in LIBRARIES[array_module] if name in capabilities}
    if onednn_ops and "onednn" in able:
        able["onednn"] = {op: t for op, t in able["onednn"].items() if op in onednn_ops}
    host = {name: capabilities[name] for name in LIBRARIES["numpy"] if name in capabilities}
    return {
        node: _choose(node, capabilities["numpy"], host, "numpy")
        if node.host
        else _choose(node, capabilities[array_module], able, array_module)
        for node in graph.nodes
    }


# Ops that multiply; the libraries below can round their factors.
_PRODUCTS = (
    "mul",
    "matmul",
    "conv2d",
    "depthwise_conv2d",
    "fused_gemm_epilogue",
    "fused_feedforward",
)
_ATTENTION = ("fused_dot_product_attention",)  # its loops leave products to oneDNN


class _Rounding(NamedTuple):
    """Which libraries round factors to a type, and what to say where another would compute."""

    field: str
    libraries: tuple[str, ...]
    remedy: str


_ROUNDING = {
    "bfloat16": _Rounding(
        "cpu_math",
        ("onednn",),
        "oneDNN alone rounds factors. Install '.[cpu]' (Rowlock's folder) on every host and leave the op to it "
        "(onednn_enabled_op_types, build_cinn_pass)",
    ),
    "tf32": _Rounding(
        "gpu_math",
        ("cudnn", "cublaslt"),
        "cuBLASLt and cuDNN alone round factors. Install '.[gpu]' (in Rowlock's folder) on every host",
    ),
}


def refuse_exact(kernels: Mapping[Node, str], math: str, capabilities: Capabilities) -> None:
    """Refuse single-precision products that would be exact although their factors are to be rounded.

    Raises:
        Unsupported: no library that can round computes one; the message names it.
    """
    if math == "float32":
        return
    field, libraries, remedy = _ROUNDING[math]
    for node, library in kernels.items():
        inside = (part["op"] for part in node.attrs.get("body", ()))
        ops = {op.removesuffix("_grad") for op in (node.op, *inside)}
        rounds = library in libraries or (
            library == "numba" and "onednn" in capabilities and not ops.isdisjoint(_ATTENTION)
        )
        single = any(value.spec.dtype == VarType.FP32 for value in node.reads())
        if (
            single
            and not node.host
            and not rounds
            and not ops.isdisjoint((*_PRODUCTS, *_ATTENTION))
        ):
            raise Unsupported(
                f'BuildStrategy.{field}="{math}": {node.op} (built at {node.where}) would be computed in '
                f'float32 by {library}; {remedy}, or use "float32".'
            )


def _choose(
    node: Node,
    always: Mapping[str, Takes | None],
    libraries: Mapping[str, Mapping[str, Takes | None]],
    array_module: str,
) -> str:
    if node.op not in always:
        raise Unsupported(f"{node.op} has no kernel on {array_module}. Built at {node.where}.")
    for library, ops in libraries.items():
        takes = ops.get(node.op)
        if node.op in ops and (takes is None or takes(node)):
            return library
    return array_module
