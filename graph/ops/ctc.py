"""Connectionist temporal classification. Legend: T steps, B sequences, C classes, L labels.

Logits and labels are sequences (LoD), or padded batches with their lengths: logits [T, B, C], labels [B, L].
"""

from __future__ import annotations

from collections.abc import Mapping

from .lod import no_sequences
from .operands import Input, Offsets, Operands, Output, named
from .registry import Inference, Op, Specs, define
from .rules import hold_floats, hold_integers, match, merge_dims, of_shape, one_level
from .samples import integers, lengths, normal, offsets, sample


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


def ctc_shape(op: Inference) -> Mapping[str, Specs]:
    """The loss of each sequence, [B, 1]; its gradient is like Logits."""
    x = op.spec("Logits")
    hold_floats(op, "Logits")
    hold_integers(op, "Label", "LogitsLength", "LabelLength")
    padded = op.has("LogitsLength")
    op.require(
        padded == op.has("LabelLength"), "LogitsLength and LabelLength must be given together"
    )
    if padded:
        match(op, Logits="T B C", Label="B L", LogitsLength="B 1?", LabelLength="B 1?")
        count = x.shape[1]
    else:
        match(op, Logits="N C")
        count, labels = op.sequences("Logits"), op.sequences("Label")
        one_level(op, "Logits")
        one_level(op, "Label")
        op.require(
            merge_dims(count, labels) is not None,
            f"Logits has {count} sequences, Label {labels}",
        )
    classes, blank = x.shape[-1], op.attr("blank")
    op.require(
        blank >= 0 and (classes < 0 or blank < classes),
        f"blank must be one of the {classes} classes, got {blank}",
    )
    return {"WarpCTCGrad": x, "Loss": of_shape((count, 1), x)}


_LOD = {
    "Logits": normal(8, 4),
    "Logits@LOD": [offsets(3, 5, 0)],
    "Label": integers(4, 1, low=1, high=4),
    "Label@LOD": [offsets(1, 3, 0)],
}
_PADDED = {
    "Logits": normal(5, 3, 4),
    "Label": integers(3, 3, high=3),
    "LogitsLength": lengths(5, 3, 4),
    "LabelLength": lengths(2, 0, 2),
}
define(
    "warpctc",
    WarpCtc,
    ctc_shape,
    lod=no_sequences,
    # With norm_by_times the gradient is not the slope of the loss: see tests/reference/op_cases/chains.py.
    samples=(sample(_LOD), sample(_PADDED, blank=3)),
    refuses=(
        sample(_LOD, blank=4),
        sample({**_LOD, "Label@LOD": [offsets(1, 3)]}),
        sample({**_PADDED, "Logits": normal(5, 2, 4)}, blank=3),
        sample({**_LOD, "Label": normal(4, 1)}),
    ),
    slope=Op("warpctc_grad", WarpCtcGrad),
)
