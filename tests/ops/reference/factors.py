"""Determinants and factors of matrices, each by another way than the kernels'."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np

from .registry import reference

Arrays = dict[str, Any]


@reference("determinant")
def determinant(ins: Arrays, attrs: Arrays) -> Arrays:
    """Leibniz's sum over permutations."""
    x = ins["Input"]
    n = x.shape[-1]
    total = np.zeros(x.shape[:-2])
    for order in permutations(range(n)):
        sign = np.prod([np.sign(order[j] - order[i]) for j in range(n) for i in range(j)])
        total = total + sign * np.prod([x[..., i, j] for i, j in enumerate(order)], 0)
    return {"Out": total.reshape(x.shape[:-2] or (1,))}


@reference("slogdeterminant")
def slogdeterminant(ins: Arrays, attrs: Arrays) -> Arrays:
    value = determinant(ins, attrs)["Out"].reshape(ins["Input"].shape[:-2])
    return {"Out": np.stack([np.sign(value), np.log(np.abs(value))])}


@reference("svd")
def svd(ins: Arrays, attrs: Arrays) -> Arrays:
    """Roots of the eigenvalues of X X^T or X^T X."""
    x = ins["X"]
    wide = x.shape[-1] > x.shape[-2]
    product = x @ x.swapaxes(-1, -2) if wide else x.swapaxes(-1, -2) @ x
    return {"S": np.sqrt(np.linalg.eigvalsh(product)[..., ::-1])}


@reference("eigh")
def eigh(ins: Arrays, attrs: Arrays) -> Arrays:
    return {"Eigenvalues": np.sort(np.linalg.eigvals(ins["X"]).real)}


@reference("qr")
def qr(ins: Arrays, attrs: Arrays) -> Arrays:
    """Gram and Schmidt's columns, turned as Householder's reflections turn them."""
    x = ins["X"]
    k = min(x.shape[-2:])
    square = x[..., :k]
    upper = np.linalg.cholesky(square.swapaxes(-1, -2) @ square).swapaxes(-1, -2)
    q = square @ np.linalg.inv(upper)
    turns = np.sign(np.diagonal(np.linalg.qr(x)[1], axis1=-2, axis2=-1))[..., None, :]
    q = q * turns
    return {"Q": q, "R": q.swapaxes(-1, -2) @ x}
