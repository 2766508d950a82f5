"""What the runtime of a real GPU asks of CuPy, on a stand-in: no GPU is needed."""

from __future__ import annotations

import gc
import importlib
import inspect
import re
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda import cupy_runtime, nvrtc
from rowlock.executor.cuda.cupy_runtime import CupyRuntime
from rowlock.executor.cuda.device_assert import DeviceAsserts
from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.cuda.transfers import Uploads
from rowlock.executor.simulated import nccl as simulated_nccl
from rowlock.strategies.errors import ExecutionError
from tests.executor.fake_cupy import PARAMETERS, CUDARuntimeError, FakeCupy

KERNEL = CudaKernel("scale", (("float*", "x"), ("const float*", "y"), ("int", "n")), "")


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(nvrtc, "machine_code", lambda kernel, capability: b"cubin")
    return fake


def test_taking_memory_leaves_the_stream_in_use(cupy: FakeCupy) -> None:
    runtime = CupyRuntime()
    runtime.use()
    array = runtime.empty(64)
    assert array.stream is runtime.compute
    assert cupy.current is runtime.compute


def test_memory_is_in_the_order_of_the_compute_stream_in_every_thread(cupy: FakeCupy) -> None:
    runtime = CupyRuntime(1)
    streams: list[Any] = []

    def take() -> None:
        streams.extend((runtime.empty(64).stream, cupy.current, cupy.device))

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert streams == [runtime.compute, cupy.null, 0]


def test_words_are_cleared_in_the_order_of_the_compute_stream(cupy: FakeCupy) -> None:
    """The thread that makes a replica may use another GPU, and the null stream waits for nobody."""
    runtime = CupyRuntime(1)
    asserts = DeviceAsserts(runtime)
    (cleared,) = [did for did in cupy.did if did[0] == "copy"]
    assert cleared[1] == asserts.word.data.ptr and cleared[3:] == (8, 1, runtime.compute.ptr)
    assert cupy.did[-3:] == [
        ("synchronize", stream) for stream in (runtime.compute, runtime.copies, runtime.fetches)
    ]
    assert not hasattr(asserts.word, "filled")


def test_too_little_memory_is_a_memory_error(cupy: FakeCupy) -> None:
    runtime = CupyRuntime()
    runtime.use()
    with pytest.raises(MemoryError, match="out of memory"):
        runtime.empty(cupy.room + 1)
    assert cupy.current is runtime.compute


def test_kernels_go_to_the_compute_stream_with_arguments_of_their_types(cupy: FakeCupy) -> None:
    runtime = CupyRuntime()
    x = runtime.empty(64)
    runtime.launch(KERNEL, (3, 1, 1), (256, 1, 1), (x, None, 7))()
    name, grid, block, arguments, stream = cupy.did[-1]
    assert (name, grid, block, stream) == ("scale", (3, 1, 1), (256, 1, 1), runtime.compute)
    assert arguments[0] is x
    assert [type(a) for a in arguments[1:]] == [np.uintp, np.int32]


