"""Layers that keep the sequences with some tags."""

from __future__ import annotations

from ..program.variable import Variable
from .arguments import Integers
from .helper import layers


def filter_by_instag(
    ins: Variable, ins_tag: Integers, filter_tag: Integers, is_lod: bool, out_val_if_empty: int = 0
) -> list[Variable]:
    """Return the sequences of ``ins`` that have one of the tags, and the weight 1 for each, [sequences, 1].

    How many are left is known only in a step. If there are none, the result is one row of ``out_val_if_empty``
    with the weight 0, and ``ins`` has no gradient.

    Args:
        ins: [N, D], sequences with ``is_lod``; else each row counts as one.
        ins_tag: the tags of each sequence, integers [M, 1]: as many sequences of tags as of ``ins``.
        filter_tag: those that are wanted, integers [K, 1].

    Raises:
        InvalidType: ``ins`` is no Variable, or tags are no integers.
    """
    out, loss_weight, _ = layers(
        "filter_by_instag",
        None,
        "Out LossWeight IndexMap",
        "IndexMap",
        ins=ins,
        ins_tag=ins_tag,
        filter_tag=filter_tag,
        is_lod=is_lod,
        out_val_if_empty=out_val_if_empty,
    )
    return [out, loss_weight]
