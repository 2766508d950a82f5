"""What a server does with repeated, missing, wrong and late messages, and with trainers that end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import rowlock
from rowlock import fluid
from rowlock.executor.rpc.messages import (
    Answer,
    Arrays,
    Ask,
    Barrier,
    Goodbye,
    Hello,
    Lookup,
    Pull,
    Push,
    Refused,
    Report,
    Save,
    Taken,
    Together,
    Welcome,
)
from rowlock.executor.servers.server import ParameterServer
from rowlock.executor.servers.steps import SyncSteps
from rowlock.strategies.errors import InvalidState, InvalidValue, NotInitialized, TrainerLost

from ...conftest import eventually
from .nets import ROWS, plain_sgd, regression
from .roles import endpoints, transpiled

BIAS, TABLE = "fc_1.b_0", "table"
Array = np.ndarray[Any, Any]


class Bench:
    """One server, two trainers of which each message is written here. ``before``: the parameters at first."""

    def __init__(self, sync: bool = True, sparse: bool = False, **settings: Any) -> None:
        deadlines = {"step_deadline_s": 30.0, "start_deadline_s": 30.0}
        self.config = rowlock.ClusterConfig(launcher="threads", **(deadlines | settings))
        net = partial(regression, plain_sgd, sparse)
        (self.endpoint,) = endpoints(1)
        self.transpiler = transpiled(net, 0, [self.endpoint], sync=sync)[0]
        self.program, startup = self.transpiler.get_pserver_programs(self.endpoint)
        self.scope = fluid.Scope()
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=self.scope)
        self.server = self.new_server()
        self.before = {name: self.value(name) for name in self.server.state.parts.params}

    def new_server(self, **options: Any) -> ParameterServer:
        return ParameterServer(self.program, self.scope, self.config, **options)

    def value(self, name: str) -> Array:
        return np.array(self.scope.find_var(name).get_tensor())

    def changed(self, name: str = BIAS) -> float:
        """Return by how much SGD moved a parameter, in gradients of ones."""
        return float(np.mean(self.before[name] - self.value(name)) / 0.005)

    def pushes(self, trainer: int, number: int, scale: float = 1.0) -> list[Push]:
        """Return gradients of ``scale`` for all that a trainer pushes."""
        parts, result = self.server.state.parts, []
        for gradient in parts.gradients.values():
            name = gradient.names[trainer if len(gradient.names) > 1 else 0]
            shape = parts.shape(gradient.param)
            if gradient.rows:
                values = np.full((2, *shape[1:]), scale, np.float32)
                result.append(Push(trainer, number, name, values, np.array([3, 5]), shape[0]))
            else:
                result.append(Push(trainer, number, name, np.full(shape, scale, np.float32)))
        return result

    def step(self, trainer: int, number: int, scale: float = 1.0) -> Answer:
        """Push all and end the step."""
        ends = Barrier(trainer, number, "send")
        return self.server.handle(Together((*self.pushes(trainer, number, scale), ends)))

    def join(self) -> None:
        for trainer in range(2):
            assert isinstance(self.server.handle(Hello(trainer, 2, "")), Welcome)


def in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    """Begin a call on a thread; its result comes to the list."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    return thread, results


def refused(answer: Answer, kind: str, *texts: str) -> None:
    assert isinstance(answer, Refused), answer
    assert answer.kind == kind
    for text in texts:
        assert text in answer.text


@pytest.fixture(scope="module")
def wrong() -> Iterator[Bench]:
    bench = Bench(sparse=True)
    bench.join()
    yield bench


# -- once, and all of it ----------------------------------------------------------------------


def test_a_step_is_applied_once_all_trainers_sent_it() -> None:
    bench = Bench()
    bench.join()
    assert bench.step(0, 1, 1.0) == Taken()
    assert bench.changed() == 0.0
    bench.step(1, 1, 3.0)
    assert bench.changed() == pytest.approx(2.0, rel=1e-3)


def test_a_repeated_push_is_applied_once() -> None:
    bench = Bench()
    bench.join()
    for _ in range(2):
        bench.step(0, 1)
    for _ in range(2):
        bench.step(1, 1)
    bench.step(0, 1, 100.0)  # once more when the step is over
    assert bench.changed() == pytest.approx(1.0, rel=1e-3)
    report = bench.server.handle(Ask())
    assert isinstance(report, Report)
    assert report.facts["steps"] == 1
    assert report.facts["repeated"] == 3 * len(bench.server.state.parts.gradients)


