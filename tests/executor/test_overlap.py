"""Collectives run beside the backward pass where that pays, and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.gang import thread_group
from rowlock.executor.plan import emission, overlap
from rowlock.executor.plan.run import Event, deal
from rowlock.graph.ops.collective import COLLECTIVES
from rowlock.strategies.errors import ExecutionError
from tests.contract.nets import Net, assert_close, feed

LAYERS = 6
SLOW_S = 0.03
BUCKETS = {"launcher": "threads", "bucket_bytes": 48}  # one for each weight, more or less


class Trouble:
    """What is to go wrong, once, on which rank: "all_reduce" or "compute"."""

    def __init__(self) -> None:
        self.where, self.rank = "", -1

    def befalls(self, where: str, rank: int | None) -> None:
        time.sleep(SLOW_S)
        if (where, rank) == (self.where, self.rank):
            self.where = ""
            raise ValueError("a cosmic ray")


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trouble]:
    """Two replicas that are threads, on which every all-reduce and every matrix gradient takes a while."""
    trouble = Trouble()
    quick = thread_group.ThreadGroup.bound_all_reduce

    def bound_all_reduce(self: thread_group.ThreadGroup, *args: Any, **how: Any) -> Any:
        call = quick(self, *args, **how)
        return lambda: (call(), trouble.befalls("all_reduce", self.rank))

    kernel = emission.Emission._kernel

    def bound_kernel(self: emission.Emission, node: Any, *means: Any) -> Any:
        slow = (
            [partial(trouble.befalls, "compute", self.part.peers.rank)]
            if _is_product(node.op)
            else []
        )
        return [*kernel(self, node, *means), *slow]

    monkeypatch.setattr(thread_group.ThreadGroup, "bound_all_reduce", bound_all_reduce)
    monkeypatch.setattr(emission.Emission, "_kernel", bound_kernel)
    with rowlock.cluster(**BUCKETS):
        yield trouble


def _is_product(op: str) -> bool:
    return op.startswith("mul") and op.endswith("_grad")


def trained(steps: int, **execution: Any) -> tuple[Net, Any]:
    """Return a net after some steps on two places."""
    net = Net(layers=LAYERS)
    program = net.compiled(2, execution=execution)
    program.trace()
    for step in range(steps):
        net.run(program, feed(6, step), [net.loss])
    return net, program


def meet(a: Event, b: Event) -> bool:
    return min(a.ended, b.ended) > max(a.began, b.began)


def met(events: list[Event]) -> int:
    """Return how many collectives of a step with two lanes ran beside computation."""
    talking = [e for e in events if e.op in COLLECTIVES]
    assert len(talking) > LAYERS and {e.lane for e in talking} == {1}
    computing = [e for e in events if e.op not in COLLECTIVES and e.op != "fetch"]
    assert {e.lane for e in computing} == {0}
    return sum(any(meet(t, c) for c in computing) for t in talking)


def test_communication_hides_behind_the_backward_pass(trouble: Trouble) -> None:
    net, program = trained(5)
    other, in_order = trained(5, num_threads=1)
    hidden = 0
    for step in range(5, 11):
        for each, run in ((net, program), (other, in_order)):
            each.run(run, feed(6, step), [each.loss])
        hidden = max(hidden, min(map(met, program.executed())))
        if hidden >= LAYERS - 1:
            break
    assert hidden >= LAYERS - 1, "others may take the processor in some steps, but not in all"
    assert_close(net.parameters(), other.parameters(), 0)
    assert all(e.lane == 0 for events in in_order.executed() for e in events)


def test_a_failure_in_either_lane_undoes_the_step(trouble: Trouble) -> None:
    net, program = trained(4)
    failures = [(where, rank) for where in ("all_reduce", "compute") for rank in (0, 1)]
    for step, (where, rank) in enumerate(failures, 4):
        assert min(program.signals()) > 0
        before = net.parameters()
        trouble.where, trouble.rank = where, rank
        with pytest.raises(fluid.core.EnforceNotMet, match=f"replica {rank}.*a cosmic ray"):
            net.run(program, feed(6, step), [net.loss])
        assert_close(net.parameters(), before, 0)
        net.run(program, feed(6, step), [net.loss])
    expected, _ = trained(8, num_threads=1)
    assert_close(net.parameters(), expected.parameters(), 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"execution": {"num_threads": 1}},
        {"build": {"enable_sequential_execution": True}},
        {"build": {"sequential_run": True}},
    ],
    ids=["one thread", "enable_sequential_execution", "sequential_run"],
)
def test_strict_order_has_no_lanes(trouble: Trouble, settings: dict[str, Any]) -> None:
    net = Net(layers=LAYERS)
    program = net.compiled(2, **settings)
    for step in range(4):
        net.run(program, feed(6, step), [net.loss])
    assert program.signals() == [0, 0]


def test_a_small_step_stays_as_it_is() -> None:
    """One bucket is the last thing before the writes: there is nothing to run beside it."""
    with rowlock.cluster(launcher="threads"):
        net = Net()
        program = net.compiled(2)
        for step in range(4):
            net.run(program, feed(6, step), [net.loss])
        assert program.signals() == [0, 0]
        assert not overlap.may_overlap(_loaded(program).program)


def test_quick_collectives_are_not_worth_a_lane() -> None:
    with rowlock.cluster(**BUCKETS):
        net = Net(layers=2)
        program = net.compiled(2)
        for step in range(4):
            net.run(program, feed(6, step), [net.loss])
        assert overlap.may_overlap(_loaded(program).program)


def _loaded(program: Any) -> Any:
    (entry,) = program._parallel.gang.delivery.replicas[0].programs.values()
    return entry


def test_what_a_lane_for_communication_promises() -> None:
    """compute 3 x 10 ms; after each a collective of 8 ms; the last is the vote, which needs all."""
    seconds = [0.010, 0.008, 0.010, 0.008, 0.010, 0.008]
    needs: list[set[int]] = [set(), {0}, set(), {1, 2}, set(), {0, 1, 2, 3, 4}]
    waits = dict.fromkeys((1, 3, 5), 0.0)
    chosen, expected = deal(seconds, needs, 1, waits)
    assert chosen == [0, 1, 0, 1, 0, 1]
    assert expected == pytest.approx(0.038, abs=3e-4)
    # Work that a processor does is not hidden where there is but one: two of three are done beside compute.
    _, expected = deal(seconds, needs, 1, dict.fromkeys((1, 3, 5), 0.008))
    assert expected == pytest.approx(0.054, abs=3e-4)


def test_short_instructions_stay_off_the_lane_for_communication() -> None:
    chosen, _ = deal([1e-3, 1e-3, 1e-6], [set(), {0}, {1}], 2, {1: 0.0})
    assert chosen[1] == 2 and chosen[2] < 2


def test_a_lane_for_communication_waits_as_long_as_others_get_on() -> None:
    from rowlock.executor.plan.instruction import Instruction
    from rowlock.executor.plan.run import Lanes

    steps = [Instruction("slow", (), (str(i),), "user.py:1", ()) for i in range(4)]
    no_failure: Any = None
    lanes = Lanes(steps, [0] * 4, [set()] * 4, every_lock=False, within=2.0, on_failure=no_failure)

    class Lock:
        """Is released behind the last of so many steps; each takes as long as a lane may wait."""

        def __init__(self, *ahead: Instruction) -> None:
            self.ahead = iter(ahead)

        def acquire(self, timeout: float) -> bool:
            assert timeout == 2.0
            lanes.at[0] = next(self.ahead)
            return lanes.at[0] is steps[-1]

    lanes._wait([Lock(*steps)])  # type: ignore[list-item]
    with pytest.raises(ExecutionError, match="did not finish within 2"):
        lanes._wait([Lock(steps[1], steps[1])])  # type: ignore[list-item]


def test_ranks_may_choose_differently(trouble: Trouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """One replica has a lane for communication, the other has not."""
    from rowlock.executor.replica import steps

    expected, _ = trained(5, num_threads=1)
    choose = steps.choose

    def only_one(plan: Any, *args: Any, **how: Any) -> Any:
        return choose(plan, *args, **how) if plan._replica == 0 else None

    monkeypatch.setattr(steps, "choose", only_one)
    net, program = trained(5)
    first, second = program.signals()
    assert first > 0 and second == 0
    np.testing.assert_equal(net.parameters(), expected.parameters())
