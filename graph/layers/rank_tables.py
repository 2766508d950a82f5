"""Layers that put sequences in the order of their lengths, and that split and merge batches by masks."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidType
from ...strategies.types import VarType
from ..program import unique_name
from ..program.variable import Variable
from .arguments import check_variable
from .arrays import check_array
from .helper import LayerHelper, layer, layers


def check_table(table: Any, argument: str, layer: str) -> None:
    """Raise InvalidType unless ``table`` is what lod_rank_table returns."""
    check_variable(table, argument, layer)
    if table.type != VarType.LOD_RANK_TABLE:
        raise InvalidType(
            f"{layer}: {argument} must be what lod_rank_table returns, {table.name!r} is no rank table."
        )


def lod_rank_table(x: Variable, level: int = 0) -> Variable:
    """The numbers and lengths of the sequences of ``x`` at a level, the longest first; equals in their order.

    Where a program runs it is an int64 tensor [sequences, 2], which may be fetched.
    """
    helper = LayerHelper("lod_rank_table")
    name = unique_name.generate("lod_rank_table")
    table = helper.block.create_var(name=name, type=VarType.LOD_RANK_TABLE)
    helper.layers("lod_rank_table", "", x=x, out=table, level=level)
    return table


def max_sequence_len(rank_table: Variable) -> Variable:
    """The length of the longest sequence of a rank table, int64 [1]."""
    check_table(rank_table, "rank_table", "max_sequence_len")
    helper = LayerHelper("max_seqence_len")  # so it is in Paddle, which names the result after it
    return helper.layer("max_sequence_len", rank_table=rank_table)


def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """An array of tensors: entry t has the t-th row of each sequence that has one, the longest sequence first.

    ``table`` ranks the sequences of ``x`` at the level that is taken apart; entries keep the levels within.
    """
    check_table(table, "table", "lod_tensor_to_array")
    helper = LayerHelper("lod_tensor_to_array")
    name = unique_name.generate("lod_tensor_to_array")
    array = helper.block.create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype)
    helper.layers("lod_tensor_to_array", "", x=x, rank_table=table, out=array)
    return array


def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """The sequences whose t-th rows are in entry t of an array, in the order that they had before ``table``."""
    check_array(x, "array_to_lod_tensor")
    check_table(table, "table", "array_to_lod_tensor")
    return layer("array_to_lod_tensor", x=x, rank_table=table)


def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """The first rows (or sequences) of ``x``: as many as there are sequences longer than ``i``, int64 [1]."""
    check_table(table, "table", "shrink_memory")
    helper = LayerHelper("shrink_memory")
    return helper.layer("shrink_rnn_memory", x=x, i=i, rank_table=table)


def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """The sequences (or rows) of ``x`` in the order of a rank table."""
    check_table(rank_table, "rank_table", "reorder_lod_tensor_by_rank")
    return layer("reorder_lod_tensor_by_rank", x=x, rank_table=rank_table)


def split_lod_tensor(input: Variable, mask: Variable, level: int = 0) -> tuple[Variable, Variable]:
    """The sequences at a level (or rows) where a bool mask is true, and the others."""
    fields = {"x": input, "mask": mask, "level": level}
    yes, no = layers("split_lod_tensor", None, "OutTrue OutFalse", **fields)
    return yes, no


def merge_lod_tensor(
    in_true: Variable, in_false: Variable, x: Variable, mask: Variable, level: int = 0
) -> Variable:
    """Join what split_lod_tensor split: rows of ``in_true`` where a mask is true, else rows of ``in_false``.

    ``x`` was split; the result has its levels above ``level``.
    """
    fields = {"in_true": in_true, "in_false": in_false, "x": x, "mask": mask, "level": level}
    return layer("merge_lod_tensor", **fields)
