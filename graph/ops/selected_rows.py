"""Gradients of embeddings as rows: only those that a step looks up are sent and updated.

A gradient is (Rows, Values): row Rows[k] of the table has Values[k]. Merged rows are each there once, in order;
places that are left over name row ``height``, which the table does not have, and have zeros. An update takes
its rows out of the parameter and its state, is the same op as that of a whole parameter, and puts them back.

In a program all gradients are dense, so Paddle's two ops on rows, the first here, hand on what they are given;
``passes/sparse_rows.py`` puts the others in place of dense gradients.
"""

from __future__ import annotations

from functools import partial

from . import formula as f
from .collective import GATHER_ROWS, SPREAD_ROWS
from .lod import no_sequences
from .operands import Input, Inputs, Offsets, Operands, Output, Positive, record_of
from .registry import define
from .rules import same
from .samples import sample
from .shapes import Sized, counted

_define = partial(define, lod=no_sequences)  # rows of a table are no rows of sequences

for _op_type in ("merge_selected_rows", "get_tensor_from_selected_rows"):
    _define(
        _op_type,
        record_of("x", "out"),
        same(),
        formula=lambda a: {"out": a.x},
        samples=(sample("X [4 3]"),),
    )


class EmbeddingRows(Operands):
    """If ``pooled``, rows of each sequence (``ids_lod``) were summed: its ids share what comes down for it."""

    ids: Input
    ids_lod: Offsets
    d_out: Input
    rows: Output
    values: Output
    padding_idx: int = -1
    height: int = 0
    pooled: bool = False


def embedding_rows(a: EmbeddingRows) -> f.Results:
    """The ids, and what comes down for them; nothing for the padding."""
    values = a.d_out.reshape(-1, a.d_out.shape[-1])
    if a.pooled:
        values = f.take(values, f.sequence_of(a.ids_lod[-1], a.ids.size, "Ids"))
    padding = a.padding_idx if a.padding_idx >= -1 else a.padding_idx + a.height
    if padding != -1:
        values = f.where(f.not_equal(a.ids.reshape(-1, 1), padding), values, 0)
    return {"rows": a.ids.reshape(-1).astype("int64"), "values": values}


_define(
    "embedding_rows",
    EmbeddingRows,
    Sized(
        "Ids integers, Out@GRAD [... width] -> Rows int64 [count], Values as Out@GRAD [count width]",
        "count = prod(Ids)",
    ),
    formula=embedding_rows,
    views={"Rows": "Ids", "Values": "Out@GRAD"},
    keeps_order=lambda attrs, slots: attrs["padding_idx"] == -1 and not attrs["pooled"],
    samples=(
        sample("Ids 0:7 [4 1], Out@GRAD [4 3]", height=7),
        sample("Ids 0:7 [2 5], Out@GRAD [2 5 3]", height=7, padding_idx=-2),
        sample("Ids 0:7 [5 1], Ids@LOD [2 0 3], Out@GRAD [3 4]", height=7, pooled=True),
        sample("Ids 0:7 [5 1], Ids@LOD [2 0 3], Out@GRAD [5 4]", height=7),
    ),
)


class MergeRows(Operands):
    rows: Input
    values: Input
    out_rows: Output
    out_values: Output
    height: int = 0


_define(
    "merge_rows",
    MergeRows,
    lambda op: {"OutRows": op.spec("Rows"), "OutValues": op.spec("Values")},
    samples=(sample("Rows 0:4 [6], Values [6 3]", height=4),),
)


class TakeRows(Operands):
    table: Input
    rows: Input
    out: Output


_ROWS = "Table [7 3], Rows lengths [0 2 5]"
_define(
    "take_rows",
    TakeRows,
    Sized("Table [rows D], Rows [...] -> Out [... D]"),
    samples=(sample(_ROWS),),
)


class PutRows(Operands):
    table: Input
    rows: Input
    values: Input
    out: Output


_define(
    "put_rows",
    PutRows,
    Sized("Table [rows ...], Values [taken ...] -> Out as Table"),
    in_place={"Out": "Table"},
    samples=(sample(_ROWS, "Values [3 3]"),),
)


class DenseRows(Operands):
    rows: Input
    values: Input
    out: Output
    height: Positive = 0


def dense_rows(a: DenseRows) -> f.Results:
    """The whole gradient; equal rows are added up, and what is left over adds zeros to the last row."""
    return {"out": f.row_sums(f.minimum(a.rows, a.height - 1), a.values, a.height)}


_define(
    "dense_rows",
    DenseRows,
    Sized("Values [rows D], Rows integers [rows] -> Out [height D]"),
    formula=dense_rows,
    samples=(sample("Rows 0:4 [6], Values [6 3]", height=5),),
)


class RowsCollective(Operands):
    """Rows of all ranks, which only ``root`` needs (-1: all do), or those that ``root`` has for all.

    ``number`` is that of the gradient, whose table has ``height`` rows. ``counted`` have, together, as many
    elements as a rank brings rows: the driver counts these.
    """

    rows: Input
    values: Input
    counts: Input
    counted: Inputs | None
    out_rows: Output
    out_values: Output
    bucket: int = 0
    number: int = 0
    height: Positive = 0
    root: int = -1


for _op_type in (GATHER_ROWS, SPREAD_ROWS):
    _define(
        _op_type,
        RowsCollective,
        Sized(  # the rows of all ranks: Counts has how many each brings, by number of the gradient
            "Rows [own], Values [own D] -> OutRows [rows], OutValues as Values [rows D]",
            counted(RowsCollective, lambda a: {"rows": int(a.counts[a.number].sum())}, "counts"),
        ),
    )
