"""``fluid.layers.tensor``: tensors: creating, joining and converting them."""

from ...graph.layers.arrays import tensor_array_to_tensor as tensor_array_to_tensor
from ...graph.layers.io import create_global_var as create_global_var
from ...graph.layers.io import create_parameter as create_parameter
from ...graph.layers.matrices import diag as diag
from ...graph.layers.matrices import eye as eye
from ...graph.layers.matrices import linspace as linspace
from ...graph.layers.matrices import range as range
from ...graph.layers.matrices import trace as trace
from ...graph.layers.matrices import tril as tril
from ...graph.layers.matrices import triu as triu
from ...graph.layers.products import kron as kron
from ...graph.layers.shape import argmax as argmax
from ...graph.layers.shape import argmin as argmin
from ...graph.layers.shape import assign as assign
from ...graph.layers.shape import cast as cast
from ...graph.layers.shape import concat as concat
from ...graph.layers.shape import fill_constant as fill_constant
from ...graph.layers.shape import fill_constant_batch_size_like as fill_constant_batch_size_like
from ...graph.layers.shape import ones as ones
from ...graph.layers.shape import ones_like as ones_like
from ...graph.layers.shape import sums as sums
from ...graph.layers.shape import zeros as zeros
from ...graph.layers.shape import zeros_like as zeros_like
from ...graph.layers.tensors import argsort as argsort
from ...graph.layers.tensors import create_tensor as create_tensor
from ...graph.layers.tensors import has_inf as has_inf
from ...graph.layers.tensors import has_nan as has_nan
from ...graph.layers.tensors import isfinite as isfinite
from ...graph.layers.tensors import reverse as reverse
from ...graph.program.variable import Variable as Variable
from ...names import publish_imports
from .aliases import full as full
from .aliases import full_like as full_like
from .composed import arange as arange

publish_imports(__name__)
