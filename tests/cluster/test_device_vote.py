"""GPUs that vote on a step by themselves: the host is a step behind, and all write a step or none does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.device_vote import DeviceVote
from rowlock.executor.cuda.runtime import Fork
from rowlock.executor.device.device import Device
from rowlock.executor.kernels.cuda.by_index import rows_of
from rowlock.executor.plan.part import gpus_can_vote
from rowlock.executor.replica.message import Message
from rowlock.executor.replica.undecided import UndecidedSteps
from rowlock.executor.simulated.simulated import SimulatedRuntime
from rowlock.executor.simulated.streams import NOT_YET, SimulatedStream
from rowlock.graph.ir.replica_program import ReplicaProgram
from rowlock.graph.ops.collective import ALL_REDUCE
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import CollectiveAborted
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

    def launch(
        self, number: int, narrow: int | None = None, waits: bool = False
    ) -> dict[int, Message]:
        """Give every rank a step; return what each answers at once, or, if it ``waits``, once it has arrived.

        ``narrow``: whose feed is wrong.
        """
        head = {"id": 1, "rows": [0], "parts": [1.0], "idle": [False], "iterations": 1, "drop": []}
        head["epoch"] = self.members.epoch

        def handle(rank: int) -> Message:
            x = np.random.default_rng([number, rank]).standard_normal((4, WIDTH)).astype("f4")
            fed = x[:, 1:] if rank == narrow else x
            message = Message("step", head, [fed, x.sum(1, keepdims=True)], number)
            answer = self.members.replicas[rank].handle(message)
            return arrived(self.members.replicas[rank], answer) if waits else answer

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


@pytest.mark.parametrize("ranks", [[0], [0, 1]])
def test_a_step_that_some_time_is_voted_on_as_any_other(ranks: list[int]) -> None:
    with crew("nccl", 2, 20.0) as members:
        team = Team(members)
        for number in range(5):
            if number in (3, 4):
                head = {"id": 1, "on": number == 3}
                members.tell({rank: Message("trace", head, []) for rank in ranks})
            # A simulated GPU goes on while its host looks.
            answers = team.launch(number, waits=True)
            assert all(answer.kind == "fetched" for answer in answers.values()), answers
            assert team.done() == [number + 1] * 2
        states = members.held()
    assert states[0] == states[1] == after(5)


def test_no_step_is_undecided_while_another_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture waits for the GPU without a deadline, and a peer that is lost ends no step."""
    undecided: list[int] = []
    with crew("nccl", 2, 20.0) as members:
        team, capture = Team(members), SimulatedRuntime.capture

        def noted(runtime: SimulatedRuntime, steps: Any) -> Any:
            undecided.append(len(members.replicas[runtime.index]._undecided))
            return capture(runtime, steps)

        monkeypatch.setattr(SimulatedRuntime, "capture", noted)
        for answers in [team.launch(number) for number in range(2)]:
            team.land(answers)
    assert undecided == [0, 0]


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


