"""Elements moved, cut, joined and picked."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from .registry import REFERENCE, reference, unary

unary("expand", lambda x, a: np.tile(x, a["expand_times"]))

REFERENCE["concat"] = lambda ins, attrs: {"Out": np.concatenate(ins["X"], attrs["axis"])}
REFERENCE["stack"] = lambda ins, attrs: {"Y": np.stack(ins["X"], attrs["axis"])}
REFERENCE["gather"] = lambda ins, attrs: {"Out": ins["X"][ins["Index"]]}
REFERENCE["where"] = lambda ins, attrs: {"Out": np.where(ins["Condition"], ins["X"], ins["Y"])}

REFERENCE["unstack"] = lambda ins, attrs: {
    "Y": [np.take(ins["X"], i, attrs["axis"]) for i in range(attrs["num"])]
}
unary("transpose", lambda x, a: np.transpose(x, a["axis"]))
unary("transpose2", lambda x, a: np.transpose(x, a["axis"]))


@reference("reshape", "reshape2")
def reshape2(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    sizes = [ins["X"].shape[i] if size == 0 else size for i, size in enumerate(attrs["shape"])]
    return {"Out": ins["X"].reshape(sizes)}


def read_sizes(ins: dict[str, Any], whole: str, each: str) -> list[int]:
    """Return the elements of one tensor, or of each of several."""
    return [int(n) for tensor in ins.get(each, [ins.get(whole)]) for n in np.ravel(tensor)]


@reference("expand_at")
def expand_at(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": np.tile(ins["X"], read_sizes(ins, "ExpandTimes", "expand_times_tensor"))}


@reference("reshape_at")
def reshape_at(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return reshape2(ins, {"shape": read_sizes(ins, "Shape", "ShapeTensor")})


@reference("squeeze", "squeeze2")
def squeeze2(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": np.squeeze(ins["X"], tuple(attrs["axes"]) or None)}


@reference("unsqueeze", "unsqueeze2")
def unsqueeze2(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    out = ins["X"]
    for axis in attrs["axes"]:
        out = np.expand_dims(out, axis)
    return {"Out": out}


@reference("unsqueeze_at")
def unsqueeze_at(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return unsqueeze2(ins, {"axes": read_sizes(ins, "AxesTensor", "AxesTensorList")})


@reference("flatten", "flatten2")
def flatten2(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": ins["X"].reshape(math.prod(ins["X"].shape[: attrs["axis"]]), -1)}


@reference("split")
def split(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    sections = list(attrs["sections"])
    if sections:
        size = ins["X"].shape[attrs["axis"]]
        sections = [size - sum(s for s in sections if s >= 0) if s < 0 else s for s in sections]
        at = list(itertools.accumulate(sections))[:-1]
        return {"Out": np.split(ins["X"], at, attrs["axis"])}
    return {"Out": np.split(ins["X"], attrs["num"], attrs["axis"])}


@reference("slice")
def slice_(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    index: list[Any] = [slice(None)] * ins["Input"].ndim
    for axis, start, end in zip(attrs["axes"], attrs["starts"], attrs["ends"], strict=True):
        index[axis] = slice(start, end)
    return {"Out": np.squeeze(ins["Input"][tuple(index)], tuple(attrs["decrease_axis"]))}


@reference("slice_at")
def slice_at(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    bounds = {}
    for name in ("Starts", "Ends"):
        tensors = ins.get(f"{name}TensorList", [ins.get(f"{name}Tensor")])
        bounds[name.lower()] = [int(n) for tensor in tensors for n in np.ravel(tensor)]
    return slice_(ins, {**attrs, **bounds})


@reference("pad")
def pad(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    margins = np.reshape(attrs["paddings"], (-1, 2))
    return {"Out": np.pad(ins["X"], margins, constant_values=attrs["pad_value"])}


@reference("pad2d")
def pad2d(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    height, width = np.reshape(attrs["paddings"], (2, 2))
    image = [(0, 0), (0, 0)]
    image[2 if attrs["data_format"] == "NCHW" else 1 : 2] = [height, width]
    if attrs["data_format"] == "NHWC":
        image.append((0, 0))
    extra = {"constant_values": attrs["pad_value"]} if attrs["mode"] == "constant" else {}
    return {"Out": np.pad(ins["X"], image, mode=attrs["mode"], **extra)}


@reference("gather_nd")
def gather_nd(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, index = ins["X"], ins["Index"]
    if index.shape[-1] == 0:
        return {"Out": np.broadcast_to(x, (*index.shape[:-1], *x.shape))}
    return {"Out": x[tuple(np.moveaxis(index, -1, 0))]}


@reference("scatter")
def scatter(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    out, rows = ins["X"].copy(), ins["Ids"].reshape(-1)
    if not attrs["overwrite"]:
        out[rows] = 0
    for row, update in zip(rows, ins["Updates"], strict=True):
        out[row] = update if attrs["overwrite"] else out[row] + update
    return {"Out": out}


@reference("argsort")
def argsort(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    lines = np.moveaxis(ins["X"], attrs["axis"], -1)
    order = np.empty(lines.shape, int)
    for at in np.ndindex(lines.shape[:-1]):
        order[at] = sorted(
            range(lines.shape[-1]), key=lambda i: lines[at][i], reverse=attrs["descending"]
        )
    out = np.take_along_axis(lines, order, -1)
    return {
        "Out": np.moveaxis(out, -1, attrs["axis"]),
        "Indices": np.moveaxis(order, -1, attrs["axis"]),
    }