def test_an_asynchronous_push_is_applied_once() -> None:
    bench = Bench(sync=False)
    bench.join()
    for _ in range(3):
        bench.step(0, 1)
    assert bench.changed() == pytest.approx(1.0, rel=1e-3)
    bench.step(1, 1)
    assert bench.changed() == pytest.approx(2.0, rel=1e-3)


def test_rows_are_merged_and_others_stay() -> None:
    bench = Bench(sparse=True)
    bench.join()
    bench.step(0, 1)
    bench.step(1, 1)
    moved = np.flatnonzero((bench.value(TABLE) != bench.before[TABLE]).any(1))
    assert moved.tolist() == [3, 5]


def test_rows_are_looked_up_behind_the_step_before() -> None:
    """A server that has only tables is asked for rows, and for nothing before them."""
    bench = Bench(sparse=True)
    bench.join()
    bench.step(0, 1)
    thread, answers = in_thread(lambda: bench.server.handle(Lookup(0, 2, TABLE, np.array([3]))))
    assert not answers
    bench.step(1, 1)
    thread.join(30)
    assert isinstance(answers[0], Arrays)
    np.testing.assert_array_equal(answers[0].by_name[TABLE], bench.value(TABLE)[[3]])
    assert (bench.value(TABLE)[3] != bench.before[TABLE][3]).any()


def test_pushes_are_received_where_blocks_read_them() -> None:
    bench = Bench()
    bench.join()
    (push, *_), server = bench.pushes(0, 1), bench.server
    room = server.destination(0, 1, push.name, push.values.shape, "float32")
    assert room is not None
    assert room is bench.server.state.updates.memory(push.name)
    assert server.destination(0, 2, push.name, push.values.shape, "float32") is None
    assert server.destination(1, 1, push.name, push.values.shape, "float32") is None
    assert server.destination(0, 1, push.name, (1, 2, 3), "float32") is None
    server.handle(push)
    assert server.destination(0, 1, push.name, push.values.shape, "float32") is None


def test_a_gradient_that_its_trainer_lends_is_read_there_until_the_answer() -> None:
    bench = Bench()
    bench.join()
    server, updates = bench.server, bench.server.state.updates
    for number in (1, 2):
        pushes = bench.pushes(0, number)
        push, ends = pushes[0], Barrier(0, number, "send")
        param = server.state.parts.by_pushed[push.name].param
        lent = push.values
        assert server.destination(0, number, push.name, lent.shape, "float32", lent) is lent
        assert updates.memory(push.name) is lent
        if number == 1:
            # the trainer is answered before the step is applied, and writes there again
            assert server.handle(Together((*pushes, ends))) == Taken()
            lent[...] = 100.0
            bench.step(1, number, 3.0)
            assert updates.memory(push.name) is not lent
        else:
            asked = Together((*pushes, ends, Pull(0, number, (param,))))
            thread, answers = in_thread(partial(server.handle, asked))
            bench.step(1, number, 3.0)
            thread.join(30)
            assert isinstance(answers[0], Arrays)
            assert updates.memory(push.name) is lent
        assert bench.changed(param) == pytest.approx(2.0 * number, rel=1e-3)


def test_parameters_are_kept_once() -> None:
    bench = Bench(sparse=True)
    bench.join()
    server = bench.server
    memory = {name: server.state.updates.memory(name) for name in server.state.parts.params}
    for number in range(1, 4):
        bench.step(0, number)
        bench.step(1, number)
    for name, array in memory.items():
        assert server.state.updates.memory(name) is array
    assert server.state.updates.compilations == 1
    answer = server.handle(Pull(0, 3, (BIAS,)))
    assert isinstance(answer, Arrays)
    assert answer.by_name[BIAS] is memory[BIAS]


# -- trainers that end ------------------------------------------------------------------------


def test_those_who_wait_for_a_lost_trainer_are_told() -> None:
    bench = Bench()
    bench.join()
    bench.step(0, 1)
    thread, answers = in_thread(lambda: bench.server.handle(Pull(0, 1, (BIAS,))))
    bench.server.lost(1, "its process ended.")
    thread.join(30)
    refused(answers[0], "TrainerLost", "trainer 1", "its process ended", "lost_trainer='continue'")
    with pytest.raises(TrainerLost, match="trainer 1"):
        bench.server.wait(1.0)


