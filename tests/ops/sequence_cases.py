"""Cases of sequence ops, for any two ways to compute them: ``compare`` runs both and returns one's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Compare = Callable[..., list[np.ndarray]]
KINDS = ["sum", "AVERAGE", "SQRT", "MAX", "FIRST", "LAST"]


def check_pools(compare: Compare, lengths: list[int], columns: int, kind: str) -> None:
    rng, ends = np.random.default_rng(0), np.cumsum([0, *lengths])
    x = rng.standard_normal((ends[-1], columns)).astype("f4")
    d = rng.standard_normal((len(lengths), columns)).astype("f4")
    if kind == "MAX":  # often of several rows, of which the first is taken
        x = np.rint(x)
        x[-1, 0] = np.nan
    inputs: dict[str, Any] = {"X": x, "X@LOD": ends}
    attrs = {"pooltype": kind, "pad_value": -9.0}
    results = {"Out": d, "MaxIndex": d.astype("i4")}
    _, index = compare("sequence_pool", inputs, results, **attrs)
    inputs |= {"MaxIndex": index, "Out@GRAD": d}
    compare("sequence_pool_grad", inputs, {"X@GRAD": x}, **attrs)


def check_softmax(compare: Compare, lengths: list[int]) -> None:
    rng, ends = np.random.default_rng(0), np.cumsum([0, *lengths])
    x, d = (30 * rng.standard_normal((2, ends[-1], 1))).astype("f4")
    (out,) = compare("sequence_softmax", {"X": x, "X@LOD": ends}, {"Out": x})
    inputs = {"X": x, "X@LOD": ends, "Out": out, "Out@GRAD": d}
    compare("sequence_softmax_grad", inputs, {"X@GRAD": x})
