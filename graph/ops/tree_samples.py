"""Nodes of a tree, drawn layer by layer beside those on the way to an item: Zhu et al., arXiv 1801.02294."""

from __future__ import annotations

from collections.abc import Sequence

from ...strategies.types import INTEGERS, VarType
from .lod import no_sequences
from .operands import Input, Operands, Output
from .registry import define
from .samples import sample
from .shapes import Sized


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


_TREE = "X 0:4 [5 1], Travel table [1 3; 1 4; 2 5; 2 0], Layer table [1; 2; 3; 4; 5; 6]"
_ENDS = {"layer_offset_lod": [0, 2, 6]}
define(
    "tdm_sampler",
    TdmSampler,
    Sized(
        "X integers [N 1?], Travel integers [items layers], Layer integers "
        "-> Out dtype [N width], Labels dtype [N width], Mask dtype [N width]",
        f"dtype in {tuple(map(int, INTEGERS))}; dtype must be an integer type",
        "layers = len(neg_samples_num_list)",
        "0 < layers == len(layer_offset_lod) - 1 and layer_offset_lod[0] == 0; "
        "layer_offset_lod must begin with 0 and have an end for each of neg_samples_num_list",
        "nodes = [b - a for a, b in zip(layer_offset_lod, layer_offset_lod[1:])]",
        "every(0 <= count < size for count, size in zip(neg_samples_num_list, nodes)); "
        "neg_samples_num_list asks for more nodes of a layer than it has beside one",
        "prod(Layer) == layer_offset_lod[-1]; Layer must have the nodes of all layers",
        "width = sum(neg_samples_num_list) + layers * output_positive",
        "width > 0; nothing is asked for: no node on the way, and no other",
    ),
    lod=no_sequences,
    random=True,
    by_place=lambda attrs: True,
    samples=(
        sample(_TREE, neg_samples_num_list=[1, 3], **_ENDS),
        sample(_TREE, neg_samples_num_list=[0, 2], output_positive=False, seed=3, dtype=3, **_ENDS),
    ),
)