def test_the_rest_goes_on_with_the_mean_of_those_left() -> None:
    bench = Bench(lost_trainer="continue")
    bench.join()
    bench.step(0, 1)
    thread, answers = in_thread(lambda: bench.server.handle(Pull(0, 1, (BIAS,))))
    bench.server.lost(1, "its process ended.")
    thread.join(30)
    assert isinstance(answers[0], Arrays)
    assert bench.changed() == pytest.approx(1.0, rel=1e-3)
    refused(bench.step(1, 2), "TrainerLost", "goes on without trainer 1")
    bench.step(0, 2)
    assert bench.changed() == pytest.approx(2.0, rel=1e-3)


def test_a_lost_trainer_may_join_again() -> None:
    bench = Bench(lost_trainer="continue")
    bench.join()
    bench.step(0, 1)
    bench.server.lost(1, "its process ended.")
    assert bench.server.handle(Hello(1, 2, "")) == Welcome(1)
    bench.step(0, 2)
    assert bench.changed() == pytest.approx(1.0, rel=1e-3)
    bench.step(1, 2, 3.0)
    assert bench.changed() == pytest.approx(3.0, rel=1e-3)


def test_who_has_finished_is_not_waited_for() -> None:
    bench = Bench()
    bench.join()
    bench.server.handle(Goodbye(1))
    bench.step(0, 1)
    assert bench.changed() == pytest.approx(1.0, rel=1e-3)
    assert not bench.server.wait(0.0)
    bench.server.handle(Goodbye(0))
    assert bench.server.wait(0.0)


def test_a_trainer_that_never_comes_is_named() -> None:
    bench = Bench(start_deadline_s=0.3)
    bench.server.handle(Hello(0, 2, ""))
    bench.step(0, 1)
    answer = bench.server.handle(Pull(0, 1, (BIAS,)))
    refused(answer, "TrainerLost", "trainer 1 did not join", "0.3 s", "start_deadline_s")
    bench.server.handle(Hello(1, 2, ""))  # late, but it comes
    bench.step(1, 1)
    assert isinstance(bench.server.handle(Pull(0, 1, (BIAS,))), Arrays)


def test_what_a_trainer_left_for_is_told_with_its_loss() -> None:
    """The server waits on for trainer 1, and loses the one that was told so."""
    bench = Bench(start_deadline_s=0.3)
    bench.server.handle(Hello(0, 2, ""))
    bench.step(0, 1)
    bench.server.handle(Pull(0, 1, (BIAS,)))
    bench.server.lost(0, "its connection closed.")
    said = r"trainer 0 .*connection closed\..*was told before: .*trainer 1 did not join.*PADDLE_TRAINER_ID"
    with pytest.raises(TrainerLost, match=said):
        bench.server.wait(0.0)


def test_a_server_whose_trainers_were_refused_says_so() -> None:
    bench = Bench(start_deadline_s=0.3)
    for number in range(2):
        refused(bench.server.handle(Hello(number, 3, "")), "InvalidValue", "for 3 trainers")
    with pytest.raises(TrainerLost, match=r"trainer 0, 1 did not join.*refused: .*for 3 trainers"):
        bench.server.wait(60.0)


def test_a_trainer_that_stops_sending_is_named() -> None:
    bench = Bench(step_deadline_s=0.3)
    bench.join()
    bench.step(0, 1)
    answer = bench.server.handle(Pull(0, 1, (BIAS,)))
    refused(answer, "TrainerLost", "step 1", "trainer 1 sent nothing", "step_deadline_s")


def test_a_server_without_trainers_ends() -> None:
    bench = Bench(start_deadline_s=0.2)
    with pytest.raises(TrainerLost, match="trainer 0, 1 did not join"):
        bench.server.wait(60.0)


def test_a_stopped_server_refuses_all() -> None:
    bench = Bench()
    bench.join()
    bench.step(0, 1)
    thread, answers = in_thread(lambda: bench.server.handle(Pull(0, 1, (BIAS,))))
    bench.server.stop("the cluster goes down.")
    thread.join(30)
    refused(answers[0], "InvalidState", "the cluster goes down")
    refused(bench.step(1, 1), "InvalidState", "the cluster goes down")
    with pytest.raises(InvalidState, match="goes down"):
        bench.server.wait(0.0)


