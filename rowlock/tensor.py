"""Tensor functions with Paddle 2.x's signatures; those of one tensor are methods of variables, too."""

import inspect

from .functions.bits import *
from .functions.counting import *
from .functions.creation import *
from .functions.einsum import *
from .functions.elementwise import *
from .functions.framework import *
from .functions.in_place import IN_PLACE as _IN_PLACE
from .functions.manipulation import *
from .functions.math import *
from .functions.places import *
from .functions.random import *
from .functions.reductions import *
from .functions.runs import *
from .functions.search import *
from .functions.synonyms import SYNONYMS as _SYNONYMS
from .functions.views import *
from .graph.layers.arguments import TENSORS as _TENSORS
from .graph.layers.draws import multinomial as multinomial
from .graph.layers.matrices import diag_embed as diag_embed
from .graph.layers.matrices import diagonal as diagonal
from .graph.layers.picks import index_sample as index_sample
from .graph.layers.picks import scatter_nd as scatter_nd
from .graph.layers.picks import shard_index as shard_index
from .graph.layers.shape import cast as cast
from .graph.layers.shape import slice as slice
from .graph.layers.tensors import add_n as add_n
from .graph.layers.tensors import gather_nd as gather_nd
from .graph.layers.tensors import rank as rank
from .graph.layers.tensors import strided_slice as strided_slice
from .graph.layers.tensors import unstack as unstack
from .graph.layers.unary import abs as abs
from .graph.layers.unary import scale as scale
from .graph.layers.unary import sign as sign
from .graph.layers.unary import square as square
from .graph.program.variable import Variable as _Variable
from .names import publish_imports

globals().update({**_IN_PLACE, **_SYNONYMS})
publish_imports(__name__)

_NO_METHODS = (
    "einsum",
    "empty_like",
    "full_like",
    "ones_like",
    "scatter_nd",
    "shape",
    "zeros_like",
)


def _install() -> None:
    """Give Variable the functions whose first argument is one."""
    for name in set(globals()["__all__"]).difference(_NO_METHODS):
        function = globals()[name]
        first = next(iter(inspect.signature(function).parameters.values()), None)
        if first is not None and first.annotation in _TENSORS and not hasattr(_Variable, name):
            setattr(_Variable, name, function)


_install()
