"""Nodes of a tree, drawn layer by layer beside those on the way to an item: Zhu et al., arXiv 1801.02294."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...strategies.types import INTEGERS, VarType
from .lod import no_sequences
from .operands import Input, Operands, Output
from .registry import Inference, Spec, Specs, define
from .rules import product
from .samples import integers, normal, sample, table


class TdmSampler(Operands):
    """``layer_offset_lod`` tells where in Layer, the nodes of all layers, each of them begins, and the end."""

    x: Input
    travel: Input
    layer: Input
    out: Output
    labels: Output | None
    mask: Output
    output_positive: bool = True
    neg_samples_num_list: Sequence[int] = []
    layer_offset_lod: Sequence[int] = []
    seed: int = 0
    dtype: int = int(VarType.INT32)


def tdm_sampler_shape(op: Inference) -> Mapping[str, Specs]:
    """A row for each item in X: by layer the node on its way, if asked for, and so many others."""
    x, travel, layer = op.spec("X"), op.spec("Travel"), op.spec("Layer")
    counts, ends = list(op.attr("neg_samples_num_list")), list(op.attr("layer_offset_lod"))
    dtype = VarType(op.attr("dtype"))
    whole = all(spec.dtype in INTEGERS for spec in (x, travel, layer)) and dtype in INTEGERS
    op.require(whole, "X, Travel, Layer and dtype must be integers")
    op.require(x.shape[1:] in ((), (1,)), "X must have one item in a row: [N, 1]")
    fits = len(counts) > 0 and len(ends) == len(counts) + 1 and ends[0] == 0
    op.require(
        fits, f"layer_offset_lod must begin with 0 and have an end for each of {counts}, got {ends}"
    )
    for number, (count, size) in enumerate(zip(counts, np.diff(ends).tolist(), strict=True)):
        op.require(
            0 <= count < size,
            f"neg_samples_num_list asks for {count} nodes of layer {number} beside one, and it has {size}",
        )
    op.require(
        len(travel.shape) == 2 and travel.shape[1] == len(counts),
        f"Travel must be [items, layers] = [items, {len(counts)}]",
    )
    nodes = product(layer.shape)
    op.require(nodes in (-1, ends[-1]), f"Layer must have the {ends[-1]} nodes of all layers")
    width = sum(counts) + len(counts) * op.attr("output_positive")
    op.require(width > 0, "nothing is asked for: no node on the way, and no other")
    rows = Spec((x.shape[0], width), dtype)
    return {"Out": rows, "Labels": rows, "Mask": rows}


_TREE = {
    "X": integers(5, 1, high=4),
    "Travel": table([[1, 3], [1, 4], [2, 5], [2, 0]]),
    "Layer": table([[1], [2], [3], [4], [5], [6]]),
}
_ENDS = {"layer_offset_lod": [0, 2, 6]}
define(
    "tdm_sampler",
    TdmSampler,
    tdm_sampler_shape,
    lod=no_sequences,
    random=True,
    by_place=lambda attrs: True,
    samples=(
        sample(_TREE, neg_samples_num_list=[1, 3], **_ENDS),
        sample(_TREE, neg_samples_num_list=[0, 2], output_positive=False, seed=3, dtype=3, **_ENDS),
    ),
    refuses=(
        sample({**_TREE, "X": integers(5, 2, high=4)}, neg_samples_num_list=[1, 2], **_ENDS),
        sample({**_TREE, "X": normal(5, 1)}, neg_samples_num_list=[1, 2], **_ENDS),
        sample(_TREE, neg_samples_num_list=[1, 4], **_ENDS),
        sample(_TREE, neg_samples_num_list=[1], **_ENDS),
        sample(_TREE, neg_samples_num_list=[1, 2], layer_offset_lod=[0, 2, 7]),
        sample(_TREE, neg_samples_num_list=[0, 0], output_positive=False, **_ENDS),
    ),
)
