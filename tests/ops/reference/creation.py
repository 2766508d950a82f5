"""Constants, conversion, order."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import REFERENCE, reference, unary


def _hot(x: np.ndarray, depth: int) -> np.ndarray:
    return (x[..., None] == np.arange(depth)).astype(float)


unary("fill_zeros_like", lambda x, a: np.zeros_like(x))
unary("fill_any_like", lambda x, a: np.full_like(x, a["value"]))
unary("assign", lambda x, a: x)
unary("increment", lambda x, a: x + a["step"])

unary("one_hot", lambda x, a: _hot(x[..., 0] if x.ndim > 1 else x, a["depth"]))
unary("one_hot_v2", lambda x, a: _hot(x, a["depth"]))
unary("cast", lambda x, a: np.trunc(x) if a["out_dtype"] == 3 else x)

REFERENCE["shape"] = lambda ins, attrs: {"Out": np.array(ins["Input"].shape)}


@reference("fill_constant")
def fill_constant(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": np.full(attrs["shape"], attrs["value"])}


@reference("fill_constant_at")
def fill_constant_at(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    sizes = ins.get("ShapeTensorList", [ins["ShapeTensor"]] if "ShapeTensor" in ins else [])
    shape = [int(n) for tensor in sizes for n in np.ravel(tensor)] or attrs["shape"]
    return {"Out": np.full(shape, ins["ValueTensor"] if "ValueTensor" in ins else attrs["value"])}


@reference("sample_share")
def sample_share(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": np.ones(attrs["shape"])}


@reference("assign_value")
def assign_value(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": np.reshape(attrs["fp32_values"] or attrs["int64_values"], attrs["shape"])}


@reference("fill_constant_batch_size_like")
def fill_batch(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    count = len(ins["Input@LOD"][-1]) - 1 if "Input@LOD" in ins else len(ins["Input"])
    return {"Out": np.full([count, *attrs["shape"][1:]], attrs["value"])}


@reference("top_k")
def top_k(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    order = np.argsort(-ins["X"], axis=-1, kind="stable")[..., : attrs["k"]]
    return {"Out": np.take_along_axis(ins["X"], order, -1), "Indices": order}


REFERENCE["top_k_at"] = lambda ins, attrs: top_k(ins, {"k": int(ins["K"][0])})


REFERENCE["arg_max"] = lambda ins, attrs: {
    "Out": np.argmax(ins["X"], attrs["axis"], keepdims=attrs["keepdims"])
}
REFERENCE["arg_min"] = lambda ins, attrs: {
    "Out": np.argmin(ins["X"], attrs["axis"], keepdims=attrs["keepdims"])
}
