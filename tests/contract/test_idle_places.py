"""Places without rows, in programs whose shapes are data: replicas are lost there and beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.replica.loaded import LoadedProgram
from tests.programs import on_places, own_programs

from ..conftest import lasting, one_in
from .test_recovery import kill, kill_within, quiet

__all__ = ["quiet"]
L = fluid.layers
SEQUENCES = (
    3,
    1,
    2,
    1,
    4,
)  # of the steps: of one sequence a place gets none, the second or (LAST) the first
LAST = 3
MODES = fluid.BuildStrategy.ReduceStrategy


class Sequences:
    """A net whose loop runs as long as sequences are; which branch it computes depends on what that gives."""

    def __init__(self, sparse: bool, method: Any) -> None:
        with own_programs(3) as (self.main, self.startup):
            words = fluid.data("words", [None, 1], "int64", lod_level=1)
            label = fluid.data("label", [None, 1])
            embedded = L.embedding(words, [20, 4], is_sparse=sparse)
            rnn = L.DynamicRNN()
            with rnn.block():
                word, state = rnn.step_input(embedded), rnn.memory(shape=[4])
                after = L.fc([word, state], 4, act="tanh")
                rnn.update_memory(state, after)
                rnn.output(after)
            last = L.sequence_last_step(rnn())
            positive = L.greater_than(L.reduce_sum(last), L.fill_constant([1], "float32", 0.0))
            h = L.cond(positive, lambda: L.fc(last, 4, act="relu"), lambda: last * 2.0)
            self.loss = L.mean(L.square(L.fc(h, 1) - label))
            method.minimize(self.loss)

    def train(
        self, mode: Any, strike: Callable[[int, Any], None] = lambda step, program: None
    ) -> list[bytes]:
        """Return the losses of all steps and the parameters, which both places have alike, of two places."""
        build = fluid.BuildStrategy(reduce_strategy=mode)
        build.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.SampleWeighted
        draw, results = np.random.default_rng(0), []
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(self.startup)
            program: Any = on_places(self.main, 2, self.loss, build=build)
            for step, count in enumerate(SEQUENCES):
                lengths = draw.integers(1, 5, count).tolist()
                words = draw.integers(0, 20, (sum(lengths), 1))
                label = draw.standard_normal((count, 1)).astype("float32")
                words = fluid.create_lod_tensor(words, [lengths], fluid.CPUPlace())
                strike(step, program)
                feed: Any = {"words": words, "label": label}
                if step == LAST:
                    none = {"words": np.zeros((0, 1), "int64"), "label": label[:0]}
                    feed = [none, feed]
                results.append(exe.run(program, feed, [self.loss])[0].tobytes())
            run = program._parallel
            for parameter in self.main.all_parameters():
                values = [run.gang.read(run.values.id, parameter.name, rank) for rank in (0, 1)]
                assert values[0].tobytes() == values[1].tobytes(), parameter.name
                results.append(values[0].tobytes())
        return results


@pytest.mark.parametrize(
    ("mode", "method", "first", "spares"),
    one_in(
        2,
        [
            (MODES.AllReduce, lambda: fluid.optimizer.Adam(0.05), 1, 0),
            (MODES.Reduce, lambda: fluid.optimizer.SGD(0.1), 0, 1),
        ],
    ),
)
def test_training_goes_on_when_idle_and_busy_replicas_are_lost(
    mode: Any, method: Any, first: int, spares: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replica ``first`` is lost before a step, the other within one: without rows there, or with all."""
    idle_steps, form = [], LoadedProgram.idle.fget
    monkeypatch.setattr(
        LoadedProgram, "idle", property(lambda loaded: idle_steps.append(loaded) or form(loaded))
    )
    sparse = mode == MODES.AllReduce
    with rowlock.cluster(launcher="threads"):
        undisturbed = Sequences(sparse, method()).train(mode)
    assert len(idle_steps) == SEQUENCES.count(1)
    timers = []

    def strike(step: int, program: Any) -> None:
        if step == 1:
            kill(program, first)
        if step == LAST:
            timers.append(kill_within(program, 1 - first, 3e-3))

    with lasting("ray", spares=spares):
        assert Sequences(sparse, method()).train(mode, strike) == undisturbed
    timers[0].join()