# -- snapshots --------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [True, False])
def test_a_restored_server_goes_on(sync: bool) -> None:
    bench = Bench(sync)
    bench.join()
    for trainer in range(2):
        bench.step(trainer, 1)
    snapshot, value = bench.server.snapshot(), bench.value(BIAS)
    for trainer in range(2):
        bench.step(trainer, 2)
    after = bench.value(BIAS)
    restored = bench.new_server()
    restored.restore(snapshot)
    np.testing.assert_array_equal(bench.value(BIAS), value)
    bench.server = restored
    assert restored.handle(Hello(0, 2, "")) == Welcome(1)
    assert restored.handle(Hello(1, 2, "")) == Welcome(1)
    threads = [in_thread(partial(bench.step, trainer, 2))[0] for trainer in range(2)]
    for thread in threads:
        thread.join(30)
    np.testing.assert_allclose(bench.value(BIAS), after, 1e-6)


def test_updates_behind_the_snapshot_are_lost_and_counted() -> None:
    bench = Bench()
    bench.join()
    snapshot = bench.server.snapshot()
    restored = bench.server = bench.new_server()
    restored.restore(snapshot)
    bench.join()
    runs = [in_thread(partial(bench.step, trainer, 5)) for trainer in range(2)]
    for thread, _ in runs:
        thread.join(30)
    assert bench.changed() == pytest.approx(1.0, rel=1e-3)
    report = restored.handle(Ask())
    assert isinstance(report, Report)
    assert (report.facts["steps"], report.facts["lost_steps"]) == (5, 4)