def test_nccl_is_imported_where_it_is_asked_for(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    nccl = ModuleType("cupy.cuda.nccl")
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", nccl)
    for available in (True, False):
        nccl.available = available  # type: ignore[attr-defined]
        assert CupyRuntime().nccl is (nccl if available else None)


def test_an_event_tells_of_errors(cupy: FakeCupy) -> None:
    runtime = CupyRuntime()
    event = runtime.record(runtime.compute)
    assert event.done()
    cupy.status = 600  # not ready
    assert not event.done()
    cupy.status = 700  # illegal address: nothing is ever done again
    with pytest.raises(CUDARuntimeError):
        event.done()


def test_events_belong_to_the_gpu_of_their_stream(cupy: FakeCupy) -> None:
    runtime = CupyRuntime(1)
    assert cupy.device == 0
    runtime.wait(runtime.copies, runtime.record(runtime.compute))
    fork = runtime.fork(runtime.stream(), lambda: None)
    fork()
    fork.finish()
    assert cupy.device == 0


def test_urgent_streams_have_the_highest_priority(cupy: FakeCupy) -> None:
    runtime = CupyRuntime(1)
    assert runtime.stream(urgent=True).priority < -5  # CUDA takes the least that the GPU has
    assert runtime.stream().priority is runtime.compute.priority is None


def test_a_graph_is_captured_and_launched_on_the_compute_stream(cupy: FakeCupy) -> None:
    runtime = CupyRuntime()
    seen: list[tuple[bool, Any]] = []
    launch = runtime.capture([lambda: seen.append((runtime.compute.capturing, cupy.allocator))])
    assert seen == [(True, runtime._while_captured.malloc)], "memory that nothing else uses"
    assert not runtime.compute.capturing and cupy.allocator is None
    launch()
    assert cupy.did[-2:] == [("upload", runtime.compute), ("graph", runtime.compute)]


def test_a_graph_of_several_streams_keeps_their_priorities(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA copies them to kernels, and CuPy's graphs do not use them."""
    status = 0

    def instantiate(handle: Any, graph: Any, flags: Any) -> int:
        handle._obj.value = 40 + graph.value
        cupy.note("instantiate", graph.value, flags.value)
        return status

    driver = SimpleNamespace(cuGraphInstantiateWithFlags=instantiate)
    monkeypatch.setattr(cupy_runtime, "library", {"cuda": driver}.get)
    runtime = CupyRuntime()
    fork = runtime.fork(runtime.stream(urgent=True), lambda: None)
    launch = runtime.capture([fork, fork.finish])
    launch()
    compute = runtime.compute.ptr
    graph = [("instantiate", 7, 8), ("destroy", 7), ("upload", 47, compute), ("graph", 47, compute)]
    assert cupy.did[-4:] == graph
    del launch
    assert cupy.did[-1] == ("destroy exec", 47)
    status = 1
    with pytest.raises(ExecutionError, match="failed with status 1"):
        runtime.capture([fork, fork.finish])
    assert cupy.did[-1] == ("destroy", 7)


def test_nothing_is_under_way_and_no_garbage_goes_while_a_graph_is_captured(cupy: FakeCupy) -> None:
    runtime = CupyRuntime()
    seen: list[tuple[bool, bool]] = []
    went: list[bool] = []

    class Cycle:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            went.append(runtime.compute.capturing)

    def step() -> None:
        synchronized = [did[1] for did in cupy.did if did[0] == "synchronize"]
        seen.append(
            (
                {runtime.compute, runtime.copies, runtime.fetches} <= set(synchronized),
                gc.isenabled(),
            )
        )
        Cycle()

    Cycle()
    runtime.capture([step])
    assert seen == [(True, False)]
    assert went == [False] and gc.isenabled()
    gc.collect()


def test_a_step_that_fails_ends_the_capture(cupy: FakeCupy) -> None:
    runtime = CupyRuntime()

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        runtime.capture([fails])
    assert not runtime.compute.capturing
    cupy.refuses = True
    with pytest.raises(ValueError, match="no"):
        runtime.capture([fails])
    assert not runtime.compute.capturing and gc.isenabled()
    with pytest.raises(CUDARuntimeError):
        runtime.capture([])


def test_copies_say_their_direction(cupy: FakeCupy) -> None:
    runtime = CupyRuntime()
    device, host = runtime.empty(64), runtime.pinned(64)
    for target, source in ((device, host), (host, device), (device, device)):
        runtime.copy(target, source, runtime.copies)
    assert [did[4] for did in cupy.did] == [1, 2, 3]
    assert all(did[0] == "copy" and did[3] == 64 for did in cupy.did)
    assert cupy.did[0][2] == host.ctypes.data
    assert runtime.pinned(0).size == 0


def test_uploads_hold_pinned_memory_until_it_was_read(cupy: FakeCupy) -> None:
    runtime = CupyRuntime()
    target: Any = runtime.pinned(64)  # only its form matters
    uploads = Uploads(runtime)
    cupy.status = 600
    for count in (1, 2):
        uploads.send(target, np.ones(64, np.uint8))
        assert len(uploads._sent) == count


def _parameters(function: Any) -> str:
    try:
        return " ".join(inspect.signature(function).parameters)
    except ValueError:  # Cython tells in the first line of the text
        (inside,) = re.findall(r"\((.*)\)", function.__doc__.splitlines()[0])
        names = (part.partition("=")[0].split()[-1] for part in inside.split(","))
        return " ".join(names)


@pytest.mark.parametrize("path", PARAMETERS)
def test_the_stand_in_has_the_parameters_of_cupy(path: str) -> None:
    cupy = pytest.importorskip("cupy")
    part = cupy
    for name in path.split("."):
        part = getattr(part, name)
    assert _parameters(part) == PARAMETERS[path]


def test_cupys_nccl_has_what_is_called() -> None:
    pytest.importorskip("cupy")
    nccl = importlib.import_module("cupy.cuda.nccl")
    if not nccl.available:
        pytest.skip("NCCL is not here")
    for name in ("SUM", "AVG", "PROD", "MIN", "MAX", "BFLOAT16", "FLOAT16", "UINT8", "INT64"):
        assert isinstance(getattr(nccl, f"NCCL_{name}"), int)
    assert isinstance(nccl.get_unique_id(), bytes)
    for name in ("allReduce", "reduce", "broadcast", "allGather", "check_async_error", "abort"):
        theirs, ours = (getattr(one.NcclCommunicator, name) for one in (nccl, simulated_nccl))
        assert _parameters(theirs) == _parameters(ours)


def test_large_pinned_blocks_are_as_large_as_was_asked(cupy: FakeCupy) -> None:
    """CuPy's pool would make 256 MB of the 154 that a batch of images takes."""
    runtime, images = CupyRuntime(), 256 * 3 * 224 * 224 * 4
    assert runtime.pinned(images).nbytes == images
    runtime.pinned(1 << 10)
    assert cupy.blocks == [("own", images), ("pool", 1 << 10)]


def test_kernels_on_one_place_promise_nothing_about_it(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, compiled = CupyRuntime(), list[CudaKernel]()
    monkeypatch.setattr(
        nvrtc, "machine_code", lambda kernel, capability: compiled.append(kernel) or b"cubin"
    )
    x, y = runtime.empty(64), runtime.empty(64)
    y.data.ptr = x.data.ptr + 64  # side by side
    for operands in ((x, y, 1), (x, x, 1), (x, None, 1)):
        runtime.launch(KERNEL, (1, 1, 1), (32, 1, 1), operands)
    apart, same = compiled
    assert apart.own_text.count("__restrict__") == 2 and "__restrict__" not in same.own_text
    reads = CudaKernel("look", (("const float*", "x"), ("const float*", "y")), "")
    assert reads.over((x, x), runtime.address) is reads


def test_kernels_reach_page_locked_memory_by_its_own_address(
    cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "machine_code", lambda kernel, capability: b"cubin")
    runtime = CupyRuntime()
    device, host = runtime.empty(4), runtime.pinned(4)
    launch = runtime.launch(KERNEL, (1, 1, 1), (32, 1, 1), (device, host, 1))
    launch()
    arguments = launch._arguments  # type: ignore[attr-defined]
    assert arguments[0] is device and arguments[1] == np.uintp(host.ctypes.data)
    assert isinstance(arguments[1], np.uintp)


def test_memory_that_is_not_used_goes_back_to_the_gpu(cupy: FakeCupy) -> None:
    CupyRuntime().give_back()
    assert cupy.did == [("free_all_blocks",)]
