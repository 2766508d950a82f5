"""Products of vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference

Arrays = dict[str, Any]


@reference("dot")
def dot(ins: Arrays, attrs: Arrays) -> Arrays:
    return {"Out": np.einsum("...i,...i->...", ins["X"], ins["Y"])[..., None]}


@reference("bmm")
def bmm(ins: Arrays, attrs: Arrays) -> Arrays:
    return {"Out": np.einsum("bij,bjk->bik", ins["X"], ins["Y"])}


@reference("addmm")
def addmm(ins: Arrays, attrs: Arrays) -> Arrays:
    return {"Out": attrs["Beta"] * ins["Input"] + attrs["Alpha"] * (ins["X"] @ ins["Y"])}


@reference("kron")
def kron(ins: Arrays, attrs: Arrays) -> Arrays:
    return {"Out": np.kron(ins["X"], ins["Y"])}


@reference("cross")
def cross(ins: Arrays, attrs: Arrays) -> Arrays:
    dim = ins["X"].shape.index(3) if attrs["dim"] == 9 else attrs["dim"]
    return {"Out": np.cross(ins["X"], ins["Y"], axis=dim)}


@reference("bilinear_tensor_product")
def bilinear_tensor_product(ins: Arrays, attrs: Arrays) -> Arrays:
    out = np.einsum("na,kab,nb->nk", ins["X"], ins["Weight"], ins["Y"])
    return {"Out": out + ins.get("Bias", 0)}


@reference("conv_shift")
def conv_shift(ins: Arrays, attrs: Arrays) -> Arrays:
    x, y = ins["X"], ins["Y"]
    half = y.shape[1] // 2
    return {"Out": sum(np.roll(x, half - k, 1) * y[:, k : k + 1] for k in range(y.shape[1]))}


@reference("fsp")
def fsp(ins: Arrays, attrs: Arrays) -> Arrays:
    return {"Out": np.einsum("nchw,nkhw->nck", ins["X"], ins["Y"]) / ins["X"][0, 0].size}
