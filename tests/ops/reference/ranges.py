"""Numbers in a row, grids, and comparisons of whole tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import REFERENCE, reference

REFERENCE["fill"] = lambda ins, attrs: {"Out": np.reshape(attrs["value"], attrs["shape"])}
REFERENCE["fill_zeros_like2"] = lambda ins, attrs: {"Out": np.zeros(ins["X"].shape)}
REFERENCE["size"] = lambda ins, attrs: {"Out": [ins["Input"].size]}
REFERENCE["condition"] = lambda ins, attrs: {"Out": np.reshape(ins["X"], [1])}
REFERENCE["is_empty"] = lambda ins, attrs: {"Out": [ins["X"].size == 0]}
REFERENCE["range"] = lambda ins, attrs: {
    "Out": np.arange(attrs["start"], attrs["end"], attrs["step"])
}
REFERENCE["range_at"] = lambda ins, attrs: {
    "Out": np.arange(*(int(np.ravel(ins[slot])[0]) for slot in ("Start", "End", "Step")))
}
REFERENCE["linspace"] = lambda ins, attrs: {
    "Out": np.linspace(ins["Start"][0], ins["Stop"][0], attrs["num"])
}
REFERENCE["meshgrid"] = lambda ins, attrs: {"Out": np.meshgrid(*ins["X"], indexing="ij")}


@reference("expand_as")
def expand_as(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, target = ins["X"], ins["target_tensor"]
    return {"Out": np.tile(x, [n // m for m, n in zip(x.shape, target.shape, strict=True)])}


@reference("allclose")
def allclose(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    a, b = ins["Input"], ins["Other"]
    return {"Out": [np.allclose(a, b, attrs["rtol"], attrs["atol"], attrs["equal_nan"])]}


REFERENCE["equal_reduce"] = lambda ins, attrs: {"Out": [np.array_equal(ins["X"], ins["Y"])]}
