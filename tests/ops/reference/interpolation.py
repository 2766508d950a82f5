"""Interpolation, one element of the result at a time; positions are float32, as in Paddle."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


def taps(i: int, old: int, new: int, attrs: dict[str, Any]) -> list[tuple[int, float]]:
    """Return the positions along an axis that element ``i`` is made of, and their weights."""
    corners, method, one = attrs["align_corners"], attrs["interp_method"], np.float32
    ratio = one(0) if new == 1 else one((old - 1) / (new - 1)) if corners else one(old) / one(new)
    begin = ratio * one(i)
    middle = ratio * (one(i) + one(0.5)) - one(0.5)
    if method == "nearest":
        return [(min(int(begin + one(0.5 * corners)), old - 1), 1.0)]
    if method == "bicubic":
        place = begin if corners else middle
        low = int(np.floor(place))
        t, a = float(place - one(low)), -0.75
        inner = [(a + 2) * d**3 - (a + 3) * d**2 + 1 for d in (t, 1 - t)]
        outer = [a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a for d in (1 + t, 2 - t)]
        weights = [outer[0], inner[0], inner[1], outer[1]]
        return [(min(max(low + k - 1, 0), old - 1), w) for k, w in enumerate(weights)]
    place = max(middle, one(0)) if attrs["align_mode"] == 0 and not corners else begin
    low = min(int(place), old - 1)
    share = float(place - one(low))
    return [(low, 1 - share), (min(low + 1, old - 1), share)]


_METHODS = ("nearest", "bilinear", "trilinear", "bicubic")


@reference(*(f"{method}_interp_at" for method in _METHODS))
def interpolation_at(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    sizes = np.ravel([*ins.get("OutSize", []), *ins.get("SizeTensor", [])]).astype(int).tolist()
    named = zip([f"out_{d}" for d in "dhw"][-len(sizes) :], sizes, strict=True) if sizes else ()
    scale = float(ins["Scale"][0]) if "Scale" in ins else attrs["scale"]
    return interpolation(ins, {**attrs, **dict(named), "scale": scale})


@reference(*(f"{method}_interp" for method in _METHODS))
def interpolation(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = np.moveaxis(ins["X"], -1, 1) if attrs["data_layout"] == "NHWC" else ins["X"]
    sizes = [attrs[f"out_{d}"] for d in "dhw"][5 - x.ndim :]
    if min(sizes) <= 0:
        sizes = [int(n * attrs["scale"]) for n in x.shape[2:]]
    for axis, new in enumerate(sizes, 2):
        old = x.shape[axis]
        matrix = np.zeros((new, old))
        for i in range(new):
            for place, weight in taps(i, old, new, attrs):
                matrix[i, place] += weight
        x = np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)
    return {"Out": np.moveaxis(x, 1, -1) if attrs["data_layout"] == "NHWC" else x}
