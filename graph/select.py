"""Which kernel computes each node, from what all replicas report they can do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ..strategies.errors import Unsupported
from ..strategies.types import VarType
from .ir import Graph, Node

Takes = Callable[[Node], bool]
Capabilities = Mapping[str, Mapping[str, Takes | None]]  # back end -> op type -> which of its nodes


def select_kernels(
    graph: Graph,
    capabilities: Capabilities,
    array_module: str = "numpy",
    onednn_ops: Collection[str] = (),
) -> dict[Node, str]:
    """Return the back end for each node: the first library that takes it, else the array module.

    ``onednn_ops``: the only op types that oneDNN may compute (none: all that it can).

    Raises:
        Unsupported: an op has no kernel on ``array_module``.
    """
    able = {name: ops for name, ops in capabilities.items() if name not in _ARRAY_MODULES}
    if onednn_ops and "onednn" in able:
        able["onednn"] = {op: t for op, t in able["onednn"].items() if op in onednn_ops}
    libraries = able if array_module == "numpy" else {}
    return {
        node: _choose(node, capabilities[array_module], libraries, array_module)
        for node in graph.nodes
    }


# Ops that multiply; in the kernels of oneDNN factors can be rounded.
_PRODUCTS = (
    "mul",
    "matmul",
    "conv2d",
    "depthwise_conv2d",
    "fused_gemm_epilogue",
    "fused_feedforward",
)
_ATTENTION = ("fused_dot_product_attention",)  # its loops leave products to oneDNN


def refuse_exact(kernels: Mapping[Node, str], math: str, capabilities: Capabilities) -> None:
    """Refuse single-precision products that would be exact although their factors are to be rounded.

    Raises:
        Unsupported: oneDNN, which can round, does not compute one; the message names it.
    """
    if math == "float32":
        return
    for node, library in kernels.items():
        inside = (part["op"] for part in node.attrs.get("body", ()))
        ops = {op.removesuffix("_grad") for op in (node.op, *inside)}
        rounds = library == "onednn" or (
            library == "numba" and "onednn" in capabilities and not ops.isdisjoint(_ATTENTION)
        )
        single = any(value.spec.dtype == VarType.FP32 for value in node.reads())
        if single and not rounds and not ops.isdisjoint((*_PRODUCTS, *_ATTENTION)):
            raise Unsupported(
                f'BuildStrategy.cpu_math="{math}": {node.op} (built at {node.where}) would be computed in '
                f"float32 by {library}; oneDNN alone rounds factors. Install rowlock[cpu] on every host and "
                f'leave the op to it (onednn_enabled_op_types, build_cinn_pass), or use "float32".'
            )


_ARRAY_MODULES = ("numpy", "cupy")


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
