"""Ranks that meet by NCCL make each step the same way: all by calls, or all by graphs of one capture."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.runtime import Fork, Step
from rowlock.executor.plan import captures
from rowlock.executor.plan.captures import Level, Standing
from rowlock.executor.plan.cuda_plan import CudaPlan
from rowlock.executor.replica.message import Message
from rowlock.executor.simulated.simulated import SimulatedRuntime
from tests.cluster.test_nccl_programs import SCOPE, WIDTH, compiled, loaded
from tests.contract.crews import Crew, crew

pytestmark = pytest.mark.cuda
EAGER = "calls"


class Watched:
    """Two ranks, and how each made its steps: by calls, or by a graph that was captured in some step."""

    def __init__(self, team: Crew) -> None:
        self.team, self.number = team, -1
        self.program, self.values = compiled(team.size)
        self.graphs: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self.refusing: set[int] = set()
        self.captures = 0
        self.load()

    def load(self) -> None:
        loaded(self.team, self.program, self.values)

    def capture(self, runtime: SimulatedRuntime, steps: Sequence[Step]) -> Step:
        """Stand in for the simulated GPU's: note where the graph that holds collectives is launched."""
        self.captures += 1
        if runtime.index in self.refusing:
            raise NotImplementedError("not while a stream is captured")
        launch, captured_in = CAPTURE(runtime, steps), self.number
        if not any(isinstance(step, Fork) for step in steps):
            return launch

        def graph() -> None:
            self.graphs[self.number][runtime.index] = captured_in
            launch()

        return graph

    def step(self, rows: Sequence[int] = (4, 4)) -> Any:
        """Make a step, some rows for each rank (0: an idle one); return how all ranks made it."""
        self.number += 1
        total = sum(rows)
        messages = {}
        for rank, count in enumerate(rows):
            x = np.random.default_rng([self.number, rank]).standard_normal((count, WIDTH))
            x = x.astype("f4")
            head = {
                "id": 1, "rows": [sum(rows[:rank])], "parts": [count * len(rows) / total],
                "idle": [not count], "iterations": 1, "drop": [],
            }  # fmt: skip
            messages[rank] = Message("step", head, [x, x.sum(1, keepdims=True)], self.number)
        answers = self.team.tell(messages)
        assert all(answer.kind == "fetched" for answer in answers.values()), answers
        launched = self.graphs[self.number]
        ways = {launched.get(rank, EAGER) for rank in range(self.team.size)}
        assert len(ways) == 1, f"step {self.number}: {launched}"
        return ways.pop()

    def plans(self, rank: int) -> list[CudaPlan]:
        return [bound.plan for bound in self.team.replicas[rank].programs[1].plans]

    def check(self, rows: Sequence[Sequence[int]]) -> None:
        """Ranks hold the same bits, and what ranks that capture nothing learn from these steps."""
        states = self.team.held()
        assert states[0] == states[1]
        with crew("memory", 2, 60.0) as plain:
            other = Watched.__new__(Watched)
            other.team, other.number, other.graphs = plain, -1, defaultdict(dict)
            other.program, other.values = compiled(2, on_gpus=False)
            other.load()
            for each in rows:
                other.step(each)
            scope = plain.replicas[0].scopes[SCOPE].arrays
            for name, value in self.team.replicas[0].scopes[SCOPE].arrays.items():
                np.testing.assert_allclose(value, scope[name], rtol=1e-4, atol=1e-6, err_msg=name)


CAPTURE = SimulatedRuntime.capture


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Any:
    with crew("nccl", 2, 60.0) as team:
        watcher = Watched(team)
        monkeypatch.setattr(SimulatedRuntime, "capture", lambda *args: watcher.capture(*args))
        yield watcher


def test_all_capture_in_the_second_step_and_launch_from_then_on(watched: Watched) -> None:
    assert [watched.step() for _ in range(4)] == [EAGER, 1, 1, 1]
    watched.check([(4, 4)] * 4)


def test_an_uneven_last_batch_is_captured_on_all_ranks_by_itself(watched: Watched) -> None:
    epoch = [(4, 4), (4, 4), (4, 3)]
    ways = [watched.step(rows) for rows in epoch * 3]
    assert ways == [EAGER, 1, EAGER, 1, 1, 5, 1, 1, 5], "rank 0 has a plan and two graphs of it"
    assert [len(watched.plans(rank)) for rank in (0, 1)] == [1, 2]
    watched.check(epoch * 3)


def test_an_idle_rank_meets_its_peers_in_graphs_of_one_capture(watched: Watched) -> None:
    epoch = [(4, 4), (4, 4), (4, 0)]
    ways = [watched.step(rows) for rows in epoch * 3]
    assert ways == [EAGER, 1, EAGER, 1, 1, 5, 1, 1, 5]
    watched.check(epoch * 3)


