"""Ranks that disagree stop, all of them, before anything is applied.

A thousand times one rank's plan or message is changed at random, and follows a good step. Every rank must
answer with an error that tells why, no persistable may change anywhere, and training must go on.
"""

from __future__ import annotations

import functools
import json
import os
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import rowlock.fluid as fluid
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.replica.message import Message
from rowlock.executor.replica.options import RunOptions
from rowlock.graph.compile import compile_program
from rowlock.graph.ir.graph import FEED
from rowlock.graph.ir.replica_program import ReplicaProgram
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from tests.conftest import product
from tests.contract.crews import Crew, crew
from tests.contract.mutants import drop_last, mutated
from tests.contract.nets import CLIPS, OPTIMIZERS, Net
from tests.contract.test_sync_batch_norm import Normed
from tests.programs import own_programs

ReduceStrategy = BuildStrategy.ReduceStrategy
SCOPE, GOOD, MUTANT = 1, 1, 2
DEADLINE_S = 2.0  # for one that never comes; to load a program takes less on a busy host, too
WITHIN_S = 60.0  # a rank that waits that long for one that came for something else fails the test


class Case(NamedTuple):
    """A program as every rank should have it, and the values it begins with."""

    text: str
    feeds: tuple[tuple[str, tuple[int, ...]], ...]
    values: Mapping[str, np.ndarray]
    size: int

    @property
    def program(self) -> ReplicaProgram:
        return ReplicaProgram.from_json(self.text)


class TwoTypes(Net):
    """A layer in float32 and one in float64."""

    def __init__(self) -> None:
        self.scope = fluid.Scope()
        with own_programs(5) as (self.main, self.startup):
            x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
            hidden = fluid.layers.cast(fluid.layers.fc(x, 3, act="tanh"), "float64")
            out = fluid.layers.cast(fluid.layers.fc(hidden, 1), "float32")
            self.loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
            OPTIMIZERS["momentum"]().minimize(self.loss)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.run(self.startup)


PLAIN = {"x": (4,), "y": (1,)}
CASES: dict[str, tuple[Any, dict[str, Any], int, dict[str, tuple[int, ...]]]] = {
    "buckets": (lambda: Net(OPTIMIZERS["momentum"], layers=2), {}, 40, PLAIN),
    "one bucket": (lambda: Net(OPTIMIZERS["momentum"]), {}, 1 << 20, PLAIN),
    "each alone": (
        lambda: Net(OPTIMIZERS["adam"], CLIPS["global"]),
        {"fuse_all_reduce_ops": False},
        1 << 20,
        PLAIN,
    ),
    "owners": (
        lambda: Net(OPTIMIZERS["adam"], layers=2),
        {"reduce_strategy": ReduceStrategy.Reduce},
        40,
        PLAIN,
    ),
    "statistics": (lambda: Normed("rows"), {"sync_batch_norm": True}, 40, {"x": (6,), "y": (1,)}),
    "two types": (TwoTypes, {}, 1 << 20, PLAIN),
    "only the vote": (lambda: Net(), {"reduce_strategy": ReduceStrategy._NoReduce}, 0, PLAIN),
}
SIZES = (2, 3)
GPU_LIBRARIES = frozenset({"cuda", "cublaslt", "cudnn", "nccl"})
SHARES = {"threads": 44, "memory": 24, "hosts": 5, "nccl": 3}  # mutants of each case
PART = 1 if os.environ.get("ROWLOCK_TEST_LONG") else 4  # of which one of so many is tried


@functools.cache
def compiled(name: str, size: int, on_gpus: bool = False) -> Case:
    make, build, bucket_bytes, feeds = CASES[name]
    net = make()
    strategy = BuildStrategy(**build)
    target = Target(
        replicas=size,
        strategy=strategy,
        has_loss=True,
        bucket_bytes=bucket_bytes or 1 << 20,
    )
    fetches = [net.loss.name]
    able = capabilities(GPU_LIBRARIES) if on_gpus else capabilities()
    back_end = "cupy" if on_gpus else "numpy"
    program = compile_program(net.main, list(feeds), fetches, target, able, back_end).program
    values = {n: np.array(net.scope.find_var(n).get_tensor()) for n in program.needed_names()}
    return Case(program.to_json(), tuple(feeds.items()), values, size)


