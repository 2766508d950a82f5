"""``paddle.linalg``: norms, products, inverses and what follows from them, of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal

import numpy as np

from .functions import math as functions
from .functions.creation import eye, ones_like, tril, triu, zeros_like
from .functions.manipulation import transpose
from .functions.math import cholesky as cholesky
from .functions.math import cross as cross
from .functions.math import matmul as matmul
from .functions.math import norm as norm
from .functions.search import where
from .graph.layers import shape as layers
from .graph.layers import unary
from .graph.layers.arguments import Floats, axis_of, check_float
from .graph.layers.helper import LayerHelper
from .graph.layers.matrices import diagonal as diagonal
from .graph.program.variable import Variable
from .names import publish_definitions
from .strategies.errors import InvalidValue, Unsupported
from .strategies.types import to_numpy

Axis = int | Sequence[int] | None
inv = functions.inverse
_EXTREMES = (layers.reduce_max, layers.reduce_min)


def _matrices(x: Any, argument: str, layer: str, square: bool = False) -> tuple[int, ...]:
    check_float(x, argument, layer)
    shape = tuple(x.shape or ())
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise InvalidValue(f"{layer}: {argument} must be {kind} [..., N, M], got {list(shape)}.")
    return shape


def matrix_transpose(x: Variable, name: str | None = None) -> Variable:
    """x with its last two dimensions exchanged."""
    rank = len(_matrices(x, "x", "matrix_transpose"))
    return transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def vecdot(x: Variable, y: Variable, axis: int = -1, name: str | None = None) -> Variable:
    """The sum of x * y along ``axis``."""
    return functions.sum(x * y, axis)


def vector_norm(
    x: Variable, p: float = 2.0, axis: Axis = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """The p-norm over ``axis`` (all dimensions unless told), as of one vector."""
    return norm(x, p, axis, keepdim, name)


def matrix_norm(
    x: Floats,
    p: Any = "fro",
    axis: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    name: str | None = None,
) -> Variable:
    """A norm of matrices: "fro"; 1 (-1), the largest (least) sum of a column; inf (-inf), of a row; 2 (-2), the
    largest (least) singular value; "nuc", the sum of these.

    Raises:
        InvalidValue: another ``p``.
    """
    if p == "fro":
        return norm(x, p, list(axis), keepdim, name)
    if p not in ("nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise InvalidValue(f"matrix_norm: p is 'fro', 'nuc', 1, 2, inf or one below 0, got {p!r}.")
    row, column = (axis_of(x, a, "matrix_norm") for a in axis)
    if p in ("nuc", 2, -2):
        rest_of = [a for a in range(x.ndim) if a not in (row, column)]
        values = svdvals(transpose(x, [*rest_of, row, column]))
        reduced = {"nuc": layers.reduce_sum, 2: layers.reduce_max, -2: layers.reduce_min}[p]
        out = reduced(values, dim=[values.ndim - 1])
        return layers.unsqueeze(out, sorted((row, column))) if keepdim else out
    summed, rest = (row, column) if abs(p) == 1 else (column, row)
    sums = layers.reduce_sum(unary.abs(x), dim=[summed], keep_dim=True)
    reduced = layers.reduce_max if p > 0 else layers.reduce_min
    out = reduced(sums, dim=[rest], keep_dim=True)
    return out if keepdim else layers.squeeze(out, [row, column])


def cond(x: Variable, p: Any = None, name: str | None = None) -> Variable:
    """The norm of matrices times that of their inverses; ``p`` as in :func:`matrix_norm`, None for 2."""
    kind = 2 if p is None else p
    _matrices(x, "x", "cond", square=kind not in (2, -2))
    if kind in (2, -2):
        values = svdvals(x)
        ends = [reduced(values, dim=[values.ndim - 1]) for reduced in _EXTREMES]
        return ends[0] / ends[1] if kind == 2 else ends[1] / ends[0]
    return matrix_norm(x, kind) * matrix_norm(inv(x), kind)


def det(x: Variable, name: str | None = None) -> Variable:
    """Determinants of square matrices [..., N, N]; the gradient needs their inverses."""
    _matrices(x, "x", "det", square=True)
    return LayerHelper("det", name).layer("determinant", input=x)


def slogdet(x: Variable, name: str | None = None) -> Variable:
    """Signs and logarithms of the sizes of determinants, [2, ...]."""
    _matrices(x, "x", "slogdet", square=True)
    return LayerHelper("slogdet", name).layer("slogdeterminant", input=x)


def svd(
    x: Variable, full_matrices: bool = False, name: str | None = None
) -> tuple[Variable, Variable, Variable]:
    """U, S and V^T of which x is U diag(S) V^T; S [..., K] falls, K is the smaller of M and N.

    U is [..., M, K] and V^T [..., K, N]; with ``full_matrices`` they are square.
    """
    _matrices(x, "x", "svd")
    u, s, vh = LayerHelper("svd").layers("svd", "U S VH", x=x, full_matrices=bool(full_matrices))
    return u, s, vh


def svdvals(x: Variable, name: str | None = None) -> Variable:
    """Singular values of matrices, the largest first: [..., K]."""
    return svd(x)[1]


def qr(
    x: Variable, mode: Literal["reduced", "complete", "r"] = "reduced", name: str | None = None
) -> Any:
    """Q [..., M, K] and R [..., K, N], x = Q R, with R a triangle; K is M in mode "complete". "r": R alone.

    Raises:
        InvalidValue: another mode.
    """
    _matrices(x, "x", "qr")
    kind = "complete" if mode == "complete" else "reduced"
    q, r = LayerHelper("qr").layers("qr", "Q R", x=x, mode=kind)
    return r if mode == "r" else (q, r)


def eigh(x: Variable, UPLO: str = "L", name: str | None = None) -> tuple[Variable, Variable]:
    """Eigenvalues, rising, and eigenvectors, as columns, of symmetric matrices.

    The lower triangle is read, or the upper one where ``UPLO`` is "U": it alone gets a gradient.

    Raises:
        InvalidValue: ``UPLO`` is neither.
    """
    _matrices(x, "x", "eigh", square=True)
    if UPLO not in ("L", "U"):
        raise InvalidValue(f"eigh: UPLO is 'L' or 'U', got {UPLO!r}.")
    values, vectors = LayerHelper("eigh").layers("eigh", "Eigenvalues Eigenvectors", x=x, UPLO=UPLO)
    return values, vectors


def eigvalsh(x: Variable, UPLO: str = "L", name: str | None = None) -> Variable:
    """Eigenvalues of symmetric matrices, rising: see :func:`eigh`."""
    return eigh(x, UPLO)[0]


def _largest(sizes: Variable) -> Variable:
    return layers.reduce_max(sizes, dim=[sizes.ndim - 1], keep_dim=True)


def pinv(
    x: Variable, rcond: Any = 1e-15, hermitian: bool = False, name: str | None = None
) -> Variable:
    """Pseudoinverses [..., N, M]: singular values up to ``rcond`` times the largest count as 0.

    With ``hermitian`` matrices are symmetric, and eigenvalues stand for singular ones.
    """
    _matrices(x, "x", "pinv", square=hermitian)
    if hermitian:
        values, right = eigh(x)
        left = right
    else:
        left, values, adjoint = svd(x)
        right = matrix_transpose(adjoint)
    sizes = unary.abs(values)
    large = sizes > _largest(sizes) * rcond
    over = where(large, 1.0 / where(large, values, ones_like(values)), zeros_like(values))
    return matmul(right * layers.unsqueeze(over, [over.ndim - 1]), left, transpose_y=True)


def matrix_rank(
    x: Variable,
    tol: Any = None,
    hermitian: bool = False,
    atol: Any = None,
    rtol: Any = None,
    name: str | None = None,
) -> Variable:
    """The number of singular values above ``tol``, int64: by default the largest times max(M, N) times epsilon.

    Or above the larger of ``atol`` and ``rtol`` times the largest. With ``hermitian`` sizes of eigenvalues
    stand for singular values.
    """
    shape = _matrices(x, "x", "matrix_rank", square=hermitian)
    sizes = unary.abs(eigvalsh(x)) if hermitian else svdvals(x)
    assert x.dtype is not None
    if tol is None and rtol is None and atol is None:
        rtol = max(shape[-2:]) * float(np.finfo(to_numpy(x.dtype)).eps)
    least = zeros_like(_largest(sizes)) + (
        tol if tol is not None else 0.0 if atol is None else atol
    )
    if rtol is not None and tol is None:
        least = functions.maximum(least, _largest(sizes) * rtol)
    count = layers.reduce_sum(layers.cast(sizes > least, "int64"), dim=[sizes.ndim - 1])
    count.stop_gradient = True
    return count


def matrix_power(x: Variable, n: int, name: str | None = None) -> Variable:
    """The product of ``n`` times x; of its inverse, where ``n`` is below 0."""
    shape = _matrices(x, "x", "matrix_power", square=True)
    power = abs(n)
    if not power:
        return x * 0.0 + eye(shape[-1], dtype=x.dtype)
    square: Variable = inv(x) if n < 0 else x
    product: Variable | None = None
    while power:
        if power % 2:
            product = square if product is None else matmul(product, square)
        power //= 2
        square = matmul(square, square) if power else square
    assert product is not None
    return product


def multi_dot(x: Sequence[Variable], name: str | None = None) -> Variable:
    """The product of two matrices or more, from left to right; the first and the last may be vectors."""
    if not isinstance(x, (list, tuple)) or len(x) < 2:
        raise InvalidValue(f"multi_dot takes a list of two matrices or more, got {x!r}.")
    product: Variable = reduce(matmul, x)
    return product


def solve(x: Variable, y: Floats, left: bool = True, name: str | None = None) -> Variable:
    """The solution of x z = y (``left``), else of z x = y; y may be vectors."""
    shape = _matrices(x, "x", "solve", square=True)
    vectors = y.ndim == 1 or y.ndim == len(shape) - 1
    y = layers.unsqueeze(y, [y.ndim if left else y.ndim - 1]) if vectors else y
    out = matmul(inv(x), y) if left else matmul(y, inv(x))
    return layers.squeeze(out, [out.ndim - 1 if left else out.ndim - 2]) if vectors else out


def cholesky_solve(
    x: Variable, y: Variable, upper: bool = False, name: str | None = None
) -> Variable:
    """A^-1 x, where y is the triangle of A: A = y y^T, or y^T y with ``upper``."""
    _matrices(x, "x", "cholesky_solve")
    _matrices(y, "y", "cholesky_solve", square=True)
    inverse = inv(y)
    other = matrix_transpose(inverse)
    pair = (inverse, other) if upper else (other, inverse)
    return matmul(pair[0], matmul(pair[1], x))


def cholesky_inverse(x: Variable, upper: bool = False, name: str | None = None) -> Variable:
    """A^-1, where x is the triangle of A: A = x x^T, or x^T x with ``upper``."""
    _matrices(x, "x", "cholesky_inverse", square=True)
    inverse = inv(x)
    other = matrix_transpose(inverse)
    return matmul(inverse, other) if upper else matmul(other, inverse)


def triangular_solve(
    x: Variable,
    y: Variable,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    name: str | None = None,
) -> Variable:
    """x^-1 y, where only a triangle of x counts, and its diagonal unless ``unitriangular``."""
    shape = _matrices(x, "x", "triangular_solve", square=True)
    _matrices(y, "y", "triangular_solve")
    edge = 1 if unitriangular else 0
    side = triu(x, edge) if upper else tril(x, -edge)
    side = side + eye(shape[-1], dtype=x.dtype) if unitriangular else side
    return matmul(inv(matrix_transpose(side) if transpose else side), y)


def cov(
    x: Floats,
    rowvar: bool = True,
    ddof: bool = True,
    fweights: Variable | None = None,
    aweights: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Covariances of the rows of x (columns unless ``rowvar``); divided by N - 1 with ``ddof``.

    Raises:
        Unsupported: there are weights.
    """
    if fweights is not None or aweights is not None:
        raise Unsupported("cov: weights are not built: repeat or scale the observations.")
    if x.ndim not in (1, 2):
        raise InvalidValue(f"cov: x must be a vector or a matrix, got {x!r}.")
    alone = x.ndim == 1
    x = layers.reshape(x, [1, -1]) if alone else x if rowvar else matrix_transpose(x)
    count = (x.shape or (0, -1))[1]
    if count < 0:
        raise InvalidValue(f"cov: how many observations {x.name!r} has must be known.")
    centred = x - functions.mean(x, 1, keepdim=True)
    out = matmul(centred, centred, transpose_y=True) * (1.0 / max(count - bool(ddof), 1))
    return layers.reshape(out, [1]) if alone else out


def corrcoef(x: Variable, rowvar: bool = True, name: str | None = None) -> Variable:
    """Correlations of the rows of x (columns unless ``rowvar``)."""
    both = cov(x, rowvar)
    if both.ndim < 2:
        return both / both
    deviation = unary.sqrt(diagonal(both))
    return both / layers.unsqueeze(deviation, [1]) / deviation


publish_definitions(__name__, "cholesky cross diagonal inv matmul norm")
