"""LSTMs on top of each other over padded batches. It has no kernel: ``graph/ir/stacked_lstm.py`` writes it out.

Legend: T steps, B sequences, D cells, L layers times directions.
"""

from __future__ import annotations

from .lod import no_sequences
from .operands import record_of
from .registry import Inference, define_block, slope
from .rules import product
from .shapes import Sized


def elements(width: int, size: int, layers: int, directions: int) -> int:
    """Return how many elements the parameter has of ``layers`` LSTMs of ``size`` cells over [.., width]."""
    widths = [width, *[directions * size] * (layers - 1)]
    return sum(4 * size * (each + size + 2) * directions for each in widths)


def _check_weights(op: Inference) -> None:
    """Refuse a parameter that has not one element for each weight."""
    width, directions = op.shape("Input")[2], 2 if op.attr("is_bidirec") else 1
    total = elements(width, op.attr("hidden_size"), op.attr("num_layers"), directions)
    op.require(
        width < 0 or product(op.shape("W")) == total,
        f"W must have {total} elements: matrices and two biases for each layer and direction",
    )


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
        "Input floats [T B width], InitH [layers B hidden_size], InitC [layers B hidden_size], W "
        "-> Out [T B directions*hidden_size], last_h [layers B hidden_size], "
        "last_c [layers B hidden_size]",
        "hidden_size > 0 and num_layers > 0; hidden_size and num_layers must be positive",
        "directions = 2 if is_bidirec else 1",
        "layers = num_layers * directions",
        _check_weights,
    ),
    lod=no_sequences,
    slope=slope(
        "input init_h init_c w cache out d_out? d_last_h? d_last_c?",
        "d_input d_init_h d_init_c d_w",
    ),
)
