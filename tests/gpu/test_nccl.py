"""NCCL with one rank: what is put on its stream can be captured, and results are there when they should be."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import numpy as np
import pytest

from rowlock.cluster.collective.group import SharedMemoryGroup
from rowlock.cluster.collective.nccl import NcclGroup
from rowlock.executor.cuda.runtime import Runtime
from rowlock.executor.cuda.transfers import download, upload
from tests.ops.gpu import needs_compiler

pytestmark = needs_compiler

COUNT = 1 << 16


@pytest.fixture
def group(runtime: Runtime) -> Iterator[NcclGroup]:
    """A group of this process alone."""
    if runtime.nccl is None:
        pytest.skip("there is no NCCL here")
    control = SharedMemoryGroup(f"test-{uuid.uuid4().hex}", 0, 1, within=10)
    group = NcclGroup(control, runtime, within=20)
    yield group
    group.close()


@pytest.mark.parametrize("op", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_one_rank_keeps_its_values(group: NcclGroup, op: str, dtype: str) -> None:
    values = np.random.default_rng(0).random(COUNT).astype(dtype)
    array = group.buffer(values.nbytes).view(dtype)
    upload(group.runtime, array, values)
    group.all_reduce(array, op)
    np.testing.assert_array_equal(download(group.runtime, array), values)


def test_collectives_are_captured_with_what_is_around_them(group: NcclGroup) -> None:
    runtime = group.runtime
    array = group.buffer(4 * COUNT).view(np.float32)
    other = runtime.empty(4 * COUNT).view(np.float32)
    reduced = group.bound_all_reduce(array)
    steps = [reduced, reduced.finish, runtime.copying(other, array)]
    for turn in range(4):
        upload(runtime, array, np.full(COUNT, turn, np.float32))
        if turn == 0:
            runtime.execute(steps)
            group.landed()
            graph = runtime.capture(steps)
            continue
        graph()
        group.landed()
        np.testing.assert_array_equal(download(runtime, other), turn)