@pytest.mark.parametrize(
    ("captured", "apart"), [(False, 6), pytest.param(True, 1, marks=pytest.mark.slow)]
)
def test_wherever_a_gpu_stops_each_rank_writes_all_of_a_step_or_nothing(
    captured: bool, apart: int
) -> None:
    """A rank gives up when its GPU has done so much of a step; then the furthest one's values are copied."""
    counts = set[tuple[int, ...]]()
    with crew("nccl", 2, 20.0) as members:
        team, states = Team(members), [after(0)]
        point = pieces = 0
        while point <= pieces:
            for _ in range(2 if captured else 0):
                states.append(_learned(team, len(states) - 1))
            number = len(states) - 1
            groups: list[Any] = [replica.group for replica in members.replicas]
            answers, stream = team.launch(number), groups[0].runtime.compute
            pieces = -(-(stream.put - stream.did) // apart) * apart  # the last point is behind all
            go_on = _stop(stream, point)
            _advance(groups)
            groups[0].abort("its GPU is gone")
            go_on()
            _advance(groups)  # before any host looks
            team.land(answers)
            done, reached = team.done(), members.held()
            counts.add(tuple(count - number for count in done))
            members.epoch += 1
            _even(team)
            states.append(_learned(team, number) if max(done) == number else members.held()[0])
            for state, count in zip(reached, done, strict=True):
                assert state == states[count], f"behind {point} of {pieces} pieces: {done}"
            point += apart
    assert {(0, 0), (1, 1)} <= counts <= {(0, 0), (0, 1), (1, 1)}
    assert states[-1] == after(len(states) - 1)


def _learned(team: Team, number: int) -> Any:
    """Return what all hold after a step."""
    team.step(number)
    states = team.members.held()
    assert states[0] == states[1]
    return states[0]


def _stop(stream: SimulatedStream, point: int) -> Callable[[], None]:
    """Let a stream do some pieces of its work and no more; return what lets it go on."""
    closed = [True]
    if point < len(stream.work):
        piece = stream.work[point]
        stream.work[point] = lambda: NOT_YET if closed else piece()
    return closed.clear


def _advance(groups: Any) -> None:
    """Let GPUs go on as far as they come."""
    streams = [s for group in groups for s in (group.runtime.compute, group._communicator.stream)]
    rounds = 0  # in which nothing came of it
    while rounds < 5:
        before = [stream.did for stream in streams]
        for stream in streams:
            stream.advance(stream.put)
        rounds = rounds + 1 if [stream.did for stream in streams] == before else 0
        time.sleep(2e-4 if rounds else 0)


def _even(team: Team) -> None:
    """Copy the values of a rank that did most steps to one that did fewer, as a driver does."""
    done, (first, second) = team.done(), team.members.replicas
    if done[0] == done[1]:
        return
    source, target = (first, second) if done[0] > done[1] else (second, first)
    head = {"epoch": team.members.epoch, "scope": 1}
    names = list(source.scopes[1].arrays)
    values = source.handle(Message("read", {**head, "names": names}, [])).arrays
    assert target.handle(Message("write", {**head, "names": names}, values)).kind == "ok"
    target.handle(Message("resume", {"epoch": head["epoch"], "done": max(done)}, []))


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
        # GPUs do not wait for their hosts
        _advance([replica.group for replica in members.replicas])
        answers = team.land(well)
        assert all(answer.kind == "fetched" for answer in answers.values()), answers
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


def test_a_rank_that_gave_up_failed_or_stopped_offers_nothing() -> None:
    """Whatever its peers get of a bucket that it left: NCCL tells them that data has come."""
    runtime, offered = SimulatedRuntime(), list[int]()
    vote, failed = DeviceVote(runtime, ranks=2), _word(runtime)

    class Sum(Fork):
        apart = False

        def __call__(self) -> None:
            offered.append(int(vote.sum[0]))
            vote.sum[0] = 0 if self.apart else 2 * vote.sum[0]

        def finish(self) -> None:  # type: ignore[override]
            """It is there at once."""

    reduce = Sum()

    def step() -> None:
        runtime.execute(vote.steps(reduce, failed))
        runtime.synchronize()

    step()
    step()
    vote.give_up()
    step()
    assert (offered, vote.reached) == ([1, 2, 0], 2)
    vote.reset()
    step()
    failed[0] = 1
    step()
    assert (offered[3:], vote.reached) == ([1, 0], 1)
    vote.reset()
    failed[0] = 0
    step()
    reduce.apart = True  # a peer offers something else
    step()
    reduce.apart = False
    step()
    assert (offered[5:], vote.reached) == ([1, 2, 0], 1)


def test_a_rank_gives_up_before_its_collectives_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up: list[int] = []
    with crew("nccl", 2, 20.0) as members:
        group: Any = members.replicas[0].group
        abort = group._communicator.abort

        def noted() -> None:
            given_up.append(int(group.device_vote._given_up[0]))
            abort()

        monkeypatch.setattr(group._communicator, "abort", noted)
        group.abort("it was told to")
        assert given_up == [1]


@pytest.mark.parametrize("counts", [True, False])
def test_a_step_at_which_the_gpu_still_is_may_happen_though_another_gave_up(counts: bool) -> None:
    looks, done, vote = [False, False, True], list[int](), SimpleNamespace(launched=0, reached=0)

    class Event:
        def done(self) -> bool:
            over = looks.pop(0)
            vote.reached += over and counts
            return over

    def passed(*_arguments: object) -> bool:
        raise CollectiveAborted("a peer gave up")

    group: Any = SimpleNamespace(device_vote=vote, passed=passed)
    steps = UndecidedSteps(20.0, lambda: done.append(1), lambda: None)
    step, behind = (steps.add(group, Event(), f"step {k}") for k in range(2))  # type: ignore[arg-type]
    with contextlib.nullcontext() if counts else pytest.raises(CollectiveAborted, match="gave up"):
        step.wait()
    assert (len(done), looks) == (counts, [])
    assert behind.error is step.error and len(steps) == counts


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


def test_gpus_vote_where_no_host_takes_part_and_what_writes_can_be_held_back() -> None:
    program = compiled(2, fetches=(WEIGHT,))[0].program
    meetings = [k for k, node in enumerate(program.nodes) if node.op == ALL_REDUCE]
    updates = [k for k, node in enumerate(program.nodes) if program.changed_by(node)]
    assert gpus_can_vote(program) and meetings and min(updates) > max(meetings)

    def with_node(number: int, **changes: Any) -> ReplicaProgram:
        nodes = list(program.nodes)
        nodes[number] = replace(nodes[number], **changes)
        return replace(program, nodes=tuple(nodes))

    others = {
        "a check of results": replace(program, checked=(0,)),
        "an early fetch": compiled(2)[0].program,
        "an op on the host": with_node(0, kernel="numpy"),
        "an update that cannot be held back": with_node(updates[0], kernel="cupy"),
        "another collective": compiled(2, fetches=(WEIGHT,), reduce_strategy=REDUCE)[0].program,
        "rows": with_node(meetings[0], inputs={**program.nodes[meetings[0]].inputs, "Step": [0]}),
        "no gradients": replace(program, nodes=program.nodes[: meetings[0]]),
    }
    assert not any(map(gpus_can_vote, others.values()))


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
