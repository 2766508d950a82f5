"""``fluid.layers.sequence_lod``: layers on sequences of rows."""

from ...graph.layers.sequence import sequence_concat as sequence_concat
from ...graph.layers.sequence import sequence_conv as sequence_conv
from ...graph.layers.sequence import sequence_enumerate as sequence_enumerate
from ...graph.layers.sequence import sequence_expand as sequence_expand
from ...graph.layers.sequence import sequence_expand_as as sequence_expand_as
from ...graph.layers.sequence import sequence_first_step as sequence_first_step
from ...graph.layers.sequence import sequence_last_step as sequence_last_step
from ...graph.layers.sequence import sequence_mask as sequence_mask
from ...graph.layers.sequence import sequence_pad as sequence_pad
from ...graph.layers.sequence import sequence_pool as sequence_pool
from ...graph.layers.sequence import sequence_reshape as sequence_reshape
from ...graph.layers.sequence import sequence_reverse as sequence_reverse
from ...graph.layers.sequence import sequence_scatter as sequence_scatter
from ...graph.layers.sequence import sequence_slice as sequence_slice
from ...graph.layers.sequence import sequence_softmax as sequence_softmax
from ...graph.layers.sequence import sequence_unpad as sequence_unpad
from ...names import publish_imports

publish_imports(__name__)
