"""LSTMs on top of each other over padded batches. It has no kernel: ``graph/ir/stacked_lstm.py`` writes it out.

Legend: T steps, B sequences, D cells, L layers times directions.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import FLOATS
from .lod import no_sequences
from .operands import record_of
from .registry import Inference, Specs, define_block, slope
from .rules import merge_dims, of_shape, product


def elements(width: int, size: int, layers: int, directions: int) -> int:
    """Return how many elements the parameter has of ``layers`` LSTMs of ``size`` cells over [.., width]."""
    widths = [width, *[directions * size] * (layers - 1)]
    return sum(4 * size * (each + size + 2) * directions for each in widths)


def cudnn_lstm_shape(op: Inference) -> Mapping[str, Specs]:
    """Out [T, B, directions * D] of Input [T, B, in]; the last states [L, B, D] as the first."""
    x, size, layers = op.spec("Input"), op.attr("hidden_size"), op.attr("num_layers")
    op.require(
        len(x.shape) == 3 and x.dtype in FLOATS, "Input must hold floats, [steps, batch, in]"
    )
    op.require(size > 0 and layers > 0, "hidden_size and num_layers must be positive")
    directions = 2 if op.attr("is_bidirec") else 1
    steps, batch, width = x.shape
    for slot in ("InitH", "InitC"):
        shape = op.shape(slot)
        sizes = (layers * directions, batch, size)
        fits = len(shape) == 3 and all(
            merge_dims(one, other) is not None for one, other in zip(shape, sizes, strict=True)
        )
        rows = "batch" if batch < 0 else batch
        op.require(
            fits,
            f"{slot} must be [num_layers * directions, batch, hidden_size] = [{sizes[0]}, {rows}, {size}]",
        )
        batch = max(batch, shape[1])
    count = product(op.shape("W"))
    total = elements(width, size, layers, directions)
    op.require(
        width < 0 or count == total,
        f"W must have {total} elements: matrices and two biases for each layer and direction",
    )
    last = of_shape((layers * directions, batch, size), x)
    return {
        "Out": of_shape((steps, batch, directions * size), x),
        "last_h": last,
        "last_c": last,
    }


define_block(
    "cudnn_lstm",
    record_of(
        "input init_h init_c w cache?",
        "out last_h:last_h last_c:last_c",
        max_len=20,
        dropout_prob=0.0,
        is_bidirec=False,
        input_size=10,
        hidden_size=100,
        num_layers=1,
        is_test=False,
        seed=-1,
    ),
    cudnn_lstm_shape,
    lod=no_sequences,
    slope=slope(
        "input init_h init_c w cache out d_out? d_last_h? d_last_c?",
        "d_input d_init_h d_init_c d_w",
    ),
)
