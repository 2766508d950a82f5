"""What the back end asks of a GPU: order within streams and between them, graphs, memory, transfers."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.cuda.runtime import Captured, Runtime
from rowlock.executor.cuda.transfers import (
    SLOTS,
    Outward,
    Staged,
    device_array,
    download,
    upload,
)
from tests.ops.gpu import needs_compiler

pytestmark = needs_compiler

COUNT = 100_003
ADD = CudaKernel(
    "add_to",
    (("float*", "y"), ("const float*", "x"), ("long long", "n")),
    "for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) y[i] += x[i];",
)
SPIN = CudaKernel(
    "spin",
    (("long long", "nanoseconds"),),
    """unsigned long long began, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); }
    while (now - began < (unsigned long long)nanoseconds);""",
)

TURNED = """
  __shared__ int kept[128];
  const int t = threadIdx.x, other = {other};
  kept[t] = t + 1;
  {barrier}
  out[t] = kept[other];
  {barrier}
  kept[t] = 0;"""
BEYOND, WITHIN = "blockDim.x - 1 - t", "t ^ 1"  # another warp, another lane


def on_gpu(runtime: Runtime, values: Any) -> Any:
    array = np.asarray(values)
    copy = device_array(runtime, array.shape, array.dtype)
    upload(runtime, copy, array)
    return copy


def adding(runtime: Runtime, y: Any, x: Any) -> Any:
    return runtime.launch(ADD, (32, 1, 1), (256, 1, 1), [y, x, y.size])


def test_a_captured_graph_does_each_time_what_its_calls_do(runtime: Runtime) -> None:
    x, y, z = (on_gpu(runtime, np.full(COUNT, value, "float32")) for value in (1, 0, 0))
    steps = [adding(runtime, y, x), runtime.copying(z, y), adding(runtime, z, x)]
    runtime.execute(steps)
    np.testing.assert_array_equal(download(runtime, z), 2)
    graph = runtime.capture(steps)
    for turn in range(2, 7):
        graph()
        np.testing.assert_array_equal(download(runtime, y), turn)
        np.testing.assert_array_equal(download(runtime, z), turn + 1)


def test_a_graph_holds_no_call_that_waits(runtime: Runtime) -> None:
    """A GPU refuses it while the work is captured, a simulated one when the graph is launched."""
    x = on_gpu(runtime, np.ones(3, "float32"))
    with pytest.raises(Exception, match="captur"):
        runtime.capture([Captured(download, runtime, x)])()
        runtime.synchronize()
    np.testing.assert_array_equal(download(runtime, x), 1)


@pytest.mark.parametrize("other", [BEYOND, WITHIN])
@pytest.mark.parametrize("barrier", ["__syncthreads();", "__syncwarp();", ""])
def test_a_missing_barrier_is_seen_on_a_simulated_gpu(
    runtime: Runtime, other: str, barrier: str
) -> None:
    """Of two launches one begins with the last thread; a warp does not wait for others of its own accord."""
    if runtime.name == "cupy":
        pytest.skip("threads of a GPU may come in any order")
    text = TURNED.format(other=other, barrier=barrier)
    kernel = CudaKernel("turned", (("int*", "out"),), text, block=128, definitions="// block_")
    results = []
    for _ in range(2):
        out = on_gpu(runtime, np.zeros(128, "i4"))
        runtime.execute([runtime.launch(kernel, (1, 1, 1), (128, 1, 1), [out])])
        results.append(download(runtime, out))
    t = np.arange(128)
    right = 1 + (127 - t if other == BEYOND else t ^ 1)
    enough = barrier == "__syncthreads();" or (barrier and other == WITHIN)
    assert all((out == right).all() for out in results) == bool(enough)


def test_blocks_that_need_each_other_are_seen_on_a_simulated_gpu(runtime: Runtime) -> None:
    if runtime.name == "cupy":
        pytest.skip("blocks of a GPU may come in any order")
    text = "out[blockIdx.x] = blockIdx.x ? out[blockIdx.x - 1] + 1 : 1;"
    kernel = CudaKernel("chained", (("int*", "out"),), text, block=32)
    results = []
    for _ in range(2):
        out = on_gpu(runtime, np.zeros(8, "i4"))
        runtime.execute([runtime.launch(kernel, (8, 1, 1), (1, 1, 1), [out])])
        results.append(download(runtime, out).tolist())
    assert sorted(results) == [[1] * 8, [*range(1, 9)]]


def test_capturing_does_nothing_yet(runtime: Runtime) -> None:
    x, y = (on_gpu(runtime, np.ones(COUNT, "float32")) for _ in range(2))
    step = adding(runtime, y, x)
    runtime.execute([step])
    runtime.capture([step])
    np.testing.assert_array_equal(download(runtime, y), 2)


def test_a_stream_that_waits_for_another_sees_what_it_wrote(runtime: Runtime) -> None:
    y = on_gpu(runtime, np.zeros(COUNT, "float32"))
    x = on_gpu(runtime, np.zeros(COUNT, "float32"))
    for value in range(1, 20):
        host = runtime.pinned(y.nbytes).view(np.float32)
        host[...] = value
        runtime.wait(runtime.copies, runtime.record(runtime.compute))
        runtime.copy(x, host, runtime.copies)
        runtime.wait(runtime.compute, runtime.record(runtime.copies))
        runtime.execute([adding(runtime, y, x)])
        runtime.synchronize()
    np.testing.assert_array_equal(download(runtime, y), 190)


def test_an_event_is_done_once_its_stream_came_there(runtime: Runtime) -> None:
    y = on_gpu(runtime, np.zeros(COUNT, "float32"))
    runtime.execute([adding(runtime, y, y)] * 10)
    event = runtime.record(runtime.compute)
    event.synchronize()
    assert event.done()


def test_memory_that_is_asked_for_is_taken_and_given_back(runtime: Runtime) -> None:
    before, total = runtime.memory()
    block = runtime.empty(64 << 20)
    assert runtime.address(block) % 256 == 0
    during = runtime.memory()[0]
    del block
    assert before - during >= 64 << 20
    assert before <= runtime.memory()[0] + (1 << 20) <= total + (1 << 20)


def test_too_much_memory_is_an_error_and_nothing_is_lost(runtime: Runtime) -> None:
    before, total = runtime.memory()
    with pytest.raises(MemoryError):
        runtime.empty(2 * total)
    assert abs(runtime.memory()[0] - before) < 1 << 20


def test_libraries_tell_their_versions(runtime: Runtime) -> None:
    versions = runtime.versions()
    assert {"cuda", "cublaslt"} <= versions.keys() and all(versions.values())


def test_kernels_go_on_while_the_host_does(hardware: Runtime) -> None:
    spin = hardware.launch(SPIN, (1, 1, 1), (1, 1, 1), [50_000_000])
    hardware.execute([spin])
    hardware.synchronize()
    began = time.perf_counter()
    hardware.execute([spin])
    put = time.perf_counter() - began
    hardware.synchronize()
    assert put < 0.01 < 0.045 < time.perf_counter() - began


def test_transfers_overlap_kernels(hardware: Runtime) -> None:
    host = hardware.pinned(32 << 20)
    there = hardware.empty(host.nbytes)
    spin = hardware.launch(SPIN, (1, 1, 1), (1, 1, 1), [200_000_000])
    hardware.execute([spin])
    hardware.synchronize()
    hardware.execute([spin])
    computed = hardware.record(hardware.compute)
    hardware.copy(there, host, hardware.copies)
    hardware.copy(host, there, hardware.copies)
    hardware.record(hardware.copies).synchronize()
    assert not computed.done(), "the copies waited for the kernel"
    computed.synchronize()


def test_a_feed_comes_while_a_fetch_waits_for_its_step(hardware: Runtime) -> None:
    place, result = (device_array(hardware, (1 << 20,), np.float32) for _ in range(2))
    staged, outward = Staged(hardware, [place]), Outward(hardware, [result])
    spin = hardware.launch(SPIN, (1, 1, 1), (1, 1, 1), [200_000_000])
    for _ in range(SLOTS):  # the first ones allocate, which may wait for kernels
        staged.send([np.zeros(1 << 20, np.float32)])
        outward.send()
    hardware.execute([spin])
    hardware.synchronize()
    hardware.execute([spin])
    computed = hardware.record(hardware.compute)
    outward.send()
    staged.bring([np.ones(1 << 20, np.float32)])
    hardware.record(hardware.copies).synchronize()
    assert not computed.done(), "the feed waited for the step that is fetched from"
    outward.wait()


def test_what_copies_reach_is_told(hardware: Runtime, record_property: Any) -> None:
    """A copy within the device and one from pinned memory, in GB/s; kernels are held against the first."""
    big = [hardware.empty(1 << 30) for _ in range(2)]
    host = hardware.pinned(256 << 20)
    inside = hardware.copying(*big)
    rates = {}
    for name, step, moved in (
        ("device", lambda: hardware.execute([inside] * 10), 20 << 30),
        ("pinned", lambda: hardware.copy(big[0][: 256 << 20], host, hardware.compute), 256 << 20),
    ):
        step()
        hardware.synchronize()
        began = time.perf_counter()
        step()
        hardware.synchronize()
        rates[name] = moved / (time.perf_counter() - began) / 1e9
    record_property("gigabytes_per_second", json.dumps(rates))
    print(rates)
    assert rates["device"] > 100
