"""Connectionist temporal classification: sums over all paths that read as the labels."""

from __future__ import annotations

from itertools import groupby, pairwise, product
from typing import Any

import numpy as np

from .registry import reference

Slots = dict[str, Any]


def loss(logits: Any, label: list[int], blank: int) -> float:
    steps, classes = logits.shape
    log = logits - np.logaddexp.reduce(logits, 1)[:, None] if steps else logits
    scores = [
        sum(log[t, k] for t, k in enumerate(path))
        for path in product(range(classes), repeat=steps)
        if [k for k, _ in groupby(path) if k != blank] == label
    ]
    return -float(np.logaddexp.reduce(scores)) if scores else 0.0


@reference("warpctc")
def warpctc(ins: Slots, attrs: Slots) -> Slots:
    logits, label = ins["Logits"], ins["Label"]
    if "LogitsLength" in ins:
        xs = [logits[:n, b] for b, n in enumerate(ins["LogitsLength"])]
        labels = [label[b, :n] for b, n in enumerate(ins["LabelLength"])]
    else:
        xs = [logits[i:j] for i, j in pairwise(ins["Logits@LOD"][-1])]
        labels = [label[i:j, 0] for i, j in pairwise(ins["Label@LOD"][-1])]
    pairs = zip(xs, labels, strict=True)
    return {"Loss": np.array([[loss(x, list(y), attrs["blank"])] for x, y in pairs])}
