"""Norms of vectors, distances, and vectors of length 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference

Arrays = dict[str, Any]


@reference("norm")
def norm(ins: Arrays, attrs: Arrays) -> Arrays:
    size = np.sqrt((ins["X"] ** 2).sum(attrs["axis"], keepdims=True) + attrs["epsilon"])
    return {"Out": ins["X"] / size, "Norm": size}


@reference("cos_sim")
def cos_sim(ins: Arrays, attrs: Arrays) -> Arrays:
    x, y = (ins[slot].reshape(len(ins[slot]), -1) for slot in "XY")
    sizes = [np.sqrt(np.maximum((v**2).sum(1, keepdims=True), 1e-8)) for v in (x, y)]
    out = (x * y).sum(1, keepdims=True) / (sizes[0] * sizes[1])
    return {"Out": out, "XNorm": sizes[0], "YNorm": sizes[1]}


@reference("p_norm")
def p_norm(ins: Arrays, attrs: Arrays) -> Arrays:
    out = np.linalg.norm(ins["X"], attrs["porder"], attrs["axis"], attrs["keepdim"])
    return {"Out": np.atleast_1d(out)}


@reference("frobenius_norm")
def frobenius_norm(ins: Arrays, attrs: Arrays) -> Arrays:
    axes = None if attrs["reduce_all"] else tuple(attrs["dim"])
    return {"Out": np.atleast_1d(np.sqrt((ins["X"] ** 2).sum(axes, keepdims=attrs["keep_dim"])))}


@reference("l1_norm")
def l1_norm(ins: Arrays, attrs: Arrays) -> Arrays:
    return {"Out": np.abs(ins["X"]).sum().reshape(1)}


@reference("dist")
def dist(ins: Arrays, attrs: Arrays) -> Arrays:
    return {"Out": np.linalg.norm((ins["X"] - ins["Y"]).ravel(), attrs["p"]).reshape(1)}


@reference("squared_l2_distance")
def squared_l2_distance(ins: Arrays, attrs: Arrays) -> Arrays:
    difference = (ins["X"] - ins["Y"]).reshape(len(ins["X"]), -1)
    return {"Out": (difference**2).sum(1, keepdims=True), "sub_result": difference}
