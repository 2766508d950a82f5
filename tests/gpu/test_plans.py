"""Programs on a GPU: replayed steps are those that were not captured, memory is what was planned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from rowlock import fluid
from rowlock.executor.cuda.memory import DeviceMemory
from rowlock.executor.cuda.runtime import Runtime
from rowlock.executor.cuda.transfers import device_array, download, upload
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.bind import Binder
from rowlock.executor.plan.buckets import Buckets
from rowlock.executor.plan.cuda_plan import CudaPlan
from rowlock.executor.plan.shapes import infer_specs
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.graph import STATE
from rowlock.graph.passes.target import Target
from rowlock.strategies.types import to_numpy
from tests.ops.gpu import needs_compiler
from tests.programs import own_programs

pytestmark = needs_compiler


def net() -> tuple[fluid.Program, Any]:
    """A convolution and two layers with dropout, trained by momentum."""
    with own_programs() as (main, _):
        layers = fluid.layers
        image = layers.data("image", [3, 8, 8])
        label = layers.data("label", [1], dtype="int64")
        x = layers.conv2d(image, 8, 3, padding=1)
        x = layers.batch_norm(x, act="relu")
        x = layers.fc(layers.pool2d(x, 2, "max", 2), 32, act="relu")
        x = layers.dropout(x, 0.3, dropout_implementation="upscale_in_train")
        loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(x, 10), label))
        fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
    return main, loss


def feed(step: int, rows: int = 8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    image = rng.standard_normal((rows, 3, 8, 8), "float32")
    return {"image": image, "label": rng.integers(0, 10, (rows, 1))}


class Trained:
    """The net bound on a GPU, with drawn parameters."""

    def __init__(self, runtime: Runtime, captures: bool = True, rows: int = 8) -> None:
        main, loss = net()
        able = capabilities(frozenset(runtime.versions()))
        compiled = compile_program(main, list(feed(0)), [loss.name], Target(), able, "cupy")
        self.program, self.state = compiled.program, {}
        self.memory = DeviceMemory(runtime)
        self.device = Device(seed=3, memory=self.memory, runtime=runtime)
        self.runtime, self.rng = runtime, np.random.default_rng(0)
        self.rows = rows
        specs = infer_specs(self.program, [spec_of(a) for a in self.feeds(0)], lambda name: None)
        buckets = Buckets(self.program, None)
        self.free = runtime.memory()[0]

        def make(*args: Any, **how: Any) -> CudaPlan:
            return CudaPlan(*args, captures=captures, **how)

        binder = Binder(self.program, self.device, specs, self.allocate, buckets, make=make)
        self.arena, self.plan = binder.arena, cast("Any", binder.plan())

    def allocate(self, name: str, spec: Any) -> Any:
        if name not in self.state:
            value = 0.1 * np.abs(self.rng.standard_normal(spec.shape))
            array = device_array(self.runtime, spec.shape, to_numpy(spec.dtype))
            upload(self.runtime, array, value.astype(to_numpy(spec.dtype)))
            self.state[name] = array
        return self.state[name]

    def feeds(self, step: int) -> Sequence[np.ndarray]:
        fed = feed(step, self.rows)
        return [fed[self.program.values[i].name] for i in self.program.feeds]

    def step(self, number: int) -> float:
        self.device.clock.step = number
        self.plan.device.clock.step = number
        self.plan.run(self.feeds(number))
        return float(self.plan.fetched()[0].item())


def test_replayed_steps_are_those_that_are_not_captured(runtime: Runtime) -> None:
    captured, eager = Trained(runtime), Trained(runtime, captures=False)
    losses = [[trained.step(k) for k in range(6)] for trained in (captured, eager)]
    assert any(one.graphs for one in captured.plan.segments)
    assert not any(one.graphs for one in eager.plan.segments)
    np.testing.assert_array_equal(*losses)
    for name, array in captured.state.items():
        other = download(runtime, eager.state[name])
        np.testing.assert_array_equal(download(runtime, array), other, err_msg=name)


def test_every_step_draws_afresh_in_a_replayed_graph(runtime: Runtime) -> None:
    trained = Trained(runtime)
    state = {name: download(runtime, array) for name, array in trained.state.items()}
    losses = []
    for number in (0, 0, 1, 2, 1):
        for name, value in state.items():
            upload(runtime, trained.state[name], value)
        trained.device.clock.step = trained.plan.device.clock.step = number
        trained.plan.run(trained.feeds(0))
        losses.append(float(trained.plan.fetched()[0].item()))
    assert losses[0] == losses[1] and losses[2] == losses[4]
    assert len(set(losses)) == 3


def test_values_begin_on_256_bytes(runtime: Runtime) -> None:
    trained = Trained(runtime, rows=7)
    planned = trained.arena.plan
    assert len(planned.offsets) > 5 and not any(at % 256 for at in planned.offsets.values())
    assert any(size % 256 for size in planned.sizes.values())
    arrays = [trained.arena.array(i) for i in planned.roots if 0 not in planned.specs[i].shape]
    assert all(runtime.address(array) % 256 == 0 for array in arrays)


def test_a_step_is_captured_as_described(runtime: Runtime) -> None:
    trained = Trained(runtime)
    for k in range(3):
        trained.step(k)
    graphs = [one for one in trained.plan.segments if one.capturable]
    splits = [one for one in trained.plan.segments if not one.capturable]
    lines = trained.plan.described()
    assert lines[0].startswith(f"a step is {len(graphs)} graph(s)")
    assert len(lines) == 1 + sum(len(one.ops) for one in splits)
    if {"cuda", "cublaslt", "cudnn"} <= runtime.versions().keys():
        assert lines[1:] == [], "every op of this net can be captured"


def test_memory_does_not_grow_over_replays(runtime: Runtime) -> None:
    trained = Trained(runtime)
    for k in range(3):
        trained.step(k)
    free = runtime.memory()[0]
    for k in range(1000 if runtime.name == "cupy" else 20):
        trained.step(k)
    assert abs(runtime.memory()[0] - free) <= 1 << 20


def test_what_is_taken_is_what_was_planned(runtime: Runtime) -> None:
    rows = 512 if runtime.name == "cupy" else 64
    Trained(runtime, rows=rows).step(0)  # libraries are loaded, and have what they keep
    trained = Trained(runtime, rows=rows)
    trained.step(0)
    _, planned = trained.plan.temporaries
    state = sum(array.nbytes for array in trained.state.values())
    passing = 4 * sum(a.nbytes for a in trained.feeds(0))  # two slots, and what libraries round up
    taken = trained.free - runtime.memory()[0]
    usual_scratch = runtime.properties.memory // 2048
    assert taken <= planned + state + passing + usual_scratch + (2 << 20)


def test_the_host_spends_little_on_a_replayed_step(hardware: Runtime, record_property: Any) -> None:
    trained = Trained(hardware)
    for k in range(5):
        trained.step(k)
    feeds, took = trained.feeds(0), []
    for _ in range(300):
        hardware.synchronize()
        began = time.perf_counter()
        trained.plan.run(feeds)
        took.append(time.perf_counter() - began)
    spent = 1e6 * float(np.median(took))
    record_property("host_us", spent)
    print(f"{spent:.1f} us of the host for a replayed step")
    assert spent < 200


def test_a_step_that_needs_too_much_is_refused_in_words(runtime: Runtime) -> None:
    from rowlock.strategies.errors import ResourceExhausted

    free = runtime.memory()[0]
    with pytest.raises(
        ResourceExhausted, match=r"out of memory: the temporaries take [\d,]+ bytes"
    ):
        _too_large(runtime)
    assert free - runtime.memory()[0] <= 64 << 20  # what tests before held may have gone, too


def _too_large(runtime: Runtime) -> None:
    main, loss = net()
    able = capabilities(frozenset(runtime.versions()))
    program = compile_program(main, list(feed(0)), [loss.name], Target(), able, "cupy").program
    rows = runtime.memory()[1] // (8 * 64 * 4)
    by_name = {name: np.broadcast_to(a[:1], (rows, *a.shape[1:])) for name, a in feed(0).items()}
    feeds = [by_name[program.values[i].name] for i in program.feeds]
    specs = infer_specs(program, [spec_of(a) for a in feeds], lambda name: None)
    device = Device(memory=DeviceMemory(runtime), runtime=runtime)

    def allocate(name: str, spec: Any) -> Any:
        return device_array(runtime, spec.shape, to_numpy(spec.dtype))

    assert any(value.kind == STATE for value in program.values)
    Binder(program, device, specs, allocate, Buckets(program, None), make=CudaPlan)
