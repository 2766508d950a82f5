"""GPUs that vote on a step by themselves: the host is a step behind, and all write a step or none does."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.device_vote import DeviceVote
from rowlock.executor.cuda.runtime import Fork
from rowlock.executor.device.device import Device
from rowlock.executor.kernels.cuda.by_index import rows_of
from rowlock.executor.replica.message import Message
from rowlock.executor.simulated.simulated import SimulatedRuntime
from rowlock.strategies.build import BuildStrategy
from tests.cluster.test_nccl_programs import WIDTH, bound, compiled, loaded
from tests.contract.crews import Crew, arrived, crew

pytestmark = pytest.mark.cuda
WEIGHT = "create_parameter_0.w_0"
REDUCE = BuildStrategy.ReduceStrategy.Reduce


class Team:
    """A crew whose replicas are given steps without waiting for the answers."""

    def __init__(self, members: Crew, fetches: Any = (WEIGHT,), **switches: Any) -> None:
        self.members = members
        self.model, self.values = compiled(members.size, fetches=fetches, **switches)
        loaded(members, self.model, self.values)

    def launch(self, number: int, narrow: int | None = None) -> dict[int, Message]:
        """Give every rank a step; return what each answers at once. ``narrow``: whose feed is wrong."""
        head = {"id": 1, "rows": [0], "parts": [1.0], "idle": [False], "iterations": 1, "drop": []}
        head["epoch"] = self.members.epoch

        def handle(rank: int) -> Message:
            x = np.random.default_rng([number, rank]).standard_normal((4, WIDTH)).astype("f4")
            fed = x[:, 1:] if rank == narrow else x
            message = Message("step", head, [fed, x.sum(1, keepdims=True)], number)
            return self.members.replicas[rank].handle(message)

        return self.each(handle)

    def each(self, call: Any) -> dict[int, Any]:
        with ThreadPoolExecutor(self.members.size) as pool:
            return dict(enumerate(pool.map(call, range(self.members.size))))

    def land(self, answers: Mapping[int, Message]) -> dict[int, Message]:
        """Return the answers once they are there."""
        return self.each(lambda rank: arrived(self.members.replicas[rank], answers[rank]))

    def done(self) -> list[int]:
        return [replica.done for replica in self.members.replicas]

    def step(self, number: int) -> None:
        assert all(a.kind == "fetched" for a in self.land(self.launch(number)).values())


def after(steps: int, kind: str = "nccl") -> Any:
    """Return what rank 0 holds after steps that were each waited for."""
    with crew(kind, 2, 20.0) as members:
        team = Team(members, on_gpus=kind == "nccl")
        for number in range(steps):
            team.step(number)
        return members.held()[0]


def test_a_step_is_one_graph_and_the_host_learns_of_it_a_step_later() -> None:
    with crew("nccl", 2, 20.0) as members:
        team = Team(members)
        for number in range(2):  # the second one is captured: nothing is under way then
            team.step(number)
        under_way = [team.launch(number) for number in (2, 3)]
        assert team.done() == [2, 2], "no host has looked"
        under_way.append(team.launch(4))
        assert team.done() == [3, 3], "the oldest is waited for before one more is put behind"
        for answers in under_way:
            weights = [answer.arrays[0] for answer in team.land(answers).values()]
            assert (weights[0] == weights[1]).all()
        assert team.done() == [5, 5]
        graphs = [segment for segment in bound(members, 0).segments if segment.capturable]
        assert len(graphs) == len(bound(members, 0).segments) == 1
        states = members.held()
    assert states[0] == states[1] == after(5)
    for (key, bits), expected in zip(states[0].items(), after(5, "memory").values(), strict=True):
        value, known = np.frombuffer(bits, "f4"), np.frombuffer(expected, "f4")
        np.testing.assert_allclose(value, known, rtol=1e-5, atol=1e-6, err_msg=str(key))


def test_a_rank_that_gives_up_keeps_all_from_writing_this_step_and_those_behind() -> None:
    with crew("nccl", 2, 20.0) as members:
        team = Team(members)
        for number in range(3):
            team.step(number)
        before = members.held()
        under_way = [team.launch(number) for number in (3, 4)]
        members.replicas[1].group.abort("it was told to")  # type: ignore[union-attr]
        for answers in under_way:
            for answer in team.land(answers).values():
                assert answer.kind == "error" and answer.head["collateral"], answer
                assert answer.head["done"] == 3 and "was told to" in answer.head["text"]
        assert members.held() == before
        members.epoch += 1
        for number in (3, 4):
            team.step(number)
        states = members.held()
    assert states[0] == states[1] == after(5)


def test_a_rank_whose_next_step_fails_ends_the_one_before_first() -> None:
    with crew("nccl", 2, 20.0) as members:
        team = Team(members)
        for number in range(3):
            team.step(number)
        well, failing = team.launch(3), team.launch(4, narrow=1)
        assert failing[1].kind == "error" and not failing[1].head["collateral"]
        assert failing[1].head["done"] == 4
        assert all(answer.kind == "fetched" for answer in team.land(well).values())
        assert all(answer.kind == "error" for answer in team.land(failing).values())
        assert team.done() == [4, 4]
        states = members.held()
    assert states[0] == states[1] == after(4)


def test_a_rank_that_heard_from_all_writes_though_another_is_gone_and_their_counts_differ() -> None:
    with crew("nccl", 2, 20.0) as members:
        groups = [replica.group for replica in members.replicas]
        streams = [group.runtime.compute for group in groups]  # type: ignore[union-attr]
        votes = [group.device_vote for group in groups]  # type: ignore[union-attr]
        for group in groups:
            for _ in range(2):
                group.runtime.execute(group.bound_vote(_word(group.runtime)))  # type: ignore[union-attr]
        assert not streams[0].advance(streams[0].put), "it offered, and waits for the other one"
        groups[0].abort("its GPU is gone")  # type: ignore[union-attr]
        while votes[1].reached < 1:  # type: ignore[union-attr]
            streams[1].advance(streams[1].put)
        groups[1].abort("its peer is gone")  # type: ignore[union-attr]
        for stream in streams:
            stream.reach(stream.put)
        assert [vote.reached for vote in votes] == [0, 1]  # type: ignore[union-attr]
        assert [int(vote.go[0]) for vote in votes] == [0, 0], "of the second step"  # type: ignore[union-attr]


def _word(runtime: Any) -> Any:
    """Return a word of device memory that says that nothing failed."""
    word = runtime.empty(8).view(np.int64)
    word.fill(0)
    return word


def test_a_kernel_that_finds_a_wrong_operand_keeps_all_from_writing() -> None:
    with crew("nccl", 2, 20.0) as members:
        team = Team(members)
        for number in range(3):
            team.step(number)
        _, other = members.replicas
        device = Device(runtime=other.runtime, memory=other.memory)
        device.next_instruction("out", operands=("table", "ids"), op="gather", where="here")
        well = team.launch(3)
        other.runtime.execute(rows_of(device, "gather", np.array([0, 7]), 5))  # type: ignore[union-attr]
        failing = team.launch(4)
        assert all(answer.kind == "fetched" for answer in team.land(well).values())
        answers = team.land(failing)
        assert [answers[rank].head["collateral"] for rank in range(2)] == [True, False]
        text = "replica 1: operator gather failed: gather: index 7 is outside the 5 rows (0 to 4)"
        assert answers[1].head["text"] == f"{text} (reads table, ids; built at here)"
        states = members.held()
        assert states[0] == states[1] == after(4)
        members.epoch += 1
        team.step(4)
        states = members.held()
    assert states[0] == states[1] == after(5)


def test_what_was_offered_before_does_not_pass_for_a_number_of_this_step() -> None:
    runtime = SimulatedRuntime()
    vote = DeviceVote(runtime, ranks=3)
    # In the third step one rank offered what it had before.
    sums = [3, 6, 8, 9, 12]

    class Sum(Fork):
        def __call__(self) -> None:
            vote.sum[0] = sums.pop(0)

        def finish(self) -> None:  # type: ignore[override]
            """It is there at once."""

    decisions = []
    while sums:
        runtime.execute(vote.steps(Sum(), _word(runtime)))
        runtime.synchronize()
        decisions.append((vote.reached, int(vote.go[0])))
    assert decisions == [(1, 1), (2, 1), (2, 0), (2, 0), (2, 0)]
    vote.reset()
    sums.append(3)
    runtime.execute(vote.steps(Sum(), _word(runtime)))
    runtime.synchronize()
    assert vote.reached == 1


@pytest.mark.parametrize(
    ("fetches", "switches"), [(None, {}), ((WEIGHT,), {"reduce_strategy": REDUCE})]
)
def test_hosts_vote_where_a_rank_alone_has_what_is_wanted(fetches: Any, switches: Any) -> None:
    with crew("nccl", 2, 20.0) as members:
        team = Team(members, fetches, **switches)
        team.step(0)
        plan = bound(members, 0)
        assert plan.vote is not None and plan.vote.on_device is None
        assert team.done() == [1, 1]
