"""The work of a compiled program's instructions: multiply-adds of products and convolutions, and bytes.

Multiply-adds are those that the results need: each gradient that is written counts as its own product, a
convolution's taps count where they lie on the image (all of them with ``padded``). Norms, activations, sums and
updates count by their bytes: of each array that is read or written, once.
"""

import math

import numpy as np

from rowlock.graph.ops.conv import channels_first, windows
from rowlock.strategies.types import to_numpy


class Work:
    """Counts the work of nodes; ``specs`` are the exact specs of the program's values."""

    def __init__(self, specs, padded=False):
        self._specs, self._padded = specs, padded

    def nbytes(self, node):
        """Return the bytes of what a node reads and writes."""
        specs = [self._specs[i] for i in {*node.touches()}]
        return sum(math.prod(s.shape) * np.dtype(to_numpy(s.dtype)).itemsize for s in specs)

    def described(self, node):
        """Return the shapes of the first three values that a node reads, and that it writes."""
        sides = (node.inputs, node.outputs)
        shapes = [
            [self._specs[i].shape for ids in s.values() for i in ids if i >= 0] for s in sides
        ]
        return " -> ".join(" ".join("x".join(map(str, one)) for one in side[:3]) for side in shapes)

    def multiply_adds(self, node):
        """Return the multiply-adds of a node's products; 0 if it has none."""
        name = node.op.removesuffix("_add").removesuffix("_grad")
        count = {
            "conv2d": self._conv,
            "depthwise_conv2d": self._conv,
            "fused_dot_product_attention": self._attention,
            "fused_feedforward": self._feedforward,
            "fused_gemm_epilogue": self._product,
            "matmul": self._product,
            "matmul_v2": self._product,
            "mul": self._product,
        }.get(name)
        return 0 if count is None else count(node, "_grad" in node.op)

    def _shape(self, node, slot):
        position = next(iter({**node.inputs, **node.outputs}.get(slot, ())), -1)
        return self._specs[position].shape if position >= 0 else ()

    def _conv(self, node, backward):
        """Each tap of a window that lies on the image, of each result, filter and channel."""
        order = node.attrs["data_format"]
        images = channels_first(self._shape(node, "Input"), order)
        results = channels_first(self._shape(node, "Output@GRAD" if backward else "Output"), order)
        filters = self._shape(node, "Filter")
        taps = math.prod(results[2:]) * math.prod(filters[2:])
        if not self._padded:
            pads, dilations = windows(node.attrs, images[2:], filters[2:])
            geometry = (
                images[2:],
                results[2:],
                filters[2:],
                pads,
                node.attrs["strides"],
                dilations,
            )
            taps = math.prod(_on_image(*one) for one in zip(*geometry, strict=True))
        return self._times(node, backward) * images[0] * filters[0] * filters[1] * taps

    def _attention(self, node, backward):
        """Scores and what they weigh; backward the scores again, nothing left out for a causal mask."""
        bhtd = node.attrs["layout"] == "bhtd"
        keys, width = self._shape(node, "K" if node.inputs.get("K") else "Out")[
            1 + bhtd :: 2 - bhtd
        ]
        return math.prod(self._shape(node, "SoftmaxMax")) * keys * width * (5 if backward else 2)

    def _feedforward(self, node, backward):
        """Two products; backward two for each, and the first again."""
        rows = math.prod(self._shape(node, "X")[: node.attrs["x_num_col_dims"]])
        first, second = (math.prod(self._shape(node, f"Linear{k}Weight")) for k in (1, 2))
        return rows * (3 * first + 2 * second if backward else first + second)

    def _product(self, node, backward):
        """A product's operands and result hold three pairs of its three sizes, and each its batch."""
        result = ("DOut" if "DOut" in node.inputs else "Out@GRAD") if backward else "Out"
        x, y, out = (self._shape(node, slot) for slot in ("X", "Y", result))
        batch = 1
        if node.op.startswith("matmul"):  # of stacks; one matrix may meet each of a stack
            batch = min(math.prod(x[:-2]), math.prod(y[:-2]))
        sizes = math.prod(x) * math.prod(y) * math.prod(out)
        return self._times(node, backward) * math.isqrt(sizes // batch)

    def _times(self, node, backward):
        """Return how many products a node computes: one, or one for each gradient."""
        slots = ("X@GRAD", "Y@GRAD", "DX", "DY", "Input@GRAD", "Filter@GRAD")
        wanted = (any(i >= 0 for i in node.outputs.get(slot, ())) for slot in slots)
        return sum(wanted) if backward else 1


def _on_image(size, result, kernel, pads, stride, dilation):
    """Return how many taps of all windows along one dimension lie on the image."""
    starts = np.arange(result) * stride - pads[0]
    at = starts[:, None] + np.arange(kernel) * dilation
    return int(np.count_nonzero((at >= 0) & (at < size)))
