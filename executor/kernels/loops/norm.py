"""Batch norm and the gradient of layer norm as compiled loops, where oneDNN is slow.

That is batch norm with given statistics, where channels make no fours, and of sequences and volumes, whose
channels never lie last (the library copies them); layer norm of few or short rows.

Images lie in either order of memory. What batch norm computes is its formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....graph.ir.capabilities import AS_THEY_COME
from ....graph.ir.graph import Node
from ....graph.ops.conv import LAST
from ....graph.ops.norm import LayerNormGrad, uses_statistics
from ...codegen.text_loops import bind_text
from ...device.device import Device
from ..registry import Step, kernel
from .elementwise import in_float32

_FOURS = 4
_IN_ORDER = 3, 5  # dimensions of what lies in the order of its shape


def _takes(node: Node) -> bool:
    (scale,), (x,) = node.inputs["Scale"], node.inputs["X"]
    assert scale is not None and x is not None
    fixed = uses_statistics({"trainable_statistics": False, **node.attrs})
    first = len(x.spec.shape) in _IN_ORDER and node.attrs["data_layout"] not in LAST
    return in_float32(node) and (fixed or first or scale.spec.shape[0] % _FOURS != 0)


# How the formulas of batch norm are taken in loops, other than those of all ops.
_BATCH = {"takes": _takes, "any_order": True, "layout": AS_THEY_COME}
HOW: Mapping[str, Mapping[str, Any]] = {"batch_norm": _BATCH, "batch_norm_grad": _BATCH}


# What a row gets needs two sums over it; it is still in cache when they are there. Each is summed in float32
# over so many elements, and these sums in float64.
_LAYER_NORM_GRAD = """
    epsilon = unbits(np.int32(epsilon_bits))
    for i in range(n):
        {clear}
    for r in range(rows):
        o, m, inverse = r * n, mean[r], np.float32(1.0) / root(variance[r] + epsilon)
        along, whole = np.float64(0.0), np.float64(0.0)
        for begin in range(0, n, 1024):
            p, q = np.float32(0.0), np.float32(0.0)
            for i in range(begin, min(begin + 1024, n)):
                g, h = load(d, o + i), (load(x, o + i) - m) * inverse
                {add}
                g = g{scaled}
                p, q = plus(p, g * h), plus(q, g)
            along, whole = along + np.float64(p), whole + np.float64(q)
        share, level = np.float32(along / n), np.float32(whole / n)
        for i in range(n):
            g, h = load(d, o + i){scaled}, (load(x, o + i) - m) * inverse
            {write}
"""


@kernel("layer_norm_grad", on=("llvm",), takes=in_float32, gapless=True)
def layer_norm_grad(dev: Device, a: LayerNormGrad) -> list[Step]:
    """dx = (g - mean(g) - normed * mean(g * normed)) / deviation, where g = dy * scale."""
    arrays = {"x": a.x, "d": a.d_y, "mean": a.mean, "variance": a.variance, "s": a.scale}
    arrays |= {"d_x": a.d_x, "d_s": a.d_scale, "d_b": a.d_bias}
    terms = ((a.d_scale, "d_s", "g * h"), (a.d_bias, "d_b", "g"))
    sums = [(name, term) for d, name, term in terms if d is not None]
    add = "store({0}, i, load({0}, i) + {1})"
    text = _LAYER_NORM_GRAD.format(
        clear="; ".join(f"{name}[i] = np.float32(0.0)" for name, *_ in sums) or "pass",
        add="; ".join(add.format(*entry) for entry in sums) or "pass",
        scaled="" if a.scale is None else " * load(s, i)",
        write="pass" if a.d_x is None else "store(d_x, o + i, (g - level - h * share) * inverse)",
    )
    rows, bits = a.mean.size, int(np.float32(a.epsilon).view(np.int32))
    return [bind_text(text, arrays, rows=rows, n=a.x.size // rows, epsilon_bits=bits)]
