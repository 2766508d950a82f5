"""Ranks that meet by NCCL over sequences: graphs are those of plans, which know no lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.replica.message import Message
from rowlock.graph.compile import Compiled, compile_program
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from tests.cluster import test_nccl_programs as nccl
from tests.contract.crews import Crew, crew
from tests.programs import own_programs

pytestmark = pytest.mark.cuda
CELLS = 4


def compiled(on_gpus: bool) -> tuple[Compiled, dict[str, Any]]:
    """Return two LSTMs trained by gradient descent on two replicas, and values to begin with."""
    with own_programs() as (main, _):
        hidden = fluid.data("x", [None, 4 * CELLS], lod_level=1)
        for _ in range(2):
            hidden, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(hidden, 4 * CELLS), 4 * CELLS)
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.sequence_pool(hidden, "max")))
        fluid.optimizer.SGD(0.1).minimize(loss)
    able, back_end = (nccl.GPU, "cupy") if on_gpus else (capabilities(), "numpy")
    target = Target(replicas=2, strategy=BuildStrategy(), has_loss=True, bucket_bytes=64)
    model = compile_program(main, ("x", "x@LOD0"), (loss.name,), target, able, back_end)
    rng, block = np.random.default_rng(0), main.global_block()
    return model, {
        name: np.full(1, 0.1, "f4")
        if "learning_rate" in name
        else 0.3 * rng.standard_normal(block.var(name).shape).astype("f4")
        for name in model.program.needed_names()
    }


def step(team: Crew, number: int, lengths: Sequence[Sequence[int]]) -> None:
    messages = {}
    for rank, own in enumerate(lengths):
        rng = np.random.default_rng([number, rank])
        x = rng.standard_normal((sum(own), 4 * CELLS)).astype("f4")
        head = {"id": 1, "rows": [0], "parts": [1.0], "idle": [False], "iterations": 1, "drop": []}
        messages[rank] = Message("step", head, [x, np.cumsum([0, *own])], number)
    answers = team.tell(messages)
    assert all(answer.kind == "fetched" for answer in answers.values()), answers


def trained(kind: str, steps: Sequence[Sequence[Sequence[int]]]) -> tuple[dict[str, Any], Any]:
    """Return what rank 0 holds after steps, and how many plans and graphs with collectives each rank has."""
    model, values = compiled(kind == "nccl")
    with crew(kind, 2, 60.0) as team:
        nccl.loaded(team, model, values)
        for number, lengths in enumerate(steps):
            step(team, number, lengths)
        states = [
            {name: np.array(value) for name, value in replica.scopes[nccl.SCOPE].arrays.items()}
            for replica in team.replicas
        ]
        for name in values:
            assert states[0][name].tobytes() == states[1][name].tobytes(), name
        plans = [[b.plan for b in replica.programs[1].plans] for replica in team.replicas]
        if kind != "nccl":
            return states[0], None
        graphs = [
            sum(len(s.graphs) for plan in own for s in plan.segments if s.meetings) for own in plans
        ]
        return states[0], [(len(own), count) for own, count in zip(plans, graphs, strict=True)]


def test_ranks_replay_graphs_whatever_lengths_their_sequences_have() -> None:
    steps = [
        ([3, 1, 2], [2, 2, 2]),
        ([3, 1, 2], [2, 2, 2]),  # captured
        ([1, 1, 4], [6, 0, 0]),  # other lengths of as many rows
        ([4, 1, 2], [1, 4, 1]),  # rank 0 has another plan: all make calls, then capture anew
        ([2, 3, 2], [3, 2, 1]),
        ([5, 1, 1], [1, 1, 4]),
    ]
    values, counts = trained("nccl", steps)
    expected, _ = trained("memory", steps)
    for name, value in values.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert counts[0][0] == 2 and counts[1][0] == 1, "plans"
    assert counts[0][1] == counts[1][1] > 0, "graphs"
