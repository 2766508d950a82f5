"""Sums over windows of steps."""

from __future__ import annotations

from typing import Any

from .registry import reference


@reference("average_accumulates")
def average_accumulates(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    names = ("num_accumulates", "old_num_accumulates", "num_updates")
    count, old, updates = (ins[f"in_{name}"].copy() for name in names)
    sums = [ins["in_sum_1"] + ins["param"], ins["in_sum_2"], ins["in_sum_3"]]
    count, updates = count + 1, updates + 1
    if updates[0] % 16384 == 0:
        sums = [0 * sums[0], sums[0] + sums[1], sums[2]]
    window = min(attrs["max_average_window"], int(updates[0] * attrs["average_window"]))
    if count[0] >= attrs["min_average_window"] and count[0] >= window:
        sums = [0 * sums[0], 0 * sums[0], sums[0] + sums[1]]
        count, old = 0 * count, count
    results = {f"out_sum_{k + 1}": total for k, total in enumerate(sums)}
    return results | {
        f"out_{name}": value for name, value in zip(names, (count, old, updates), strict=True)
    }
