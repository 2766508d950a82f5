"""Products of vectors and matrices, distances, and positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidValue, require_type
from ..program.variable import Variable
from .arguments import Floats, Integers
from .helper import LayerHelper, layer
from .norms import known_channels
from .shape import reduce_max, reduce_sum
from .unary import exp, log


def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The sum of products of vectors [N], as [1]; of rows [B, N], as [B, 1]."""
    return layer("dot", x=x, y=y)


def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Products of matrices, [B, M, K] by [B, K, N], one by one."""
    return layer("bmm", x=x, y=y)


def addmm(
    input: Floats,
    x: Floats,
    y: Floats,
    alpha: float = 1.0,
    beta: float = 1.0,
    name: str | None = None,
) -> Variable:
    """alpha x @ y + beta input, of matrices; ``input`` is broadcast."""
    factors = {"Alpha": alpha, "Beta": beta}
    return layer("addmm", name, input=input, x=x, y=y, **factors)


def cross(input: Variable, other: Variable, dim: int | None = None) -> Variable:
    """The vector product along ``dim``; None is the first dimension of 3 elements."""
    return layer("cross", x=input, y=other, dim=dim)


def dist(x: Floats, y: Floats, p: float = 2) -> Variable:
    """The p-norm of x - y, as [1]; p may be 0 or infinite."""
    require_type(p, int | float, "dist: p must be a number")
    return layer("dist", x=x, y=y, p=p)


def kron(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Every element of x times all of y, block by block; ``out`` is the variable to write."""
    return layer("kron", x=x, y=y, out=out)


def bilinear_tensor_product(
    x: Floats,
    y: Floats,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
) -> Variable:
    """x W_k y + b_k for each of ``size`` matrices W_k; no b where ``bias_attr`` is False."""
    helper = LayerHelper("bilinear_tensor_product", name)
    widths = [known_channels(v, 1, "bilinear_tensor_product") for v in (x, y)]
    weight = helper.create_parameter(param_attr, [size, *widths], x.dtype)
    bias = helper.create_parameter(bias_attr, [1, size], x.dtype, is_bias=True)
    out = helper.layer("bilinear_tensor_product", x=x, y=y, weight=weight, bias=bias)
    return helper.activate(out, act)


def fsp_matrix(x: Floats, y: Floats) -> Variable:
    """Products of the channels of two images, averaged over the pixels: [N, C, K]."""
    return LayerHelper("fsp_matrix").layer("fsp", x=x, y=y)


def logsumexp(
    x: Floats,
    dim: Any = None,
    keepdim: bool = False,
    out: Floats | None = None,
    name: str | None = None,
) -> Variable:
    """log of the sum of exp(x) over ``dim`` (None: all); ``out`` is the variable to write."""
    largest = reduce_max(x, dim, True)
    largest.stop_gradient = True
    shifted = log(reduce_sum(exp(x - largest), dim, True)) + largest
    total = shifted if keepdim else reduce_sum(shifted, dim, False)
    if out is None:
        return total
    LayerHelper("logsumexp", name).layers("assign", "", x=total, out=out)
    return out


def add_position_encoding(
    input: Floats, alpha: float, beta: float, name: str | None = None
) -> Variable:
    """alpha input + beta (sines and cosines of the position), of [N, length, width]."""
    return layer("add_position_encoding", name, x=input, alpha=alpha, beta=beta)


def rank_attention(
    input: Floats,
    rank_offset: Integers,
    rank_param_shape: Sequence[int],
    rank_param_attr: Any,
    max_rank: int = 3,
) -> Variable:
    """Return the sum of rows of ``input``, each times a matrix that two ranks choose: [N, C].

    As in Paddle, no gradient reaches ``input``. Rows are those of a place's part of a batch.

    Args:
        input: [N, D], floats.
        rank_offset: integers [N, 1 + 2 max_rank]: a row's rank, then of each that it looks at the rank and the
            row in ``input``; ranks count from 1, and 0 is none.
        rank_param_shape: [max_rank * max_rank * D, C]: matrices [D, C] by the row's rank, then the other's.

    Raises:
        InvalidType, InvalidValue: an argument does not fit.
    """
    shape = list(rank_param_shape)
    width = known_channels(input, 1, "rank_attention")
    if len(shape) != 2 or shape[0] != max_rank * max_rank * width:
        raise InvalidValue(
            f"rank_attention: rank_param_shape must be [max_rank * max_rank * D, C] = "
            f"[{max_rank * max_rank * width}, C], got {shape}."
        )
    helper = LayerHelper("rank_attention")
    param = helper.create_parameter(rank_param_attr, shape, input.dtype)
    if param is None:
        raise InvalidValue("rank_attention: rank_param_attr cannot be False: it needs matrices.")
    fields = {"x": input, "rank_offset": rank_offset, "rank_param": param}
    return helper.layer("rank_attention", **fields, MaxRank=max_rank)
