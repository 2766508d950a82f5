"""Elements that differ, and places of those that are not zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("where_index")
def where_index(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    condition = ins["Condition"]
    return {"Out": [at for at in np.ndindex(condition.shape) if condition[at]]}


@reference("unique", "unique_with_counts")
def unique(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"] if attrs.get("axis") else ins["X"].reshape(-1)
    items = [np.asarray(item).tolist() for item in x]
    different = sorted(items, key=None if attrs.get("is_sorted") else items.index)
    different = [item for k, item in enumerate(different) if item not in different[:k]]
    counts = [items.count(item) for item in different]
    results = {"Out": different, "Index": [different.index(item) for item in items]}
    if "is_sorted" not in attrs:
        return {**results, "Count": counts}
    return {**results, "Indices": [items.index(item) for item in different], "Counts": counts}
