"""Every n-th element, and all of them backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference, unary


@reference("strided_slice")
def strided_slice(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    out = ins["Input"]
    bounds = zip(attrs["axes"], attrs["starts"], attrs["ends"], attrs["strides"], strict=True)
    for axis, start, end, stride in bounds:
        stop = None if stride < 0 and end == -1 else end
        out = np.take(out, np.arange(out.shape[axis])[start:stop:stride], axis)
    return {"Out": np.squeeze(out, tuple(attrs.get("decrease_axis", ())))}


unary("reverse", lambda x, a: np.flip(x, tuple(a["axis"])))
