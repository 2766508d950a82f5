"""Embedding lookups. The gradient is dense; with ``is_sparse`` ``passes/sparse_rows.py`` lets it be rows.

``is_distributed`` and ``remote_prefetch`` matter to parameter servers only; without endpoints rows come from W.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from . import formula as f
from .lod import like, no_sequences
from .operands import Input, Offsets, Operands, Output
from .registry import Op, define, slope
from .samples import sample
from .shapes import Sized


class Lookup(Operands):
    w: Input
    ids: Input
    is_sparse: bool = False
    is_distributed: bool = False
    padding_idx: int = -1
    remote_prefetch: bool = False
    trainer_id: int = 0
    height_sections: Sequence[int] = []
    epmap: Sequence[str] = []
    table_names: Sequence[str] = []


class LookupTable(Lookup):
    out: Output


class LookupTableGrad(LookupTable, reads="*"):
    d_out: Input
    d_w: Output


class FirstLookupTable(LookupTable):
    grad_inplace: bool = False


class FirstLookupTableGrad(LookupTableGrad):
    grad_inplace: bool = False


def padding_row(padding_idx: int, rows: int) -> int:
    """Return the row of zeros, of a table with so many rows, that an attribute names; -1 is none."""
    return padding_idx if padding_idx >= -1 else padding_idx + rows


_LOCAL = "not epmap; rows on parameter servers are not built"
_ANY = Sized("W [rows width], Ids integers [...] -> Out [... width]", _LOCAL)
_COLUMN = Sized(
    "W [rows width], Ids integers [... 1] -> Out [... width]",
    _LOCAL,
    "len(Ids) > 1 and Ids[-1] == 1; "
    "the last dimension of Ids must be 1; fluid.embedding takes ids without it",
)
for _name, _last, _record, _gradient, _shape in (
    ("lookup_table", " 1", FirstLookupTable, FirstLookupTableGrad, _COLUMN),
    ("lookup_table_v2", "", LookupTable, LookupTableGrad, _ANY),
):
    define(
        _name,
        _record,
        _shape,
        linear=("W",),
        lod=like("Ids", "Out"),
        samples=(
            sample(f"W [7 3], Ids 0:7 [4 2{_last}]"),
            sample(f"W [7 3], Ids 0:7 [9{_last}]", padding_idx=2),
        ),
        refuses=(
            sample(f"W [7 3], Ids [4 2{_last}]"),
            sample(f"W [7 3], Ids 0:7 [4{_last}]", epmap=["ps:1"]),
        ),
        slope=Op(f"{_name}_grad", _gradient),
    )


DEPTH = 256  # steps from the least to the largest


class LookupTableDequant(Operands):
    """A row of W: the least and the largest of its numbers, then the numbers, four a float, a byte each."""

    w: Input
    ids: Input
    out: Output
    padding_idx: int = -1


define(
    "lookup_table_dequant",
    LookupTableDequant,
    Sized(
        "W float32 [rows columns], Ids integers [... 1] -> Out [... 4*(columns-2)]",
        "len(Ids) > 1; Ids must have a last dimension of 1",
        "columns > 2; W must have three columns or more",
    ),
    lod=like("Ids", "Out"),
    samples=(
        sample("W single [7 4], Ids 0:7 [4 2 1]"),
        sample("W single [7 3], Ids 0:7 [9 1]", padding_idx=2),
    ),
)


class FusedEmbeddingSeqPool(Operands):
    w: Input
    ids: Input
    ids_lod: Offsets
    out: Output
    combiner: Literal["sum"] = "sum"
    padding_idx: int = -1
    grad_inplace: bool = False
    is_sparse: bool = False


def fused_embedding_seq_pool(a: FusedEmbeddingSeqPool) -> f.Results:
    """The sum of the rows of W that each sequence names, without those of ``padding_idx``."""
    count, ends = a.ids.shape[0], a.ids_lod[-1]
    ids = f.checked(a.ids.reshape(-1).astype("int64"), a.w.shape[0], "id", "rows of W")
    rows = f.take(a.w, ids)
    if a.padding_idx != -1:
        rows = f.where(f.not_equal(ids, a.padding_idx).reshape(-1, 1), rows, 0)
    number = f.sequence_of(ends, count, "Ids")
    return {"out": f.row_sums(number, rows, ends.shape[0] - 1)}


_IDS = "W [7 3], Ids 0:7 [5 1], Ids@LOD [2 0 3]"
define(
    "fused_embedding_seq_pool",
    FusedEmbeddingSeqPool,
    Sized("W [rows width], Ids integers [N 1] -> Out [sequences(Ids) width]"),
    lod=no_sequences,
    formula=fused_embedding_seq_pool,
    samples=(sample(_IDS), sample(_IDS, padding_idx=2)),
    slope=slope("w ids d_out ids_lod", "d_w"),
)
