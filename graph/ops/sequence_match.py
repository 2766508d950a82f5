"""Two sequences (LoD), each row of one against each row of the other. Legend: D, E elements of a row."""

from __future__ import annotations

from . import formula as f
from .levels import level_from
from .operands import Input, Offsets, Operands, Output
from .registry import define, slope
from .samples import sample
from .sequence import result
from .shapes import Sized, equally_many, rows_of_result


class MatchMatrixTensor(Operands):
    x: Input
    y: Input
    w: Input
    x_lod: Offsets
    y_lod: Offsets
    out_lod: Offsets
    out: Output
    tmp: Output
    dim_t: int = 1


def match_matrix_tensor(a: MatchMatrixTensor) -> f.Results:
    """x_i W[:, t] y_j by pair of sequences, t, i and j."""
    rows, (count, width) = result(a).shape[0], a.x.shape
    pair = f.sequence_of(a.out_lod[-1], rows, "Out")
    place = f.table(range(rows), "int64") - f.take(a.out_lod[-1], pair)
    first, second = f.take(a.x_lod[-1], pair), f.take(a.y_lod[-1], pair)
    height = f.take(a.x_lod[-1][1:], pair) - first
    length = f.take(a.y_lod[-1][1:], pair) - second
    t = f.floor_divide(place, height * length)
    i = f.floor_divide(place, length) - t * height
    j = place - (t * height + i) * length
    tmp = a.x @ a.w.reshape(width, -1)
    left = f.take(tmp.reshape(count * a.dim_t, -1), (first + i) * a.dim_t + t)
    out = (left * f.take(a.y, second + j)).sum(1)
    return {"out": out.reshape(rows, 1), "tmp": tmp.reshape(-1, 1)}


_MATCH = "X [5 2], Y [6 3], W [2 2 3], X@LOD [2 0 3], Y@LOD [3 1 2], Out@LOD [12 0 12]"
define(
    "match_matrix_tensor",
    MatchMatrixTensor,
    Sized(
        "X [N D], Y [M E], W [D dim_t E] -> Out [pairs 1], Tmp [N*dim_t*E 1]",
        equally_many("X", "Y"),
        rows_of_result("pairs"),
    ),
    reads_values=lambda attrs: ("Out@LOD",),
    lod=level_from("lod_of_pairs", X="X@LOD", Y="Y@LOD"),
    formula=match_matrix_tensor,
    samples=(sample(_MATCH, dim_t=2),),
    refuses=(sample(_MATCH, "Y@LOD [3 3]", dim_t=2),),
    slope=slope("x y w tmp d_out x_lod y_lod out_lod", "d_x d_y d_w"),
)
