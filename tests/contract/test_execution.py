"""How a step is run: ExecutionStrategy, and what BuildStrategy says about order and locks."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.plan.instruction import Instruction
from rowlock.executor.plan.run import Event, LaneFailed, Lanes, deal, dependencies, worth_dealing
from rowlock.strategies.execution import ExecutionStrategy
from tests.conftest import one_in
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.programs import on_places, own_programs

COLLECTIVES = ("fused_all_reduce", "fused_reduce", "fused_broadcast")


# -- the life of temporaries ----------------------------------------------------------------------


@pytest.mark.parametrize("every", [0, 1, 3])
def test_temporaries_end_their_life_on_schedule(gang: str, every: int) -> None:
    net = Net()
    program = net.compiled(2, execution={"num_iteration_per_drop_scope": every})
    assert program.temporaries() == (0, 0)
    alive = []
    for step in range(6):
        net.run(program, feed(4, step), [])
        alive.append(program.temporaries()[0] > 0)
    assert alive == {0: [True] * 6, 1: [False] * 6, 3: [True, True, False] * 2}[every]
    net.run(program, feed(4), [])
    assert (program.temporaries()[1] > 0) == (every != 1)
    net.run(program, feed(4), [net.loss])  # a step that fetches drops at its end
    assert program.temporaries() == (0, 0)


def test_temporaries_are_counted_by_bytes(threads: None) -> None:
    net = Net()
    alone = {"memory_optimize": False, "enable_inplace": False}
    program = net.compiled(1, net.test, alone, execution={"num_iteration_per_drop_scope": 0})
    net.run(program, feed(100), [])
    count, nbytes = program.temporaries()
    # x, y; mul, add, tanh of 3; mul, add of 1; difference, square; mean
    assert count >= 9 and nbytes >= 4 * 100 * (4 + 1 + 3 * 3 + 2 + 2)
    net.run(program, feed(200), [])
    assert program.temporaries()[0] == count and program.temporaries()[1] > 1.5 * nbytes


def test_drop_local_exe_scopes(gang: str) -> None:
    net = Net()
    program = net.compiled(2, execution={"num_iteration_per_drop_scope": 10})
    with pytest.raises(TypeError, match="nothing was run yet"):
        program.drop_local_exe_scopes()
    net.run(program, feed(4), [])
    assert program.temporaries()[1] > 0
    program.drop_local_exe_scopes()
    assert program.temporaries() == (0, 0)
    net.run(program, feed(4), [net.loss])


# -- several steps in a call ----------------------------------------------------------------------


@pytest.mark.parametrize("places", [1, 3])
def test_a_call_runs_several_steps_and_returns_the_last(gang: str, places: int) -> None:
    net, other = Net(OPTIMIZERS["adam"], drop=0.2), Net(OPTIMIZERS["adam"], drop=0.2)
    many = net.compiled(places, execution={"num_iteration_per_run": 4})
    one = other.compiled(places)
    for call in range(2):
        (loss,) = net.run(many, feed(6, call), [net.loss])
        expected = [other.run(one, feed(6, call), [other.loss])[0] for _ in range(4)]
        np.testing.assert_array_equal(loss, expected[-1])
    assert_close(net.parameters(), other.parameters(), 0)


def test_steps_in_a_call_count_for_dropping(threads: None) -> None:
    net = Net()
    settings = {"num_iteration_per_run": 2, "num_iteration_per_drop_scope": 4}
    program = net.compiled(2, execution=settings)
    alive = []
    for step in range(4):
        net.run(program, feed(4, step), [])
        alive.append(program.temporaries()[0] > 0)
    assert alive == [True, False, True, False]


# -- threads --------------------------------------------------------------------------------------


def test_threads_are_read_back_as_documented(threads: None) -> None:
    settings = ExecutionStrategy()
    net = Net()
    program = on_places(net.main, 2, net.loss, execution=settings)
    assert settings.num_threads == 0
    net.run(program, feed(4), [])
    assert settings.num_threads == 8


class Branches:
    """Two chains of long matrix products that need nothing of each other, and their sum."""

    SIZE = 800

    def __init__(self) -> None:
        self.scope = fluid.Scope()
        with own_programs(1) as (self.main, startup):
            x = fluid.data("x", [None, self.SIZE])
            tops = []
            for _ in range(2):
                top = x
                for _ in range(3):
                    top = fluid.layers.fc(top, self.SIZE, act="relu")
                tops.append(top)
            self.loss = fluid.layers.mean(fluid.layers.elementwise_add(*tops))
            fluid.optimizer.SGD(0.1).minimize(self.loss)
        self.exe = fluid.Executor()
        self.exe.run(startup, scope=self.scope)
        self.feed = {"x": np.random.default_rng(0).random((self.SIZE, self.SIZE), "float32")}

    def dealt(self, places: int, build: Any = None) -> tuple[Any, np.ndarray]:
        """Run on two threads; again, where a busy host made the times of a step say that they are no gain."""
        for _ in range(8):
            program, loss = self.run(places, build, num_threads=2)
            if all(
                lanes(events) == {0, 1} and at_once(events) > 1 for events in program.executed()
            ):
                break
        return program, loss

    def run(self, places: int, build: Any = None, **execution: Any) -> tuple[Any, np.ndarray]:
        program = on_places(self.main, places, self.loss, build=build or {}, execution=execution)
        program.trace()
        for _ in range(4):
            (loss,) = self.exe.run(program, self.feed, [self.loss], scope=self.scope)
        return program, loss


def lanes(events: list[Event]) -> set[int]:
    """Which threads compute."""
    return {e.lane for e in events if e.op not in (*COLLECTIVES, "fetch")}


def at_once(events: list[Event]) -> int:
    """How many instructions were under way together, at most."""
    marks = sorted([(e.began, 1) for e in events] + [(e.ended, -1) for e in events])
    running = most = 0
    for _, change in marks:
        running += change
        most = max(most, running)
    return most


@pytest.mark.cpu
@pytest.mark.parametrize("places", one_in(2, [1, 2]))
def test_long_independent_instructions_run_at_once(gang: str, places: int) -> None:
    program, loss = Branches().dealt(places)
    for events in program.executed():
        assert lanes(events) == {0, 1} and at_once(events) > 1
    in_turn, expected = Branches().run(places, num_threads=1)
    for events in in_turn.executed():
        assert {event.lane for event in events} == {0}
        assert all(a.ended <= b.began for a, b in pairwise(events))
    np.testing.assert_array_equal(loss, expected)


@pytest.mark.cpu
def test_unneeded_signals_are_removed(threads: None) -> None:
    """remove_unnecessary_lock: threads signal only what the order within a thread does not tell already."""
    spare, first = Branches().dealt(1)
    every, second = Branches().dealt(1, {"remove_unnecessary_lock": False})
    assert 0 < spare.signals()[0] < every.signals()[0] / 2
    np.testing.assert_array_equal(first, second)


def test_a_failure_in_one_lane_releases_the_others() -> None:
    """The second lane fails while the first waits for it; the step after that runs."""
    fails, before = [True], threading.enumerate()
    done: list[str] = []

    def second() -> None:
        if fails[0]:
            raise ValueError("row 9 of 5")
        done.append("second")

    instructions = [
        Instruction("first", (), ("a",), "user.py:1", (lambda: done.append("first"),)),
        Instruction("second", (), ("b",), "user.py:2", (second,)),
        Instruction("third", ("a", "b"), ("c",), "user.py:3", (lambda: done.append("third"),)),
    ]
    failures: list[str] = []
    lanes = Lanes(
        instructions,
        [0, 1, 0],
        [set(), set(), {0, 1}],
        every_lock=False,
        within=60.0,
        on_failure=failures.append,
    )
    with pytest.raises(LaneFailed) as caught:
        lanes.run()
    assert caught.value.instruction.op == "second" and "third" not in done
    assert isinstance(caught.value.__cause__, ValueError) and failures == ["second: row 9 of 5"]
    fails[0] = False
    done.clear()
    for _ in range(100):
        lanes.run()
    assert done.count("third") == 100 and done[-1] == "third"
    lanes.close()
    new = [thread for thread in threading.enumerate() if thread not in before]
    assert not [thread for thread in new if "lane" in thread.name]


def test_a_lane_that_hangs_meets_the_deadline() -> None:
    free = threading.Event()
    instructions = [
        Instruction("slow", (), ("a",), "user.py:1", (lambda: free.wait(60),)),
        Instruction("next", ("a",), ("b",), "user.py:2", (lambda: None,)),
    ]
    lanes = Lanes(
        instructions,
        [1, 0],
        [set(), {0}],
        every_lock=False,
        within=0.1,
        on_failure=lambda reason: free.set(),
    )
    with pytest.raises(LaneFailed) as caught:
        lanes.run()
    assert "did not finish within 0.1 s" in str(caught.value.__cause__)
    lanes.close()


def test_instructions_are_dealt_by_what_they_took() -> None:
    long, short = 1e-3, 1e-6
    # Two long chains of two, a short head and a short tail.
    seconds = [short, long, long, long, long, short]
    needs: list[set[int]] = [set(), {0}, {1}, {0}, {3}, {2, 4}]
    lanes, expected = deal(seconds, needs, 2)
    assert lanes[1] == lanes[2] != lanes[3] == lanes[4]
    assert expected < 0.6 * sum(seconds) and worth_dealing(seconds, expected)
    chain: list[set[int]] = [set(), {0}, {1}, {2}, {3}, {4}]
    _, expected = deal(seconds, chain, 4)
    assert not worth_dealing(seconds, expected)


def test_dependencies_keep_every_hazard() -> None:
    reads = [[], [1], [2], [], [3]]
    writes = [[1], [2], [3], [1], [4]]  # 3 overwrites what 1 read
    assert dependencies(reads, writes, []) == [set(), {0}, {1}, {0, 1}, {2}]
    assert dependencies([[], []], [[1], [2]], [0, 1]) == [set(), {0}]


# -- order ----------------------------------------------------------------------------------------


def order_of(net: Net, program: Any) -> list[list[str]]:
    program.trace()
    net.run(program, feed(6), [])
    return [[event.op for event in place] for place in program.executed()]


@pytest.mark.parametrize("field", ["enable_sequential_execution", "sequential_run"])
def test_program_order(gang: str, field: str) -> None:
    net = Net(OPTIMIZERS["adam"], layers=3)
    written = [op.type for op in net.main.global_block().ops]
    settings = {"allow_op_delay": True, "num_threads": 4}
    program = net.compiled(2, build={field: True}, execution=settings)
    for executed in order_of(net, program):
        assert [op for op in executed if op not in (*COLLECTIVES, "fetch")] == written


def test_collectives_may_be_delayed(gang: str) -> None:
    """allow_op_delay: a collective waits until something reads its result."""
    build = {"fuse_all_reduce_ops": False}
    net, other = Net(layers=3), Net(layers=3)
    prompt = net.compiled(2, build=build)
    late = other.compiled(2, build=build, execution={"allow_op_delay": True})
    for executed in order_of(net, prompt):
        first = executed.index("fused_all_reduce")
        # backward goes on after the first
        assert any(op.endswith("_grad") for op in executed[first:])
    for executed in order_of(other, late):
        first = executed.index("fused_all_reduce")
        assert not any(op.endswith("_grad") for op in executed[first:])
        assert sorted(executed) == sorted(order_of(net, prompt)[0])
    other.run(late, feed(6), [])
    net.run(net.compiled(2), feed(6), [])


def test_a_barrier_ends_each_step(gang: str) -> None:
    net = Net()
    program = net.compiled(
        2, net.test, execution={"use_thread_barrier": True, "num_iteration_per_run": 3}
    )
    for executed in order_of(net, program):
        assert executed[-1] == "replica_barrier"
    plain = net.compiled(2, net.test)
    assert all("replica_barrier" not in executed for executed in order_of(net, plain))


def collectives(program: Any) -> list[int]:
    return [len(n.reads()) for n in program.explain().graph.nodes if n.op in COLLECTIVES]


def test_bucket_sizes(threads: None) -> None:
    """Gradients in order of completion, in bytes: fc_1.b 4, fc_1.w 12, fc_0.b 12, fc_0.w 48."""
    net = Net()

    def buckets(**build: Any) -> list[int]:
        program = net.compiled(2, build=build)
        net.run(program, feed(4), [])
        return collectives(program)

    assert buckets() == [4]
    assert buckets(fuse_all_reduce_ops=False) == [1, 1, 1, 1]
    try:
        fluid.set_flags({"FLAGS_fuse_parameter_memory_size": 28 / 2**20})
        assert buckets() == [3, 1]
        fluid.set_flags(
            {"FLAGS_fuse_parameter_memory_size": -1.0, "FLAGS_fuse_parameter_groups_size": 2}
        )
        assert buckets() == [2, 2]
    finally:
        fluid.set_flags(
            {"FLAGS_fuse_parameter_memory_size": -1.0, "FLAGS_fuse_parameter_groups_size": 1}
        )
    import rowlock

    with rowlock.cluster(launcher="threads", bucket_bytes=16):
        assert buckets() == [2, 1, 1]
