"""DataFeeder makes of samples what Paddle 1.8.5 does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.device import place
from rowlock.strategies.errors import FeedError

from ..reference import feeder_cases

CASES = feeder_cases.cases()
REFERENCE = json.loads((Path(feeder_cases.__file__).parent / "feeder.json").read_text())


def feeder(shape: list[int | None], dtype: str, level: int, place: Any = None) -> fluid.DataFeeder:
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", shape, dtype, lod_level=level)
    return fluid.DataFeeder([x], place or fluid.CPUPlace())


@pytest.mark.parametrize("case", CASES)
def test_samples_become_what_paddle_makes_of_them(case: str) -> None:
    shape, dtype, level, samples = CASES[case]
    fed = feeder(shape, dtype, level).feed([(sample,) for sample in samples])["x"]
    array = np.asarray(fed)
    lengths = fed.recursive_sequence_lengths() if level else []
    assert [str(array.dtype), list(array.shape), lengths, array.ravel().tolist()] == REFERENCE[case]


def test_samples_that_are_not_nested_as_deeply_as_declared() -> None:
    with pytest.raises(FeedError, match=r"'x' is nested 2 deep .*holds int 3 at depth 1"):
        feeder([None, 1], "int64", 2).feed([([[1], 3],)])
    with pytest.raises(FeedError, match=r"'x' .* sample 0 has shape \[2\], sample 2 has \[3\]"):
        feeder([None, 2], "float32", 0).feed([([1, 2],), ([3, 4],), ([1, 2, 3],)])
    with pytest.raises(FeedError, match="cannot be joined as int64"):
        feeder([None, 1], "int64", 1).feed([([[1, 2], [3]],)])
    with pytest.raises(
        FeedError, match=r"shape \[2, 3\] together, which does not fit .*\[-1, 2, 2\]"
    ):
        feeder([None, 2, 2], "float32", 0).feed([([1, 2, 3],), ([1, 2, 3],)])


def test_a_mini_batch_for_each_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_NUM", "2")
    monkeypatch.setattr(place, "gpu_count", lambda: 3)
    on_cpu = feeder([None, 2], "float32", 0)
    on_gpu = feeder([None, 2], "float32", 0, fluid.CUDAPlace(0))

    def mini_batches(count: int) -> Iterator[Iterator[Any]]:
        return (iter([(np.full(2, i),)] * (i + 1)) for i in range(count))  # generators, each once

    feeds = list(on_cpu.feed_parallel(list(mini_batches(2))))
    assert [feed["x"].tolist() for feed in feeds] == [[[0, 0]], [[1, 1]] * 2]
    assert len(list(on_gpu.feed_parallel(list(mini_batches(3))))) == 3
    assert len(list(on_cpu.feed_parallel(list(mini_batches(5)), 5))) == 5
    with pytest.raises(ValueError, match="got 3 mini-batches for 2 places"):
        on_cpu.feed_parallel(list(mini_batches(3)))

    one_place = on_cpu.decorate_reader(lambda: mini_batches(3), False)
    assert [len(feed["x"]) for feed in one_place()] == [1, 2, 3]
    for one, places, steps in ((on_cpu, None, 3), (on_gpu, None, 2), (on_cpu, 4, 1)):
        groups = list(one.decorate_reader(lambda: mini_batches(7), True, places)())
        assert len(groups) == steps
        assert [len(feed["x"]) for group in groups for feed in group] == list(
            range(1, 1 + sum(map(len, groups)))
        )
    whole = on_cpu.decorate_reader(lambda: mini_batches(7), True, None, drop_last=False)()
    with pytest.raises(ValueError, match="1 batches are left for 2 places"):
        list(whole)
