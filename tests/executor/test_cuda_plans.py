"""A plan on a GPU whose streams lag behind: what is fed and fetched is right however late the work is done."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from rowlock import fluid
from rowlock.executor.cuda.memory import DeviceMemory
from rowlock.executor.cuda.transfers import (
    Arriving,
    Outward,
    Staged,
    Uploads,
    dense_like,
    device_array,
    download,
)
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.cuda_plan import CudaPlan
from rowlock.executor.plan.traced import TracedStep
from rowlock.executor.replica.message import Message
from rowlock.executor.replica.options import RunOptions
from rowlock.executor.replica.replica import Replica
from rowlock.executor.simulated.simulated import SimulatedRuntime
from rowlock.executor.simulated.streams import NOT_YET
from rowlock.graph.compile import compile_program
from rowlock.graph.passes.target import Target
from rowlock.strategies.errors import ExecutionError
from tests.ops.gpu import needs_compiler
from tests.programs import own_programs

pytestmark = needs_compiler


def test_a_feed_waits_on_the_gpu_until_the_one_before_it_was_used() -> None:
    """Copies go as far ahead of kernels as they may."""
    runtime = SimulatedRuntime()
    place, *results = (device_array(runtime, (4,), np.float32) for _ in range(6))
    staged = Staged(runtime, [place])
    for number, result in enumerate(results):
        staged.send([np.full(4, number, np.float32)])
        runtime.execute([runtime.copying(result, place)])
        runtime.copies.advance(runtime.copies.put)
    runtime.synchronize()
    assert [result[0] for result in results] == [*range(5)]


def test_a_first_feed_waits_for_what_used_its_memory_before() -> None:
    """A pool gives back what the compute stream still works with, as that of CuPy does."""

    class Pooled(SimulatedRuntime):
        pool: np.ndarray | None = None

        def empty(self, nbytes: int) -> np.ndarray:
            return super().empty(nbytes) if self.pool is None else self.pool[:nbytes]

    runtime = Pooled()
    place = device_array(runtime, (4,), np.float32)
    block = runtime.empty(1 << 10)
    runtime.execute([partial(block.fill, 0)])
    runtime.pool = block
    staged = Staged(runtime, [place])
    runtime.pool = None
    feeds = [np.ones(4, np.float32)]
    staged.bring(feeds)
    runtime.copies.advance(runtime.copies.put)
    staged.send(feeds)
    runtime.synchronize()
    assert place.tolist() == [1.0] * 4


def test_a_feed_does_not_wait_until_the_step_before_is_fetched() -> None:
    """A GPU copies both ways at once, and what is fetched waits for its step."""
    runtime = SimulatedRuntime()
    place, result = (device_array(runtime, (4,), np.float32) for _ in range(2))
    staged, outward = Staged(runtime, [place]), Outward(runtime, [result])
    under_way = [True]
    runtime.execute([lambda: NOT_YET if under_way else result.fill(3)])
    outward.send()
    feeds = [np.ones(4, np.float32)]
    staged.bring(feeds)
    assert runtime.copies.advance(runtime.copies.put)
    under_way.clear()
    staged.send(feeds)
    outward.wait()
    runtime.synchronize()
    assert (outward.arrays[0].tolist(), place.tolist()) == ([3.0] * 4, [1.0] * 4)


class Trained:
    """y = w x with a counter of steps, on a replica that is spoken to as a driver does."""

    def __init__(self, captures: bool = True, ids: bool = False) -> None:
        with own_programs() as (main, _start):
            x = fluid.data("x", [None, 4])
            steps = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="n")
            y = fluid.layers.scale(x, 2.0)
            if ids:
                y = fluid.layers.gather(y, fluid.data("ids", [None], "int64"))
            fluid.layers.increment(steps)
            total = fluid.layers.elementwise_add(y, steps)
        names = [y.name, total.name]
        self.runtime = SimulatedRuntime()
        able = capabilities(frozenset(self.runtime.versions()))
        feeds = ["x", "ids"] if ids else ["x"]
        program = compile_program(main, feeds, names, Target(), able, "cupy").program
        self.replica, self.epoch = Replica(0, None, runtime=self.runtime), 0
        options = RunOptions.sequential()
        options.build.allow_cuda_graph_capture = captures
        head = {"id": 1, "program": program.to_json(), "scope": 7, "functions": []}
        self.tell("load", {**head, "options": options.to_plain()})
        self.tell("write", {"scope": 7, "names": ["n"]}, [np.zeros(1, "float32")])

    def tell(self, kind: str, head: dict[str, Any], arrays: Any = (), step: int = 0) -> Message:
        answer = self.replica.handle(Message(kind, {"epoch": self.epoch, **head}, arrays, step))
        assert answer.kind != "error", answer.head
        return answer

    def step(self, x: np.ndarray, number: int = 0, *ids: np.ndarray) -> Arriving:
        head = {"id": 1, "rows": [0], "parts": [1.0], "idle": [False], "iterations": 1, "drop": []}
        arrays = self.tell("step", head, [x, *ids], number).arrays
        assert isinstance(arrays, Arriving)
        return arrays

    @property
    def plan(self) -> CudaPlan:
        plan = self.replica.programs[1].last
        assert isinstance(plan, CudaPlan)
        return plan


def test_what_is_fed_may_change_once_the_step_was_begun() -> None:
    trained = Trained()
    x = np.zeros((3, 4), "float32")
    results = []
    for k in range(6):
        x[...] = k
        arrived = trained.step(x, k)
        x[...] = np.nan
        results.append([np.array(a) for a in arrived])
    for k, (y, total) in enumerate(results):
        np.testing.assert_array_equal(y, np.full((3, 4), 2.0 * k))
        np.testing.assert_array_equal(total, np.full((3, 4), 2.0 * k + k + 1))


def test_what_is_fetched_arrives_while_the_next_step_runs() -> None:
    trained = Trained()
    x = np.ones((2, 4), "float32")
    before = trained.step(x)
    after = trained.step(3 * x, 1)
    np.testing.assert_array_equal(before[1], np.full((2, 4), 3.0))
    np.testing.assert_array_equal(after[1], np.full((2, 4), 8.0))


def test_nobody_waits_before_somebody_looks() -> None:
    trained = Trained()
    arrays = trained.step(np.ones((2, 4), "float32"))
    assert trained.runtime.compute.work
    arrays.wait()
    assert not trained.runtime.compute.work


def test_the_second_step_is_captured_and_others_are_launched() -> None:
    trained = Trained()
    x = np.ones((2, 4), "float32")
    for k in range(4):
        trained.step(x, k).wait()
        captured = [bool(one.graphs) for one in trained.plan.segments if len(one.steps) > 2]
        assert captured == [k > 0] * len(captured)
    trained = Trained(captures=False)
    for k in range(3):
        trained.step(x, k).wait()
    assert all(not one.graphs for one in trained.plan.segments)


def test_what_cuda_refuses_to_capture_goes_on_call_by_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: SimulatedRuntime, steps: Any) -> Any:
        raise NotImplementedError("not while a stream is captured")

    monkeypatch.setattr(SimulatedRuntime, "capture", refuse)
    trained = Trained()
    for k in range(3):
        total = trained.step(np.ones((2, 4), "float32"), k)[1]
        np.testing.assert_array_equal(total, np.full((2, 4), 3.0 + k))
    assert any("not captured: NotImplementedError" in line for line in trained.plan.described())


def test_a_step_is_not_blamed_for_a_wrong_id_of_the_one_behind_it() -> None:
    trained = Trained(ids=True)
    x = np.ones((2, 4), "float32")
    for k in range(5):  # called, captured, and launched; both slots of what is fetched
        good, bad = np.array([0, 1]), np.array([1, 2 + k])
        before, wrong = trained.step(x, 2 * k, good), trained.step(x, 2 * k + 1, bad)
        trained.runtime.synchronize()  # the GPU is far ahead of who reads
        np.testing.assert_array_equal(before[1], np.full((2, 4), 3.0 + k))
        with pytest.raises(ExecutionError, match=f"index {2 + k} is outside the 2 rows"):
            wrong.wait()
        trained.epoch += 1


def test_another_shape_has_a_plan_of_its_own_in_the_same_memory() -> None:
    trained = Trained()
    for k, rows in enumerate([2, 5, 2, 5, 2]):
        total = trained.step(np.full((rows, 4), 1.0, "float32"), k)[1]
        np.testing.assert_array_equal(total, np.full((rows, 4), 3.0 + k))
    assert len(trained.replica.programs[1].plans) <= 2


def test_a_larger_arena_lets_the_plans_on_the_old_one_go() -> None:
    trained = Trained()
    trained.step(np.ones((2, 4), "float32")).wait()
    trained.step(np.ones((1 << 12, 4), "float32"), 1).wait()
    assert len(trained.replica.programs[1].plans) == 1
    total = trained.step(np.ones((2, 4), "float32"), 2)[1]
    np.testing.assert_array_equal(total, np.full((2, 4), 5.0))


def test_values_that_are_written_come_before_the_next_step() -> None:
    trained = Trained()
    x = np.zeros((1, 4), "float32")
    value = np.full(1, 10.0, "float32")
    trained.step(x)
    trained.tell("write", {"scope": 7, "names": ["n"]}, [value])
    value[...] = np.nan
    np.testing.assert_array_equal(trained.step(x, 1)[1], np.full((1, 4), 11.0))
    (counter,) = trained.tell("read", {"scope": 7, "names": ["n"]}).arrays
    np.testing.assert_array_equal(counter, [11.0])


def test_timed_steps_compute_the_same() -> None:
    trained = Trained()
    trained.tell("trace", {"id": 1, "on": True})
    total = trained.step(np.ones((2, 4), "float32"))[1]
    np.testing.assert_array_equal(total, np.full((2, 4), 3.0))
    (step,) = trained.tell("trace", {"id": 1, "on": False}).head["steps"]
    assert step


def test_a_timed_step_makes_every_call_and_the_graphs_are_launched_behind_it() -> None:
    trained, launches = Trained(), list[int]()
    x = np.ones((2, 4), "float32")

    def traced(on: bool) -> list[Any]:
        return trained.tell("trace", {"id": 1, "on": on}).head["steps"]  # type: ignore[no-any-return]

    for k in range(6):
        if k in (3, 4):
            traced(on=k == 3)
        before = len(launches)
        total = trained.step(x, k)[1]
        assert len(launches) - before == (k in (2, 4, 5))
        np.testing.assert_array_equal(total, np.full((2, 4), 3.0 + k))
        if k == 1:  # captured
            (segment,) = trained.plan.segments
            ((key, graph),) = segment.graphs.items()

            def noted(graph: Any = graph) -> None:
                launches.append(1)
                graph()

            segment.graphs[key] = noted
    assert trained.plan.segments[0].graphs == {key: noted}
    traced(on=True)
    trained.step(x, 6)
    (step,) = [TracedStep.from_plain(plain) for plain in traced(on=False)][-1:]
    assert [event.op for event in step.events] == [i.op for i in trained.plan.instructions]
    assert all(event.ended > event.began for event in step.events)


def test_an_upload_is_not_waited_for_and_many_take_bounded_memory() -> None:
    runtime = SimulatedRuntime()
    uploads = Uploads(runtime)
    target = runtime.empty(8 << 20).view(np.float32)
    for k in range(20):
        uploads.send(target, np.full(target.shape, k, np.float32))
    assert len(uploads._sent) <= 10
    assert download(runtime, target)[5] == 19.0


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0)])
def test_room_for_an_array_has_its_order_in_memory(order: tuple[int, ...]) -> None:
    array = np.arange(120, dtype=np.int32).reshape(2, 3, 4, 5).transpose(order)
    room = dense_like(np.zeros(480, np.uint8), array)
    assert room.strides == array.strides
    assert room.shape == array.shape


def test_the_clock_is_that_of_the_step_however_late_it_is_read() -> None:
    runtime = SimulatedRuntime()
    memory = DeviceMemory(runtime)
    seen = []
    for step in range(9):
        memory.tick(step, 10 * step)
        runtime.execute([lambda: seen.append(tuple(memory.ticks[:2]))])
    runtime.synchronize()
    assert seen == [(step, 10 * step) for step in range(9)]