class Training:
    """A crew that trains one case; steps are told one by one."""

    def __init__(self, case: Case, members: Crew) -> None:
        self.case, self.crew = case, members
        self.step = 0
        program = case.program
        self.apart = set(program.owners() if any(program.buckets) else program.state_names())
        self.load(GOOD)
        members.all("write", list(case.values.values()), scope=SCOPE, names=list(case.values))

    def load(self, number: int, other: Mapping[int, str] | None = None) -> dict[int, Message]:
        """Load the case's program, and ``other`` texts on some ranks."""
        return self.crew.tell(
            {
                rank: self._load(number, (other or {}).get(rank, self.case.text))
                for rank in self.ranks
            }
        )

    def _load(self, number: int, text: str) -> Message:
        how = {"scope": SCOPE, "options": RunOptions.sequential().to_plain()}
        return Message("load", {"id": number, "program": text, **how})

    @property
    def ranks(self) -> range:
        return range(self.case.size)

    def message(
        self, rank: int, step: int, rows: int | None = None, program: int = GOOD
    ) -> Message:
        """What a rank is told for a step; by default ranks have one or two rows."""
        rows = 1 + (rank + step) % 2 if rows is None else rows
        draw = np.random.default_rng([step, rank])
        arrays = [
            draw.standard_normal((rows, *shape)).astype("float32") for _, shape in self.case.feeds
        ]
        part = 1 / self.case.size
        head = {"id": program, "iterations": 1, "rows": [4 * rank], "parts": [part], "drop": []}
        return Message("step", {**head, "idle": [rows == 0]}, arrays, step)

    def good(self, rows: Mapping[int, int] | None = None) -> None:
        """A step that happens: values change, and they are the same bits everywhere."""
        before = self.crew.held()
        rows = rows or {}
        answers = self.crew.tell({r: self.message(r, self.step, rows.get(r)) for r in self.ranks})
        assert [a.kind for a in answers.values()] == ["fetched"] * self.case.size, answers
        self.step += 1
        after = self.crew.held()
        assert all(after[r] != before[r] for r in self.ranks if rows.get(r) != 0)
        for key in {key for values in after for key in values if key[1] not in self.apart}:
            assert len({values[key] for values in after}) == 1, key

    def afresh(self, *programs: int) -> None:
        """After a failure: a new epoch, and what was loaded for it is forgotten."""
        self.crew.epoch += 1
        self.crew.all("unload", programs=list(programs), scopes=[])
        self.good()


def assert_stopped(answers: Mapping[int, Message]) -> None:
    """Every rank was told: what the ranks came for, or which one could not do what it was given."""
    assert {answer.kind for answer in answers.values()} == {"error"}, answers
    texts = {rank: answer.head["text"] for rank, answer in answers.items()}
    first = [rank for rank, answer in answers.items() if not answer.head["collateral"]]
    assert first, texts
    for rank, text in texts.items():
        said = "came for" in text and "rank" in text
        passed_on = any(f"rank {one} failed" in text and texts[one][:100] in text for one in first)
        assert said or passed_on or rank in first, texts
        if len(first) == len(texts):
            assert said, texts


def another_plan_loaded(training: Training, draw: random.Random) -> str:
    """One rank is given another plan under the number that the others load theirs by."""
    name, text = mutated(training.case.text, draw, training.case.size)
    rank = draw.choice(training.ranks)
    answers = training.load(MUTANT, {rank: text})
    if all(answer.kind == "ok" for answer in answers.values()):
        answers = training.crew.tell(
            {r: training.message(r, training.step, program=MUTANT) for r in training.ranks}
        )
    assert_stopped(answers)
    return name


def another_plan_run(training: Training, draw: random.Random) -> str:
    """All ranks hold the other plan as well, and one rank is told to run it while the others run theirs."""
    who = draw.choice(training.ranks)
    while True:
        name, text = mutated(training.case.text, draw, training.case.size)
        loaded = training.load(MUTANT, dict.fromkeys(training.ranks, text))
        if all(answer.kind == "ok" for answer in loaded.values()):
            break
        training.crew.epoch += 1  # nobody can load it: here is no one to disagree
    assert_stopped(
        training.crew.tell(
            {
                rank: training.message(rank, training.step, program=MUTANT if rank == who else GOOD)
                for rank in training.ranks
            }
        )
    )
    return name


def another_step(training: Training, draw: random.Random) -> str:
    """One rank has missed the message of a step, or got one a second time."""
    who, off = draw.choice(training.ranks), draw.choice([-1, 1])
    assert_stopped(
        training.crew.tell(
            {
                rank: training.message(rank, training.step + off * (rank == who))
                for rank in training.ranks
            }
        )
    )
    return "skipped" if off > 0 else "repeated"


WAYS = (another_plan_loaded,) * 5 + (another_plan_run,) * 4 + (another_step,)