def test_a_restored_server_does_not_wait_for_gradients_that_nobody_has() -> None:
    """Trainer 1 came again behind step 1, whose gradients its first process had; trainer 0 sends them again."""
    bench = Bench()
    bench.join()
    snapshot = bench.server.snapshot()
    restored = bench.server = bench.new_server()
    restored.restore(snapshot)
    bench.join()
    thread, _ = in_thread(partial(bench.step, 0, 1))
    assert isinstance(restored.handle(Pull(1, 1, (BIAS,))), Arrays)
    thread.join(30)
    report = restored.handle(Ask())
    assert isinstance(report, Report)
    assert (report.facts["steps"], report.facts["lost_steps"]) == (1, 1)
    for trainer in range(2):
        bench.step(trainer, 2)
    assert bench.changed() == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("how", ["lost", "finished"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_restored_server_does_not_wait_for_trainers_that_left(how: str, when: str) -> None:
    """They left before the snapshot was taken, or after the server was restored."""
    bench = Bench(lost_trainer="continue")
    bench.join()

    def leave() -> None:
        if how == "lost":
            bench.server.lost(1, "its process ended.")
        else:
            bench.server.handle(Goodbye(1))

    if when == "before":
        leave()
    snapshot = bench.server.snapshot()
    restored = bench.server = bench.new_server()
    restored.restore(snapshot)
    restored.handle(Hello(0, 2, ""))
    thread, answers = in_thread(partial(bench.step, 0, 1))
    if when == "after":
        restored.handle(Hello(1, 2, ""))
        steps = restored.steps
        assert isinstance(steps, SyncSteps)
        assert eventually(lambda: steps._reached == {0: 1})
        leave()
    thread.join(60)
    assert answers == [Taken()]
    assert bench.changed() == pytest.approx(1.0, rel=1e-3)
    assert restored.handle(Hello(1, 2, "")) == Welcome(1)  # it may come again
    bench.step(0, 2)
    assert bench.changed() == pytest.approx(1.0, rel=1e-3)


def test_a_snapshot_is_not_changed_by_later_steps() -> None:
    bench = Bench()
    bench.join()
    snapshot = bench.server.snapshot()
    before = snapshot.arrays[BIAS].copy()
    bench.step(0, 1)
    bench.step(1, 1)
    np.testing.assert_array_equal(snapshot.arrays[BIAS], before)


def test_a_snapshot_of_another_program_is_refused(wrong: Bench) -> None:
    other = Bench()
    with pytest.raises(InvalidValue, match="another server's program"):
        other.server.restore(wrong.server.snapshot())


# -- wrong messages ---------------------------------------------------------------------------


def test_wrong_roles_are_refused(wrong: Bench) -> None:
    server = wrong.server
    refused(server.handle(Hello(2, 2, "")), "InvalidValue", "trainer 2 is unknown", "0 to 1")
    refused(server.handle(Hello(0, 3, "")), "InvalidValue", "3 trainers", "for 2")
    refused(server.handle(Hello(0, 2, "other")), "InvalidValue", "another program")
    refused(server.handle(Barrier(0, 1, "lunch")), "InvalidValue", "lunch")
    assert server.handle(Hello(0, 2, "")) == Welcome(0)


def test_wrong_pushes_are_refused(wrong: Bench) -> None:
    server, ones = wrong.server, np.ones(1, np.float32)
    grad = f"{BIAS}@GRAD.trainer_0"
    refused(server.handle(Push(0, 1, "nothing", ones)), "NotFound", "'nothing'", "step 1")
    close = server.handle(Push(0, 1, f"{BIAS}@GRAD.trainer_9", ones))
    refused(close, "NotFound", "Did you mean", "transpiled with sync_mode=True")
    refused(server.handle(Push(1, 1, grad, ones)), "InvalidValue", "which is trainer 0's")
    refused(server.handle(Push(0, 1, grad, np.ones(2, np.float32))), "ShapeError", "[2]", "[1]")
    refused(server.handle(Push(0, 1, grad, np.ones(1))), "ShapeError", "float64", "float32")
    rows = np.array([0])
    refused(server.handle(Push(0, 1, grad, ones, rows, 1)), "ShapeError", "as rows of a table")
    table = next(
        n for n in server.state.parts.by_pushed if n.startswith("table") and n.endswith("_0")
    )
    values = np.ones((1, 20), np.float32)
    refused(server.handle(Push(0, 1, table, values)), "ShapeError", "as a tensor")
    beyond = np.array([ROWS])
    refused(server.handle(Push(0, 1, table, values, beyond, ROWS)), "InvalidValue", f"row {ROWS}")
    refused(
        server.handle(Barrier(0, 1, "send")), "InvalidState", "ends step 1 without", "gradients"
    )


def test_wrong_questions_are_refused(wrong: Bench) -> None:
    server = wrong.server
    refused(server.handle(Pull(0, 0, ("fc_9",))), "NotFound", "'fc_9'")
    refused(server.handle(Lookup(0, 1, "no", np.array([1]))), "NotFound", "'no'")
    refused(server.handle(Lookup(0, 1, TABLE, np.array([-1]))), "InvalidValue", "row -1")
    refused(server.handle(Save("folder")), "Unsupported", "nothing to write")
    answer = server.handle(Lookup(0, 1, TABLE, np.array([2, 2, 0])))
    assert isinstance(answer, Arrays)
    np.testing.assert_array_equal(answer.by_name[TABLE], wrong.before[TABLE][[2, 2, 0]])


def test_gradients_that_are_no_numbers_are_taken() -> None:
    bench = Bench()
    bench.join()
    for trainer in range(2):
        assert bench.step(trainer, 1, float("nan")) == Taken()
    assert np.isnan(bench.value(BIAS)).all()


def test_a_server_writes_what_it_keeps(tmp_path: Any) -> None:
    bench, written = Bench(), {}
    server = bench.new_server(saver=lambda folder, arrays: written.update({folder: set(arrays)}))
    assert server.handle(Save(str(tmp_path))) == Taken()
    assert written[str(tmp_path)] >= set(server.state.parts.params)
    refused(server.handle(Save(str(tmp_path), ("no",))), "NotFound", "'no'")


def test_a_server_needs_its_startup_program() -> None:
    bench = Bench()
    with pytest.raises(NotInitialized, match="startup program"):
        ParameterServer(bench.program, fluid.Scope(), bench.config)


def test_a_program_without_a_server_is_refused() -> None:
    with pytest.raises(InvalidValue, match="listen_and_serv"):
        ParameterServer(fluid.Program(), fluid.Scope())


def test_steps_between_a_trainers_beginning_and_its_pull_count_as_behind() -> None:
    """Its values of another server may be from before these steps."""
    bench = Bench(sync=False, staleness_bound=1)
    bench.join()
    for trainer in range(2):
        assert bench.server.handle(Barrier(trainer, 1, "begin")) == Taken()
    bench.step(1, 1)
    bench.server.handle(Pull(0, 0, (BIAS,)))
    thread, results = in_thread(lambda: bench.server.handle(Barrier(1, 2, "begin")))
    thread.join(0.2)
    assert not results
    bench.step(0, 1)
    thread.join()
    assert results == [Taken()]
    staleness = [progress.staleness.most for progress in bench.server.state.trainers]
    assert staleness == [1, 0]
