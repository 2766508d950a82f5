"""Determinants, eigenvalues, singular values and triangular factors of matrices.

Libraries find them; the gradients are formulas. Legend: M rows, N columns, K the smaller of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import formula as f
from .operands import Array, Input, Operands, Output, named
from .registry import Op, define
from .samples import sample
from .shapes import Sized


class Determinant(Operands):
    input: Input
    out: Output


class DeterminantGrad(Determinant, reads="input out"):
    d_out: Input
    d_input: Output


def _spread(x: Array, like: Array) -> Array:
    """Return one number for each matrix beside the matrices."""
    return x.reshape(*like.shape[:-2], 1, 1)


def _of_determinant(a: DeterminantGrad) -> f.Results:
    """d det(A) = det(A) tr(A^-1 dA)."""
    factor = _spread(a.d_out * a.out, a.input)
    return {"d_input": factor * f.turned(f.inverse(a.input))}


def _of_log_determinant(a: DeterminantGrad) -> f.Results:
    """d log |det(A)| = tr(A^-1 dA); the sign is flat."""
    return {"d_input": _spread(a.d_out[1], a.input) * f.turned(f.inverse(a.input))}


for _name, _shape, _formula in (
    (
        "determinant",
        Sized("Input [*lead N N] -> Out [*numbers]", "numbers = lead or (1,)"),
        _of_determinant,
    ),
    ("slogdeterminant", Sized("Input [... N N] -> Out [2 ...]"), _of_log_determinant),
):
    define(
        _name,
        Determinant,
        _shape,
        samples=(sample("Input [3 3]"), sample("Input definite [2 2 2]")),
        refuses=(sample("Input [3 2]"), sample("Input [3]")),
        slope=Op(f"{_name}_grad", DeterminantGrad, formula=_formula),
    )


class Svd(Operands):
    x: Input
    u: Output
    s: Output
    vh: Output = named("VH")
    full_matrices: bool = False


class SvdGrad(Svd, reads="x u s vh"):
    d_u: Input | None
    d_s: Input | None
    d_vh: Input | None = named("VH@GRAD")
    d_x: Output


def _unit(size: int, like: Array) -> Array:
    return f.table(np.eye(size), like.dtype)


def _skew_over(m: Array, differences: Array) -> Array:
    return (m - f.turned(m)) / differences


def svd_slope(a: SvdGrad) -> f.Results:
    """The gradient of singular vectors and values; vectors of equal values have none.

    Giles, An extended collection of matrix derivative results (2008), section 3.5.
    """
    k = a.s.shape[-1]
    u, vh = a.u[..., :k], a.vh[..., :k, :]
    s_row, s_column = a.s[..., None, :], a.s[..., :, None]
    unit = _unit(k, a.s)
    apart = s_row * s_row - s_column * s_column + unit
    inner: Any = unit * 0.0
    if a.d_s is not None:
        inner = inner + a.d_s[..., None] * unit
    d_u = None if a.d_u is None else a.d_u[..., :k]
    d_vh = None if a.d_vh is None else a.d_vh[..., :k, :]
    if d_u is not None:
        inner = inner + _skew_over(f.turned(u) @ d_u, apart) * s_row
    if d_vh is not None:
        inner = inner + s_column * _skew_over(vh @ f.turned(d_vh), apart)
    slope = u @ inner @ vh
    if d_u is not None and u.shape[-2] > k:
        outside = d_u - u @ (f.turned(u) @ d_u)
        slope = slope + outside / s_row @ vh
    if d_vh is not None and vh.shape[-1] > k:
        outside = d_vh - (d_vh @ f.turned(vh)) @ vh
        slope = slope + u @ (outside / s_column)
    return {"d_x": slope}


define(
    "svd",
    Svd,
    Sized(
        "X [... rows columns] -> U [... rows left], S [... both], VH [... right columns]",
        "both = min(rows, columns)",
        "left, right = (rows, columns) if full_matrices else (both, both)",
    ),
    samples=(sample("X [3 3]"), sample("X [2 4 3]"), sample("X [2 3]")),
    slope=Op("svd_grad", SvdGrad, formula=svd_slope, shapes_of=("X",)),
)


class Eigh(Operands):
    x: Input
    eigenvalues: Output
    eigenvectors: Output
    UPLO: str = "L"


class EighGrad(Eigh, reads="eigenvalues eigenvectors"):
    d_eigenvalues: Input | None
    d_eigenvectors: Input | None
    d_x: Output


def eigh_slope(a: EighGrad) -> f.Results:
    """The gradient of the triangle that is read; vectors of equal values have none. Giles, section 3.1."""
    w, v = a.eigenvalues, a.eigenvectors
    unit = _unit(w.shape[-1], w)
    inner: Any = unit * 0.0
    if a.d_eigenvalues is not None:
        inner = inner + a.d_eigenvalues[..., None] * unit
    if a.d_eigenvectors is not None:
        apart = w[..., None, :] - w[..., :, None] + unit
        inner = inner + (f.turned(v) @ a.d_eigenvectors) / apart * (1.0 - unit)
    slope = v @ inner @ f.turned(v)
    ones = np.ones((w.shape[-1],) * 2)
    side = np.tril(ones, -1) if a.UPLO == "L" else np.triu(ones, 1)
    return {"d_x": slope * unit + (slope + f.turned(slope)) * f.table(side, w.dtype)}


define(
    "eigh",
    Eigh,
    Sized("X [... N N] -> Eigenvalues [... N], Eigenvectors as X"),
    samples=(sample("X definite [3 3]"), sample("X definite [2 3 3]", UPLO="U")),
    slope=Op(
        "eigh_grad", EighGrad, lambda op: {"X@GRAD": op.spec("Eigenvectors")}, formula=eigh_slope
    ),
)


class Qr(Operands):
    x: Input
    q: Output
    r: Output
    mode: str = "reduced"


class QrGrad(Qr, reads="x q r"):
    d_q: Input | None
    d_r: Input | None
    d_x: Output


def qr_slope(a: QrGrad) -> f.Results:
    """The gradient of Q and R, where Q has no more columns than X. Walter and Lehmann, arXiv 1001.1654."""
    k = a.q.shape[-1]
    triangle, rest = a.r[..., :k], a.x[..., k:]
    d_q: Any = a.q * 0.0 if a.d_q is None else a.d_q
    d_triangle: Any = triangle * 0.0 if a.d_r is None else a.d_r[..., :k]
    d_rest: Any = None
    if rest.shape[-1] and a.d_r is not None:
        d_rest = a.d_r[..., k:]
        d_q = d_q + rest @ f.turned(d_rest)
    inner = triangle @ f.turned(d_triangle) - f.turned(d_q) @ a.q
    below = inner * f.table(np.tril(np.ones((k, k)), -1), a.q.dtype)
    both = below + f.turned(below) + inner * _unit(k, a.q)
    slope = (d_q + a.q @ both) @ f.turned(f.inverse(triangle))
    if not rest.shape[-1]:
        return {"d_x": slope}
    d_rest = rest * 0.0 if d_rest is None else a.q @ d_rest
    return {"d_x": f.concatenate([slope, d_rest], -1)}


define(
    "qr",
    Qr,
    Sized(
        "X [... rows columns] -> Q [... rows inner], R [... inner columns]",
        "inner = rows if mode == 'complete' else min(rows, columns)",
    ),
    samples=(sample("X [3 3]"), sample("X [2 4 3]"), sample("X [2 4]")),
    slope=Op("qr_grad", QrGrad, formula=qr_slope),
)
