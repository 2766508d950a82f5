"""Tables of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("lookup_table", "lookup_table_v2")
def lookup(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    ids = ins["Ids"]
    if "grad_inplace" in attrs:  # the first form of the op: ids end in a dimension of size 1
        ids = ids[..., 0]
    rows = ins["W"][ids]
    if attrs["padding_idx"] != -1:
        rows = np.where((ids == attrs["padding_idx"])[..., None], 0, rows)
    return {"Out": rows}


@reference("lookup_table_dequant")
def lookup_dequant(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    w, ids = ins["W"].astype(np.float32), ins["Ids"][..., 0]
    out = np.zeros((*ids.shape, 4 * (w.shape[1] - 2)))
    for place in np.ndindex(ids.shape):
        least, largest, *numbers = w[ids[place]]
        if attrs["padding_idx"] == ids[place]:
            continue
        codes = b"".join(number.tobytes() for number in numbers)
        out[place] = [least + (largest - least) * code / 256 for code in codes]
    return {"Out": out}
