"""Tensor functions with Paddle 2.x's signatures; those of one tensor are methods of variables, too."""

from __future__ import annotations

import inspect

from .functions.creation import (
    arange,
    assign,
    diag,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    to_tensor,
    tril,
    triu,
    zeros,
    zeros_like,
)
from .functions.framework import (
    get_default_dtype,
    get_device,
    is_tensor,
    no_grad,
    seed,
    set_default_dtype,
    set_device,
)
from .functions.manipulation import (
    broadcast_to,
    cast,
    chunk,
    concat,
    expand,
    expand_as,
    flatten,
    flip,
    gather,
    gather_nd,
    index_sample,
    index_select,
    reshape,
    reshape_,
    roll,
    scatter,
    scatter_,
    scatter_nd,
    scatter_nd_add,
    shape,
    shard_index,
    slice,
    split,
    squeeze,
    squeeze_,
    stack,
    strided_slice,
    tanh_,
    tile,
    transpose,
    unbind,
    unsqueeze,
    unsqueeze_,
    unstack,
)
from .functions.math import (
    add,
    add_n,
    addmm,
    all,
    any,
    bmm,
    clip,
    cosh,
    cross,
    cumsum,
    dist,
    divide,
    dot,
    floor_divide,
    increment,
    isfinite,
    isinf,
    isnan,
    kron,
    log2,
    log10,
    logsumexp,
    matmul,
    max,
    maximum,
    mean,
    min,
    minimum,
    mm,
    mod,
    multiplex,
    multiply,
    mv,
    norm,
    numel,
    pow,
    prod,
    round,
    sinh,
    stanh,
    std,
    subtract,
    sum,
    t,
    tan,
    trace,
    var,
)
from .functions.random import bernoulli, normal, rand, randint, randn, randperm, uniform
from .functions.search import (
    allclose,
    argmax,
    argmin,
    argsort,
    equal,
    equal_all,
    greater_equal,
    greater_than,
    is_empty,
    less_equal,
    less_than,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    median,
    not_equal,
    sort,
    topk,
    where,
)
from .graph.layers.tensors import rank
from .graph.layers.unary import (
    abs,
    ceil,
    cos,
    exp,
    floor,
    log,
    reciprocal,
    rsqrt,
    scale,
    sign,
    sin,
    sqrt,
    square,
    tanh,
)
from .graph.program.variable import Variable as Variable

__all__ = [
    "abs", "add", "add_n", "addmm", "all", "allclose", "any", "arange", "argmax", "argmin", "argsort",
    "assign", "bernoulli", "bmm", "broadcast_to", "cast", "ceil", "chunk", "clip", "concat", "cos", "cosh",
    "cross", "cumsum", "diag", "dist", "divide", "dot", "empty", "empty_like", "equal", "equal_all", "exp",
    "expand", "expand_as", "eye", "flatten", "flip", "floor", "floor_divide", "full", "full_like", "gather",
    "gather_nd", "get_default_dtype", "get_device", "greater_equal", "greater_than", "increment",
    "index_sample", "index_select", "is_empty", "is_tensor", "isfinite", "isinf", "isnan", "kron",
    "less_equal", "less_than", "linspace", "log", "log2", "log10", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logsumexp", "matmul", "max", "maximum", "mean", "median", "meshgrid",
    "min", "minimum", "mm", "mod", "multiplex", "multiply", "mv", "no_grad", "norm", "normal", "not_equal",
    "numel", "ones", "ones_like", "pow", "prod", "rand", "randint", "randn", "randperm", "rank",
    "reciprocal", "reshape", "reshape_", "roll", "round", "rsqrt", "scale", "scatter", "scatter_",
    "scatter_nd", "scatter_nd_add", "seed", "set_default_dtype", "set_device", "shape", "shard_index",
    "sign", "sin", "sinh", "slice", "sort", "split", "sqrt", "square", "squeeze", "squeeze_", "stack",
    "stanh", "std", "strided_slice", "subtract", "sum", "t", "tan", "tanh", "tanh_", "tile", "to_tensor",
    "topk", "trace", "transpose", "tril", "triu", "unbind", "uniform", "unsqueeze", "unsqueeze_", "unstack",
    "var", "where", "zeros", "zeros_like",
]  # fmt: skip

_NO_METHODS = ("empty_like", "full_like", "ones_like", "scatter_nd", "shape", "zeros_like")


def _install() -> None:
    """Give Variable the functions whose first argument is one."""
    for name in set(__all__).difference(_NO_METHODS):
        function = globals()[name]
        first = next(iter(inspect.signature(function).parameters.values()), None)
        if first is not None and first.annotation == "Variable" and not hasattr(Variable, name):
            setattr(Variable, name, function)


_install()
