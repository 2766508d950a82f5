"""Elements picked by index, and windows as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import REFERENCE, reference

REFERENCE["index_select"] = lambda ins, attrs: {
    "Out": np.take(ins["X"], ins["Index"], attrs["dim"])
}
REFERENCE["index_sample"] = lambda ins, attrs: {
    "Out": np.take_along_axis(ins["X"], ins["Index"], 1)
}
REFERENCE["multiplex"] = lambda ins, attrs: {
    "Out": np.stack([ins["X"][k][i] for i, k in enumerate(ins["Ids"][:, 0])])
}


@reference("scatter_nd_add")
def scatter_nd_add(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    out, index = ins["X"].copy(), ins["Index"]
    for place in np.ndindex(index.shape[:-1]):
        out[tuple(index[place])] += ins["Updates"][place]
    return {"Out": out}


@reference("shard_index")
def shard_index(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    size = (attrs["index_num"] + attrs["nshards"] - 1) // attrs["nshards"]
    shard, local = np.divmod(ins["X"], size)
    return {"Out": np.where(shard == attrs["shard_id"], local, attrs["ignore_value"])}


@reference("unfold")
def unfold(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    top, left, bottom, right = attrs["paddings"]
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    spans = [d * (k - 1) for k, d in zip(attrs["kernel_sizes"], attrs["dilations"], strict=True)]
    starts = [
        range(0, n - span, s)
        for n, span, s in zip(x.shape[2:], spans, attrs["strides"], strict=True)
    ]
    (down, right_by), (high, wide) = attrs["dilations"], spans
    columns = [
        x[:, :, i : i + high + 1 : down, j : j + wide + 1 : right_by].reshape(len(x), -1)
        for i in starts[0]
        for j in starts[1]
    ]
    return {"Y": np.stack(columns, -1)}
