"""``fluid.layers.control_flow``: comparisons, counters, branches and recurrent blocks."""

from ...graph.layers.arrays import array_length as array_length
from ...graph.layers.arrays import array_read as array_read
from ...graph.layers.arrays import array_write as array_write
from ...graph.layers.arrays import create_array as create_array
from ...graph.layers.binary import equal as equal
from ...graph.layers.binary import greater_equal as greater_equal
from ...graph.layers.binary import greater_than as greater_than
from ...graph.layers.binary import less_equal as less_equal
from ...graph.layers.binary import less_than as less_than
from ...graph.layers.binary import not_equal as not_equal
from ...graph.layers.control_flow import Switch as Switch
from ...graph.layers.control_flow import case as case
from ...graph.layers.control_flow import cond as cond
from ...graph.layers.control_flow import select_input as select_input
from ...graph.layers.control_flow import switch_case as switch_case
from ...graph.layers.dynamic_rnn import DynamicRNN as DynamicRNN
from ...graph.layers.if_else import IfElse as IfElse
from ...graph.layers.loops import While as While
from ...graph.layers.loops import while_loop as while_loop
from ...graph.layers.matrices import is_empty as is_empty
from ...graph.layers.printing import Print as Print
from ...graph.layers.rank_tables import array_to_lod_tensor as array_to_lod_tensor
from ...graph.layers.rank_tables import lod_rank_table as lod_rank_table
from ...graph.layers.rank_tables import lod_tensor_to_array as lod_tensor_to_array
from ...graph.layers.rank_tables import max_sequence_len as max_sequence_len
from ...graph.layers.rank_tables import merge_lod_tensor as merge_lod_tensor
from ...graph.layers.rank_tables import reorder_lod_tensor_by_rank as reorder_lod_tensor_by_rank
from ...graph.layers.rank_tables import shrink_memory as shrink_memory
from ...graph.layers.rank_tables import split_lod_tensor as split_lod_tensor
from ...graph.layers.recurrent import StaticRNN as StaticRNN
from ...graph.layers.shape import increment as increment
from ...names import publish_imports

publish_imports(__name__)
