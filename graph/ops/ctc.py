"""Connectionist temporal classification. Legend: T steps, B sequences, C classes, L labels.

Logits and labels are sequences (LoD), or padded batches with their lengths: logits [T, B, C], labels [B, L].
"""

from __future__ import annotations

from .lod import no_sequences
from .operands import Input, Offsets, Operands, Output, named
from .registry import Op, define
from .samples import sample
from .shapes import Sized, by_use, in_sequences


class CtcAttributes(Operands):
    blank: int = 0
    norm_by_times: bool = False


class WarpCtc(CtcAttributes):
    logits: Input
    logits_lod: Offsets
    label: Input
    label_lod: Offsets
    logits_length: Input | None
    label_length: Input | None
    warp_ctc_grad: Output = named("WarpCTCGrad")
    loss: Output


class WarpCtcGrad(CtcAttributes):
    logits: Input
    logits_lod: Offsets
    logits_length: Input | None
    warp_ctc_grad: Input = named("WarpCTCGrad")
    d_loss: Input
    d_logits: Output


_BLANK = "0 <= blank < C; blank must be one of the classes"
_LOD = "Logits [8 4], Logits@LOD [3 5 0], Label 1:4 [4 1], Label@LOD [1 3 0]"
_PADDED = (
    "Logits [5 3 4], Label 0:3 [3 3], LogitsLength lengths [5 3 4], LabelLength lengths [2 0 2]"
)
define(
    "warpctc",
    WarpCtc,
    by_use(
        "LogitsLength",
        Sized(
            "Logits floats [T B C], Label integers [B L], LogitsLength integers [B 1?], "
            "LabelLength integers [B 1?] -> WarpCTCGrad as Logits, Loss [B 1]",
            "LabelLength is not None; LogitsLength and LabelLength must be given together",
            _BLANK,
        ),
        Sized(
            "Logits floats [N C], Label integers "
            "-> WarpCTCGrad as Logits, Loss [sequences(Logits) 1]",
            "LabelLength is None; LogitsLength and LabelLength must be given together",
            "sequences(Logits) == sequences(Label); Logits and Label must have as many sequences",
            _BLANK,
            in_sequences("Logits", "Label"),
        ),
    ),
    lod=no_sequences,
    # With norm_by_times the gradient is not the slope of the loss: see tests/reference/op_cases/chains.py.
    samples=(sample(_LOD), sample(_PADDED, blank=3)),
    refuses=(
        sample(_LOD, blank=4),
        sample(_LOD, "Label@LOD [1 3]"),
        sample(_PADDED, "Logits [5 2 4]", blank=3),
        sample(_LOD, "Label [4 1]"),
    ),
    slope=Op("warpctc_grad", WarpCtcGrad, shapes_of=("Logits",)),
)
