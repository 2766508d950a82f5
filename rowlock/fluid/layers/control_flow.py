"""``fluid.layers.control_flow``: comparisons, counters, branches and recurrent blocks."""

from ...graph.layers.arrays import array_length, array_read, array_write, create_array
from ...graph.layers.binary import (
    equal,
    greater_equal,
    greater_than,
    less_equal,
    less_than,
    not_equal,
)
from ...graph.layers.control_flow import Switch, case, cond, switch_case
from ...graph.layers.dynamic_rnn import DynamicRNN
from ...graph.layers.if_else import IfElse
from ...graph.layers.loops import While, while_loop
from ...graph.layers.matrices import is_empty
from ...graph.layers.printing import Print
from ...graph.layers.rank_tables import (
    array_to_lod_tensor,
    lod_rank_table,
    lod_tensor_to_array,
    max_sequence_len,
    merge_lod_tensor,
    reorder_lod_tensor_by_rank,
    shrink_memory,
    split_lod_tensor,
)
from ...graph.layers.recurrent import StaticRNN
from ...graph.layers.shape import increment
from ...names import listing, missing

__all__ = [
    "DynamicRNN",
    "IfElse",
    "Print",
    "StaticRNN",
    "Switch",
    "While",
    "array_length",
    "array_read",
    "array_to_lod_tensor",
    "array_write",
    "case",
    "cond",
    "create_array",
    "equal",
    "greater_equal",
    "greater_than",
    "increment",
    "is_empty",
    "less_equal",
    "less_than",
    "lod_rank_table",
    "lod_tensor_to_array",
    "max_sequence_len",
    "merge_lod_tensor",
    "not_equal",
    "reorder_lod_tensor_by_rank",
    "shrink_memory",
    "split_lod_tensor",
    "switch_case",
    "while_loop",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
