"""``fluid.layers.tensor``: tensors: creating, joining and converting them."""

from ...graph.layers.arrays import tensor_array_to_tensor
from ...graph.layers.io import create_global_var, create_parameter
from ...graph.layers.matrices import diag, eye, linspace, range, trace, tril, triu
from ...graph.layers.products import kron
from ...graph.layers.shape import (
    argmax,
    argmin,
    assign,
    cast,
    concat,
    fill_constant,
    fill_constant_batch_size_like,
    ones,
    ones_like,
    sums,
    zeros,
    zeros_like,
)
from ...graph.layers.tensors import argsort, create_tensor, has_inf, has_nan, isfinite, reverse
from ...names import listing, missing
from .aliases import full, full_like
from .composed import arange

__all__ = [
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "assign",
    "cast",
    "concat",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "diag",
    "eye",
    "fill_constant",
    "fill_constant_batch_size_like",
    "full",
    "full_like",
    "has_inf",
    "has_nan",
    "isfinite",
    "kron",
    "linspace",
    "ones",
    "ones_like",
    "range",
    "reverse",
    "sums",
    "tensor_array_to_tensor",
    "trace",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
