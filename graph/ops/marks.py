"""Ops that mark where images are alike, and that take counts of impressions and clicks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from . import formula as f
from .operands import Input, Operands, Output, Unary, named
from .registry import Op, define
from .samples import sample
from .shapes import Sized


class SimilarityFocus(Unary):
    axis: Literal[1, 2, 3]
    indexes: Sequence[int]


def similarity_focus(a: SimilarityFocus) -> f.Results:
    """1 where a matrix is largest, then where the rows and columns left are, and so on; of any index."""
    rest = [d for d in (1, 2, 3) if d != a.axis]
    rows, columns = (a.x.shape[d] for d in rest)
    x = a.x.transpose([0, a.axis, *rest])
    number = f.table(np.arange(rows * columns), np.int64)
    lines = [f.table(line, np.int64) for line in np.divmod(np.arange(rows * columns), columns)]
    least, focus = -float(np.finfo(a.x.dtype).max), None
    for index in sorted(set(a.indexes)):
        matrix, covered = x[:, index].reshape(-1, rows * columns), None
        for _ in range(min(rows, columns)):
            left = matrix if covered is None else f.where(covered, least, matrix)
            place = left.argmax(1).reshape(-1, 1)
            here = f.equal(number, place)
            focus = here if focus is None else focus | here
            for line in lines:
                crossed = f.equal(line, f.take(line, place.reshape(-1)).reshape(-1, 1))
                covered = crossed if covered is None else covered | crossed
    assert focus is not None
    one = f.where(focus, 1, 0).astype(a.x.dtype).reshape(-1, 1, rows, columns)
    out = f.broadcast(one, (a.x.shape[0], a.x.shape[a.axis], rows, columns))
    order = [0, a.axis, *rest]
    return {"out": out.transpose([order.index(d) for d in range(4)])}


define(
    "similarity_focus",
    SimilarityFocus,
    Sized(
        "X [N A B C] -> Out",
        "indexes and every(0 <= i < X[axis] for i in indexes); indexes must lie in X's axis",
    ),
    formula=similarity_focus,
    samples=(
        sample("X [2 3 4 3]", axis=1, indexes=[0]),
        sample("X [2 3 2 4]", axis=3, indexes=[2, 0]),
    ),
)


class Cvm(Operands):
    x: Input
    cvm: Input = named("CVM")
    y: Output
    use_cvm: bool = True


class CvmGrad(Cvm, reads="*"):
    d_y: Input
    d_x: Output


def cvm(a: Cvm) -> f.Results:
    """The logarithms of 1 + impressions and of the share of clicks, and the other columns; or these alone."""
    if not a.use_cvm:
        return {"y": a.x[:, 2:]}
    shows = f.log1p(a.x[:, :1])
    return {"y": f.concatenate([shows, f.log1p(a.x[:, 1:2]) - shows, a.x[:, 2:]], 1)}


def cvm_grad(a: CvmGrad) -> f.Results:
    """In place of a gradient the first two columns get the counts: tables of embeddings add them up."""
    return {"d_x": f.concatenate([a.cvm, a.d_y[:, 2:] if a.use_cvm else a.d_y], 1)}


_COUNTED = "X uniform [3 5], CVM uniform [3 2]"

define(
    "cvm",
    Cvm,
    Sized(
        "X floats [N D], CVM [N 2] -> Y [N width]",
        "D > 2; X must have more than 2 columns",
        "width = D if use_cvm else D - 2",
    ),
    formula=cvm,
    samples=(sample(_COUNTED), sample(_COUNTED, use_cvm=False)),
    slope=Op("cvm_grad", CvmGrad, formula=cvm_grad, shapes_of=("X",)),
)
