"""LSTMs on top of each other over padded batches. It has no kernel: ``graph/ir/stacked_lstm.py`` writes it out.

Legend: T steps, B sequences, D cells, L layers times directions.
"""

from __future__ import annotations

from .lod import no_sequences
from .operands import record_of
from .registry import Inference, define_block, slope
from .rules import merge_dims, product
from .shapes import Sized


def elements(width: int, size: int, layers: int, directions: int) -> int:
    """Return how many elements the parameter has of ``layers`` LSTMs of ``size`` cells over [.., width]."""
    widths = [width, *[directions * size] * (layers - 1)]
    return sum(4 * size * (each + size + 2) * directions for each in widths)


def _check_layers(op: Inference) -> dict[str, int]:
    """Refuse states and a parameter of other sizes; return L, and the width of Out."""
    size, layers, width = op.attr("hidden_size"), op.attr("num_layers"), op.shape("Input")[2]
    op.require(size > 0 and layers > 0, "hidden_size and num_layers must be positive")
    directions = 2 if op.attr("is_bidirec") else 1
    states = layers * directions
    fits = merge_dims(op.shape("InitH")[0], states) is not None
    op.require(fits, f"InitH and InitC must have num_layers * directions = {states} states")
    total = elements(width, size, layers, directions)
    op.require(
        width < 0 or product(op.shape("W")) == total,
        f"W must have {total} elements: matrices and two biases for each layer and direction",
    )
    return {"L": states, "out": directions * size}


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
    Sized(
        "Input floats [T B in], InitH [L B hidden_size], InitC [L B hidden_size], W "
        "-> Out [T B out], last_h [L B hidden_size], last_c [L B hidden_size]",
        _check_layers,
    ),
    lod=no_sequences,
    slope=slope(
        "input init_h init_c w cache out d_out? d_last_h? d_last_c?",
        "d_input d_init_h d_init_c d_w",
    ),
)
