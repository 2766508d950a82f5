"""LSTMs on top of each other over padded batches. It has no kernel: ``graph/ir/stacked_lstm.py`` writes it out.

Legend: T steps, B sequences, D cells, L layers times directions.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import FLOATS
from .operands import Input, Operands, Output, named
from .registry import BLOCK_OPS, Grad, Inference, Op, Specs
from .rules import merge_dims, of_shape, product


class CudnnLstm(Operands):
    input: Input
    init_h: Input
    init_c: Input
    w: Input
    cache: Input | None
    max_len: int = 20
    dropout_prob: float = 0.0
    is_bidirec: bool = False
    input_size: int = 10
    hidden_size: int = 100
    num_layers: int = 1
    is_test: bool = False
    seed: int = -1
    out: Output
    last_h: Output = named("last_h")
    last_c: Output = named("last_c")


class CudnnLstmGrad(CudnnLstm, reads="* out"):
    d_out: Input | None
    d_last_h: Input | None = named("last_h@GRAD")
    d_last_c: Input | None = named("last_c@GRAD")
    d_input: Output | None
    d_init_h: Output | None
    d_init_c: Output | None
    d_w: Output | None


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


for _op in (
    Op(
        "cudnn_lstm",
        CudnnLstm,
        cudnn_lstm_shape,
        lod=lambda op: {},
        grad=Grad(
            "cudnn_lstm_grad",
            (
                *("Input", "InitH", "InitC", "W", "Cache", "Out"),
                *("Out@GRAD", "last_h@GRAD", "last_c@GRAD"),
            ),
            ("Input@GRAD", "InitH@GRAD", "InitC@GRAD", "W@GRAD"),
        ),
    ),
    Op("cudnn_lstm_grad", CudnnLstmGrad),
):
    BLOCK_OPS[_op.type] = _op
