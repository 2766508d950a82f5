"""Groups sum float16 and bfloat16 in float32, in the order of ranks, and round once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from .crews import _memory, _threads

SIZE = 4


@pytest.mark.parametrize("join", [_threads, _memory], ids=["threads", "memory"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("count", [3, 70_001])
def test_low_precision_sums_are_rounded_once(join: Any, dtype: str, count: int) -> None:
    rng = np.random.default_rng(0)
    parts = [(rng.standard_normal(count) * 100).astype(dtype) for _ in range(SIZE)]
    joined = join(SIZE, 20.0)

    def work(rank: int) -> list[np.ndarray]:
        group = joined(rank)
        try:
            sums = []
            for all_reduce in (group.all_reduce, lambda a: group.bound_all_reduce(a)()):
                sums.append(parts[rank].copy())
                all_reduce(sums[-1])
            split = parts[rank].copy()
            group.reduce_parts(split, [count // 2, count], [1, 3])
            group.barrier()
            return [*sums, split]
        finally:
            group.close()

    with ThreadPoolExecutor(SIZE) as pool:
        results = list(pool.map(work, range(SIZE)))
    total = np.zeros(count, "float32")
    for part in parts:
        total += part.astype("float32")
    expected = total.astype(dtype).view("u2")
    for first, bound, _ in results:
        np.testing.assert_array_equal(first.view("u2"), expected)
        np.testing.assert_array_equal(bound.view("u2"), expected)
    np.testing.assert_array_equal(results[1][2].view("u2")[: count // 2], expected[: count // 2])
    np.testing.assert_array_equal(results[3][2].view("u2")[count // 2 :], expected[count // 2 :])