def test_a_plan_that_was_evicted_on_one_rank_is_captured_anew_on_all(watched: Watched) -> None:
    assert [watched.step() for _ in range(3)] == [EAGER, 1, 1]
    watched.team.replicas[1].forget_plans(SCOPE)
    assert [watched.step() for _ in range(3)] == [EAGER, 4, 4]
    watched.check([(4, 4)] * 6)


@pytest.mark.parametrize("rank", [0, 1])
def test_one_capture_that_fails_makes_all_go_on_by_calls(watched: Watched, rank: int) -> None:
    watched.refusing.add(rank)
    assert [watched.step() for _ in range(4)] == [EAGER] * 4
    assert watched.captures == 4, "of two graphs on each rank, once"
    graphs = [
        [g for s in plan.segments if s.meetings for g in s.graphs] for plan in watched.plans(0)
    ]
    assert graphs == [[]]
    watched.refusing.clear()
    watched.team.replicas[rank].forget_plans(SCOPE)
    assert [watched.step() for _ in range(2)] == [EAGER, 5]
    watched.check([(4, 4)] * 6)


def test_a_rank_that_began_afresh_finds_no_graph_and_its_peer_uses_none(watched: Watched) -> None:
    assert [watched.step() for _ in range(3)] == [EAGER, 1, 1]
    team = watched.team
    team.held()  # once all is done
    before = {name: np.array(v) for name, v in team.replicas[0].scopes[SCOPE].arrays.items()}
    fresh = type(team.replicas[1])(1, team.replicas[1].group, 60.0, team.replicas[1].runtime)
    fresh.done, team.replicas[1] = team.replicas[1].done, fresh
    team.epoch += 1
    watched.values = before
    watched.load()
    assert [watched.step() for _ in range(3)] == [EAGER, 4, 4]
    watched.check([(4, 4)] * 6)


def test_no_graph_is_left_that_holds_an_ended_communicator(watched: Watched) -> None:
    """NCCL waits for them."""
    assert [watched.step() for _ in range(3)] == [EAGER, 1, 1]
    plans = [plan for rank in (0, 1) for plan in watched.plans(rank)]
    assert all(s.graphs for plan in plans for s in plan.segments if s.meetings)
    watched.team.epoch += 1
    assert [watched.step() for _ in range(3)] == [EAGER, 4, 4]
    assert not any(s.graphs for plan in plans for s in plan.segments)


def test_a_traced_step_on_one_rank_is_made_by_calls_on_all(watched: Watched) -> None:
    assert [watched.step() for _ in range(2)] == [EAGER, 1]
    watched.team.tell({1: Message("trace", {"id": 1, "on": True}, [])})
    assert watched.step() == EAGER
    watched.team.tell({1: Message("trace", {"id": 1, "on": False}, [])})
    assert watched.step() == 1


def test_a_plan_is_captured_for_some_plans_of_its_peers_and_no_more(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captures, "_KEYS", 2)
    epoch = [(4, 4), (4, 3), (4, 2)]
    ways = [watched.step(rows) for rows in epoch * 3]
    assert ways == [EAGER] * 3 + [3, 4, EAGER, 3, 4, EAGER]


def segment(runtime: SimulatedRuntime, forks: int) -> captures.Segment:
    """Return what a graph with some collectives, and nothing else, would hold."""
    fork = runtime.fork(runtime.stream(), lambda: None)
    steps = [step for _ in range(forks) for step in (fork, fork.finish)]
    return captures.Segment(True, steps, None, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("cuts", [((2,), (2,)), ((1, 1), (1, 1)), ((2,), (1, 1))])
def test_ranks_whose_graphs_are_cut_in_other_places_make_every_call(
    cuts: Sequence[Sequence[int]],
) -> None:
    """Collectives alone are a graph, too: those of a peer may stand among other work."""
    runtime, barrier = SimulatedRuntime(), threading.Barrier(2)
    numbers: dict[int, int] = {}

    def ask(rank: int) -> captures.Agree:
        def agree(number: int) -> Sequence[int]:
            numbers[rank] = number
            barrier.wait(20)
            both = [numbers[peer] for peer in range(2)]
            barrier.wait(20)
            return both

        return agree

    def key(rank: int) -> captures.Key | None:
        segments = [segment(runtime, forks) for forks in cuts[rank]]
        common = captures.Captures(runtime, segments, ask(rank)).key(True)
        assert all(len(s.graphs) == (common is not None) for s in segments)
        return common

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(key, range(2))
    assert first == second and (first is not None) == (cuts[0] == cuts[1])


def test_what_a_rank_tells_fits_into_a_number() -> None:
    for standing in (
        Standing(Level.CAPTURE, (1 << 29) - 1, (1 << 32) - 1),
        Standing(Level.CALLS, 0, 0),
    ):
        assert 0 <= standing.pack() < 1 << 63
        assert Standing.unpack(standing.pack()) == standing