@product(14, kind=SHARES, name=CASES, size=SIZES)
def test_a_rank_that_has_another_plan_stops_all(kind: str, name: str, size: int) -> None:
    """A thousand plans if ROWLOCK_TEST_LONG is set, else the first of them: one of four."""
    draw = random.Random(f"{kind} {name} {size}")
    with crew(kind, size, WITHIN_S) as members:
        training = Training(compiled(name, size, kind == "nccl"), members)
        training.good()
        for _ in range(-(-SHARES[kind] // PART)):
            before = members.held()
            way = draw.choice(WAYS)(training, draw)
            assert members.held() == before, way
            training.afresh(MUTANT)


def test_there_are_a_thousand() -> None:
    assert sum(SHARES.values()) * len(CASES) * len(SIZES) >= 1000


@product(kind=SHARES, lost=range(3))
def test_a_rank_that_never_comes_is_named(kind: str, lost: int) -> None:
    """Nothing tells a message that was lost from one that is late, so this takes until the deadline."""
    with crew(kind, 3, WITHIN_S) as members:
        training = Training(compiled("owners", 3, kind == "nccl"), members)
        training.good()
        for replica in members.replicas:
            replica.within = DEADLINE_S  # of the plans that are loaded from now on
        training.load(MUTANT)
        before = members.held()
        others = [rank for rank in training.ranks if rank != lost]
        answers = members.tell(
            {rank: training.message(rank, training.step, program=MUTANT) for rank in others}
        )
        texts = [answer.head["text"] for answer in answers.values()]
        assert all(answer.kind == "error" for answer in answers.values())
        named = rf"\[[^]]*\b{lost}\b[^]]*\]\)? are missing after"
        assert all(re.search(named, text) for text in texts), texts
        assert members.held() == before
        training.afresh(MUTANT)


def test_a_rank_that_did_another_number_of_steps_stops_all() -> None:
    with crew("threads", 2, WITHIN_S) as members:
        training = Training(compiled("buckets", 2), members)
        training.good()
        before = members.held()
        members.tell({1: Message("resume", {"done": 2})})
        answers = members.tell({r: training.message(r, training.step) for r in training.ranks})
        assert_stopped(answers)
        assert "rank 0 came for" in answers[0].head["text"]
        assert "in step 1 (1 done); rank 1 came for" in answers[0].head["text"]
        assert members.held() == before
        members.tell({1: Message("resume", {"done": 1})})
        training.afresh()


@product(14, kind=SHARES, name=CASES, size=SIZES)
def test_uneven_batches_and_idle_places_are_no_disagreement(
    kind: str, name: str, size: int
) -> None:
    draw = random.Random(size)
    with crew(kind, size, WITHIN_S) as members:
        training = Training(compiled(name, size, kind == "nccl"), members)
        for _ in range(6):
            training.good({rank: draw.randrange(1, 9) for rank in training.ranks})
        # Running statistics lag where there were no rows.
        training.apart |= {"batch_norm_0.w_1", "batch_norm_0.w_2"}
        for idle in range(1, size):
            training.good({idle: 0})
            training.good({rank: 0 for rank in range(1, size)})


def test_words_name_what_was_asked() -> None:
    """Op, element type, size, schedule, number and step stand in the message, for each group of ranks."""
    with crew("threads", 3, WITHIN_S) as members:
        training = Training(compiled("buckets", 3), members)
        training.good()
        answers = members.tell(
            {rank: training.message(rank, training.step + (rank == 1)) for rank in training.ranks}
        )
        schedule = training.case.program.schedule
        what = rf"all_reduce/sum \(float32\[\d+\] schedule {schedule}, collective 0 of \d\)"
        message = rf"ranks \[0, 2\] came for {what} in step 1 \(1 done\); rank 1 came for {what} in step 2"
        for answer in answers.values():
            assert re.search(message, answer.head["text"]), answer.head["text"]


def test_the_schedule_is_of_what_ranks_must_share() -> None:
    """Source lines, seeds, fetches and batch sizes may differ; kernels, attributes and what meets may not."""
    program = compiled("buckets", 2).program
    moved = tuple(replace(node, where="elsewhere") for node in program.nodes)
    batch = tuple(
        replace(v, shape=(7, *v.shape[1:])) if v.varies and v.kind == FEED else v
        for v in program.values
    )
    for same in (
        replace(program, nodes=moved, seed=1 + program.seed, fetches=()),
        replace(program, values=batch),
    ):
        assert same != program and same.schedule == program.schedule
    first, *others = program.nodes
    for node in (replace(first, kernel="other"), replace(first, attrs={**first.attrs, "x": 1})):
        assert replace(program, nodes=(node, *others)).schedule != program.schedule

    def with_loop(where: str) -> str:
        block = {"nodes": [{"op": "relu", "attrs": {}, "where": where}]}
        loop = replace(first, attrs={**first.attrs, "block": block})
        return replace(program, nodes=(loop, *others)).schedule

    assert with_loop("here") == with_loop("there") != program.schedule


def test_no_plan_writes_before_the_vote() -> None:
    """A plan without a collective would never be stopped at one, even if all ranks agree on it."""
    case = compiled("one bucket", 2)
    plan = json.loads(case.text)
    drop_last(plan, random.Random(1), 2)
    text = json.dumps({**plan, "buckets": []})
    with crew("threads", 2, WITHIN_S) as members:
        training = Training(case, members)
        before = members.held()
        training.load(MUTANT, dict.fromkeys(training.ranks, text))
        answers = members.tell(
            {rank: training.message(rank, 0, program=MUTANT) for rank in training.ranks}
        )
        wrong = r"operator \w+ would write '\S+' before all replicas have agreed to \(built at "
        for answer in answers.values():
            assert re.search(wrong, answer.head["text"]), answer
        assert members.held() == before
