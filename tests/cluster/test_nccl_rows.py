"""Gradients that stay rows, of tables on several simulated GPUs that meet by NCCL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.cuda_plan import CudaPlan
from rowlock.executor.replica.message import Message
from rowlock.graph.compile import Compiled, compile_program
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from tests.cluster.test_nccl_programs import GPU, REDUCE, loaded
from tests.contract.crews import Crew, crew

pytestmark = pytest.mark.cuda
HEIGHT, WIDTH, WORDS = 40, 6, 3
UNEVEN = [(4, 4), (4, 4), (2, 6), (4, 4), (6, 2), (4, 4), (2, 6), (4, 0), (4, 4)]


def compiled(on_gpus: bool, **switches: Any) -> tuple[Compiled, dict[str, Any]]:
    """Return two lookups of one table, of which one has a padding row, trained by Adagrad; and first values."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words = fluid.data("words", [None, WORDS], "int64")
        y = fluid.data("y", [None, 1])
        table = {"size": [HEIGHT, WIDTH], "is_sparse": True, "param_attr": "table"}
        first = fluid.embedding(words, padding_idx=3, **table)
        second = fluid.embedding(fluid.layers.slice(words, [1], [0], [2]), **table)
        both = fluid.layers.reduce_sum(first, 1) + fluid.layers.reduce_max(second, 1)
        weight = fluid.layers.create_parameter([WIDTH], "float32", name="weight")
        out = fluid.layers.reduce_sum(fluid.layers.tanh(both * weight), 1, keep_dim=True)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        fluid.optimizer.Adagrad(0.1).minimize(loss)
    scale = BuildStrategy.GradientScaleStrategy.SampleWeighted
    strategy = BuildStrategy(gradient_scale_strategy=scale, **switches)
    target = Target(replicas=2, strategy=strategy, has_loss=True, bucket_bytes=8)
    able, back_end = (GPU, "cupy") if on_gpus else (capabilities(), "numpy")
    model = compile_program(main, ("words", "y"), (loss.name,), target, able, back_end)
    rng, block = np.random.default_rng(0), main.global_block()
    values = {
        name: np.zeros(block.var(name).shape, "f4")
        if "moment" in name
        else rng.standard_normal(block.var(name).shape).astype("f4")
        for name in model.program.needed_names()
    }
    rates = [name for name in values if "learning_rate" in name]
    return model, values | {name: np.full(1, 0.1, "f4") for name in rates}


def step(team: Crew, number: int, rows: Sequence[int]) -> list[float]:
    """Make a step, some rows for each rank (0: an idle one); return the losses of those with rows."""
    rng, messages = np.random.default_rng(number), {}
    counts = np.array([[rows_of * (WORDS + 2) for rows_of in rows]])
    for rank, count in enumerate(rows):
        head = {
            "id": 1, "rows": [sum(rows[:rank])], "parts": [count * 2 / sum(rows)],
            "idle": [not count], "iterations": 1, "drop": [],
        }  # fmt: skip
        words, y = rng.integers(0, 12, (count, WORDS)), rng.standard_normal((count, 1))
        messages[rank] = Message("step", head, [words, y.astype("f4"), counts], number)
    answers = team.tell(messages)
    assert all(answer.kind == "fetched" for answer in answers.values()), answers
    return [float(answers[rank].arrays[0][0]) for rank, count in enumerate(rows) if count]


def trained(
    kind: str,
    steps: Sequence[Sequence[int]],
    look: Callable[[list[CudaPlan]], None] = lambda plans: None,
    **switches: Any,
) -> tuple[list[dict[str, Any]], list[float]]:
    """Return what each rank holds after some steps, and the losses; have a ``look`` at the plans of rank 0."""
    model, values = compiled(kind == "nccl", **switches)
    with crew(kind, 2, 60.0) as team:
        loaded(team, model, values)
        losses = [loss for number, rows in enumerate(steps) for loss in step(team, number, rows)]
        look([bound.plan for bound in team.replicas[0].programs[1].plans])
        states = [
            {name: np.frombuffer(value, "f4") for (_, name), value in rank.items()}
            for rank in team.held()
        ]
    return states, losses


@pytest.mark.parametrize("switches", [{}, REDUCE])
def test_rows_of_gpus_are_those_of_cpus_however_many_each_place_brings(
    switches: dict[str, Any],
) -> None:
    states, losses = trained("nccl", UNEVEN, **switches)
    expected, known = trained("memory", UNEVEN, **switches)
    np.testing.assert_allclose(losses, known, rtol=1e-5)
    for rank, values in enumerate(states):
        assert values.keys() == expected[rank].keys()
        for name, value in values.items():
            np.testing.assert_allclose(value, expected[rank][name], rtol=1e-5, atol=1e-6)
    assert states[0]["table"].tobytes() == states[1]["table"].tobytes()


def test_graphs_hold_the_gathering_of_rows() -> None:
    def look(plans: list[CudaPlan]) -> None:
        (plan,) = plans
        graphs = [segment for segment in plan.segments if segment.capturable]
        assert all(segment.graphs for segment in graphs)
        assert [segment.meetings for segment in graphs] == [3, 0], "rows, values; the weight"
        assert not any(i.op == "replica_barrier" for i in plan.instructions), "they vote there"

    trained("nccl", [(4, 4)] * 3, look)


def test_places_that_bring_other_numbers_of_rows_have_graphs_of_their_own() -> None:
    def look(plans: list[CudaPlan]) -> None:
        assert len(plans) == 2, "the place has four rows in both, and its peer's stand elsewhere"

    trained("nccl", [(4, 4), (4, 4), (4, 2), (4, 2)], look)
