"""A replica is lost in the middle of training: it goes on as if nothing had happened."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.driver.parallel import ParallelRun
from rowlock.executor.feed.fetches import fetches_of
from rowlock.executor.gang.recovery import Recovery
from rowlock.executor.gang.single import SingleReplicaGang
from rowlock.executor.replica.message import Message
from rowlock.executor.simulated.host_compiler import host_compiler
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import InvalidState, ReplicaLost, ValuesLost
from tests.programs import on_places

from ..conftest import draws, lasting, one_in, product
from .nets import OPTIMIZERS, Net, assert_close, feed
from .test_data_loops import train
from .test_sparse_rows import METHODS, MODES
from .test_sparse_rows import Net as Embeddings
from .test_sync_batch_norm import Normed

Train = Callable[[Any, Any, int], list[Any]]


@pytest.fixture(autouse=True)
def quiet(ray_cluster: None) -> Iterator[None]:
    """Ray is there, a gang has no values of tests before, and what is told of lost replicas is not shown."""
    gc.collect()
    logging.getLogger("rowlock").setLevel(logging.ERROR)
    yield
    logging.getLogger("rowlock").setLevel(logging.NOTSET)


def pids(program: Any) -> list[int]:
    return [place["pid"] for place in program._parallel.gang.delivery.where]


def kill(program: Any, rank: int, sign: int = signal.SIGKILL) -> int:
    pid = pids(program)[rank]
    os.kill(pid, sign)
    return pid


def kill_within(program: Any, rank: int, seconds: float) -> threading.Timer:
    """Kill a replica at a random moment of the next so many seconds."""
    pid = pids(program)[rank]
    timer = threading.Timer(random.random() * seconds, os.kill, (pid, signal.SIGKILL))
    timer.start()
    return timer


def replicas_equal(net: Net, program: Any) -> None:
    run = program._parallel
    for name in net.parameters():
        values = [run.gang.read(run.values.id, name, rank) for rank in range(run.gang.size)]
        assert all(value.tobytes() == values[0].tobytes() for value in values), name


def losses_of(net: Net, program: Any, steps: int, strike: Callable[[int], None]) -> list[Any]:
    losses = []
    for step in range(steps):
        strike(step)
        losses.append(net.run(program, feed(8, step), [net.loss])[0])
    return losses


@product(optimizer=["sgd", "momentum", "adam"], rank=[0, 1])
def test_training_goes_on_with_the_same_bits(optimizer: str, rank: int) -> None:
    with lasting("ray"):
        twin = Net(OPTIMIZERS[optimizer], layers=2, drop=0.3)
        undisturbed = losses_of(twin, twin.compiled(2), 6, lambda step: None)
        net = Net(OPTIMIZERS[optimizer], layers=2, drop=0.3)
        program = net.compiled(2)

        def strike(step: int) -> None:
            if step == 3:
                kill(program, rank)

        losses = losses_of(net, program, 6, strike)
        for one, other in zip(losses, undisturbed, strict=True):
            assert one.tobytes() == other.tobytes()
        for name, value in net.parameters().items():
            assert value.tobytes() == twin.parameters()[name].tobytes(), name
        replicas_equal(net, program)


@pytest.mark.slow
def test_actor_calls_go_on_as_well() -> None:
    with rowlock.cluster(launcher="ray", transport="actor"):
        twin, net = Net(OPTIMIZERS["adam"]), Net(OPTIMIZERS["adam"])
        losses_of(twin, twin.compiled(2), 5, lambda step: None)
        program = net.compiled(2)

        def strike(step: int) -> None:
            if step == 2:
                kill(program, 1)

        losses_of(net, program, 5, strike)
        for name, value in net.parameters().items():
            assert value.tobytes() == twin.parameters()[name].tobytes(), name
        replicas_equal(net, program)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "mode"),
    one_in(
        3, itertools.product(["adagrad", "momentum", "lazy"], ["all-reduce", "verified"]), more=0
    ),
)
def test_rows_go_on_with_the_same_bits(method: str, mode: str) -> None:
    """One replica is killed twice while rows of sparse gradients are gathered."""
    make = {**METHODS, "lazy": lambda: fluid.optimizer.Adam(0.01, lazy_mode=True)}[method]
    with lasting("ray"):
        losses, tables, _ = Embeddings(make, True).train(2, **MODES[mode][1])

        def strike(step: int, program: Any) -> None:
            if step in (1, 3):
                kill(program, 1)

        again, after, _ = Embeddings(make, True).train(2, strike, **MODES[mode][1])
    assert again == losses
    np.testing.assert_array_equal(after, tables)


@pytest.mark.slow
@pytest.mark.parametrize("spares", one_in(2, [0, 1], more=0))
def test_loops_go_on_with_the_same_bits(spares: int) -> None:
    """Replicas are killed before a step and within steps whose loops run as long as data say."""
    timers: list[threading.Timer] = []

    def strike(step: int, program: Any) -> None:
        if step == 2:
            kill(program, 1)
        if step in (3, 5):
            timers.append(kill_within(program, step % 2, 3e-3))

    with lasting("ray", spares=spares):
        undisturbed = train(fluid.cpu_places(2))
        assert train(fluid.cpu_places(2), strike) == undisturbed
    for timer in timers:
        timer.join()


@draws(2, 4)
@pytest.mark.parametrize("execution", [{}, {"num_iteration_per_run": 4}])
def test_killed_at_any_moment(execution: dict[str, Any], draws: int) -> None:
    """Kills strike before, in and after the vote; with one feed for several steps, too."""
    steps = 33 * draws
    with lasting("ray", spares=1):
        twin = Net(OPTIMIZERS["adam"], layers=2)
        undisturbed = losses_of(
            twin, twin.compiled(2, execution=execution), steps, lambda step: None
        )
        net = Net(OPTIMIZERS["adam"], layers=2)
        program = net.compiled(2, execution=execution)
        timers: list[threading.Timer] = []

        def strike(step: int) -> None:
            if step and step % (steps // draws) == 0:
                timers.append(kill_within(program, len(timers) % 2, 4e-3))

        losses = losses_of(net, program, steps, strike)
        for timer in timers:
            timer.join()
        assert len(timers) >= draws - 1
        for one, other in zip(losses, undisturbed, strict=True):
            assert one.tobytes() == other.tobytes()
        for name, value in net.parameters().items():
            assert value.tobytes() == twin.parameters()[name].tobytes(), name
        replicas_equal(net, program)


def test_steps_in_flight_are_done_once() -> None:
    def train(net: Net, program: Any, strike: Callable[[int], None]) -> list[Any]:
        futures, results, arrays = [], [], feed(8, 0)
        for step in range(36):
            strike(step)
            for name, array in feed(8, step).items():
                arrays[name][...] = array
            futures.append(net.exe.run_async(program, arrays, [net.loss], scope=net.scope))
            for array in arrays.values():
                array[...] = 1e9  # a step that is sent again has what it had
            if len(futures) > 1:
                results.append(futures.pop(0).result()[0])
        return results + [future.result()[0] for future in futures]

    with lasting("ray", spares=1):
        twin = Net(OPTIMIZERS["momentum"], layers=2)
        undisturbed = train(twin, twin.compiled(2), lambda step: None)
        net = Net(OPTIMIZERS["momentum"], layers=2)
        program = net.compiled(2)

        def strike(step: int) -> None:
            if step % 11 == 7:
                kill_within(program, step % 2, 2e-3).join()

        losses = train(net, program, strike)
        for one, other in zip(losses, undisturbed, strict=True):
            assert one.tobytes() == other.tobytes()
        for name, value in net.parameters().items():
            assert value.tobytes() == twin.parameters()[name].tobytes(), name


def alone_on(rank: int, net: Net, program: Any, plain: Any = None) -> ParallelRun:
    """Return a run of a plain program (None: the net's test) on one replica of those that train the net."""
    gang = program._parallel.gang
    single = gang.singles.setdefault(fluid.CUDAPlace(rank), SingleReplicaGang(gang, rank))
    return ParallelRun(plain or net.test, fluid.cpu_places(1), net.scope, gang=single, plain=True)


class TwoUpdates(Net):
    """Two optimizers in one program, the second of which sees what the first wrote; and a counter."""

    def __init__(self) -> None:
        super().__init__(OPTIMIZERS["sgd"], layers=2)
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard("second"):
            x, y = self.main.global_block().var("x"), self.main.global_block().var("y")
            again = fluid.layers.fc(x, 1, param_attr=self.main.all_parameters()[0].name + "_other")
            loss = fluid.layers.mean(fluid.layers.square_error_cost(again, y))
            fluid.optimizer.Adam(0.05).minimize(loss)
            self.counter = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True)
            fluid.layers.increment(self.counter)
        self.run(self.startup)


@pytest.mark.slow
def test_two_updates_and_a_counter() -> None:
    with lasting("ray"):
        twin, net = TwoUpdates(), TwoUpdates()
        losses_of(twin, twin.compiled(2), 9, lambda step: None)
        program = net.compiled(2)

        def strike(step: int) -> None:
            if step in (3, 6):
                kill(program, step % 2)

        losses_of(net, program, 9, strike)
        for name, value in net.parameters().items():
            assert value.tobytes() == twin.parameters()[name].tobytes(), name
        assert net.run(program, feed(8, 0), [net.counter])[0].tolist() == [10, 10]
        replicas_equal(net, program)


def test_fewer_places() -> None:
    """The rest of the training is what two places make of the whole batches."""
    with rowlock.cluster(launcher="ray", on_failure="shrink"):
        net, alone = Net(OPTIMIZERS["adam"]), Net(OPTIMIZERS["adam"])
        program, fetches = net.compiled(3), fetches_of((net.loss.name,), True)
        for step in range(6):
            if step == 2:
                kill(program, 1)
            net.run(program, feed(6, step), [net.loss])
            alone.run(alone.main, feed(6, step), [])
            if step == 0:
                tests = [alone_on(rank, net, program) for rank in (1, 2)]
            (wanted,) = net.run(net.test, feed(6), [net.loss])
            for test in tests[step > 1 :]:  # the first one's replica is gone then
                np.testing.assert_allclose(test.run(feed(6), fetches)[0], wanted, rtol=1e-5)
        with pytest.raises(InvalidState, match="are gone"):
            tests[0].run(feed(6), fetches)
        assert len(pids(program)) == 2
        assert_close(net.parameters(), alone.parameters(), 1e-5)
        replicas_equal(net, program)
        other = Net(OPTIMIZERS["adam"])  # what begins now has the places that are left, too
        assert len(other.run(other.compiled(3), feed(6, 0), [other.loss])[0]) == 2
        test = on_places(net.test, 3, share_vars_from=program)
        assert len(net.run(test, feed(6, 0), [net.loss])[0]) == 2


@pytest.mark.parametrize("on_gpus", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("finds", one_in(2, ["another program", "the question"]))
def test_a_program_that_ran_on_more_places_answers_questions(
    finds: str, on_gpus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas have what was compiled for fewer of them only once it runs again."""
    if on_gpus:
        if not host_compiler():
            pytest.skip("a simulated GPU needs g++ on this host")
        monkeypatch.setattr(fluid, "CPUPlace", lambda: fluid.CUDAPlace(0))
        monkeypatch.setattr(fluid, "cpu_places", lambda n: list(fluid.cuda_places(range(n))))
    with rowlock.cluster(launcher="ray", on_failure="shrink", start_deadline_s=200.0):
        net, twin = Net(), Net()
        program, other = net.compiled(3), twin.compiled(3)
        program.trace()
        for trained, one in ((net, program), (twin, other)):
            trained.run(one, feed(6, 0), [trained.loss])
        assert program._parallel.gang is other._parallel.gang
        assert [len(program.signals()), len(program.executed())] == [3, 3]
        kill(program, 1)
        if finds == "another program":
            twin.run(other, feed(6, 1), [twin.loss])
        assert "for 3 replica(s)" in str(program.explain())
        assert program.signals() == [] and program.temporaries() == (0, 0)
        with pytest.raises(InvalidState, match="call trace"):
            program.executed()
        net.run(program, feed(6, 1), [net.loss])
        assert "for 2 replica(s)" in str(program.explain())
        assert [len(program.signals()), len(program.executed())] == [2, 2]


@pytest.mark.parametrize("rank", one_in(2, [0, 1]))
def test_a_plain_program_goes_on_where_its_replica_is_replaced(rank: int) -> None:
    """It reads what the replica that took the place was sent, whichever program finds the other one lost."""
    with lasting("ray", spares=1, max_failures=1):
        twin, net = Net(OPTIMIZERS["adam"]), Net(OPTIMIZERS["adam"])
        losses_of(twin, twin.compiled(2), 4, lambda step: None)
        program, fetches = net.compiled(2), fetches_of((net.loss.name,), True)
        net.run(program, feed(8, 0), [net.loss])
        test = alone_on(rank, net, program)

        def tested(step: int) -> Any:
            return test.run(feed(8, step), fetches)[0]

        before = tested(5)
        kill(program, rank)
        np.testing.assert_array_equal(tested(5), before)  # which finds it lost
        kill(program, rank)
        net.run(program, feed(8, 1), [net.loss])  # as this does
        (wanted,) = net.run(net.test, feed(8, 5), [net.loss])
        np.testing.assert_allclose(tested(5), wanted, rtol=1e-5)
        net.run(program, feed(8, 2), [net.loss])
        wanted = [tested(step) for step in range(4)]
        futures = [test.start(feed(8, step), fetches, ahead=True) for step in range(2)]
        kill(program, rank)
        futures += [test.start(feed(8, step), fetches, ahead=True) for step in range(2, 4)]
        np.testing.assert_array_equal([future.result()[0] for future in futures], wanted)
        assert test.compilations == 1
        net.run(program, feed(8, 3), [net.loss])
        for name, value in net.parameters().items():
            assert value.tobytes() == twin.parameters()[name].tobytes(), name
        replicas_equal(net, program)


@pytest.mark.parametrize("notices", one_in(3, ["step", "read", "training"], more=2))
def test_what_a_plain_program_alone_wrote_is_lost_with_its_replica_and_missed_by_name(
    notices: str,
) -> None:
    with lasting("ray", spares=1):
        net = Net(OPTIMIZERS["sgd"])
        program, fetches = net.compiled(2), fetches_of((net.loss.name,), True)
        net.run(program, feed(8, 0), [net.loss])
        test, train = alone_on(1, net, program), alone_on(1, net, program, net.main)
        (before,) = test.run(feed(8), fetches)
        train.run(feed(8, 1), fetches)
        names = sorted(net.main.all_parameters(), key=lambda parameter: parameter.name)
        ask = {
            "step": lambda: train.run(feed(8, 2), fetches),
            "read": net.parameters,
            "training": lambda: net.run(program, feed(8, 2), [net.loss]),
        }
        kill(program, 1)
        for call in (ask[notices], *ask.values(), lambda: test.run(feed(8), fetches)):
            with pytest.raises(ValuesLost, match=rf"{names[0].name}.* alone .*[Ss]et .* again"):
                call()
        net.run(net.startup)
        (after,) = test.run(feed(8), fetches)
        assert np.isfinite(after) and after != before
        train.run(feed(8, 1), fetches)
        net.run(program, feed(8, 2), [net.loss])
        replicas_equal(net, program)


@pytest.mark.slow
def test_fewer_places_with_steps_in_flight() -> None:
    """Steps happen in the order in which they were begun, whichever of them finds a replica lost."""
    with rowlock.cluster(launcher="ray", on_failure="shrink", steps_in_flight=3):
        net, alone = Net(OPTIMIZERS["sgd"]), Net(OPTIMIZERS["sgd"])
        program = net.compiled(3, execution={"num_iteration_per_run": 2})
        net.run(program, feed(6, 0), [net.loss])

        def begin(step: int) -> Any:
            return net.exe.run_async(program, feed(6, step), [net.loss], scope=net.scope)

        kill(program, 2)
        futures = [begin(step) for step in range(1, 4)]
        assert [len(future.result()[0]) for future in futures] == [2, 2, 2]
        futures = [begin(4), begin(5)]
        kill(program, 0)
        time.sleep(0.2)  # the next one finds it
        futures.append(begin(6))
        parameters = net.parameters()  # after all of them
        assert [len(future.result()[0]) for future in futures[2:]] == [1]
        for step in range(7):
            for _ in range(2):
                alone.run(alone.main, feed(6, step), [])
        assert_close(parameters, alone.parameters(), 1e-5)


def test_raised_and_mended_at_the_next_run() -> None:
    with rowlock.cluster(launcher="ray", on_failure="raise"):
        twin, net = Net(OPTIMIZERS["adam"]), Net(OPTIMIZERS["adam"])
        losses_of(twin, twin.compiled(2), 4, lambda step: None)
        program = net.compiled(2)
        losses_of(net, program, 2, lambda step: None)
        pid = kill(program, 1)
        with pytest.raises(ReplicaLost, match=rf"replica 1 \(process {pid} on .*is gone") as caught:
            net.run(program, feed(8, 2), [net.loss])
        assert caught.value.ranks == [1]
        assert 'ClusterConfig(on_failure="shrink") goes on without' in str(caught.value)
        for step in (2, 3):
            net.run(program, feed(8, step), [net.loss])
        for name, value in net.parameters().items():
            assert value.tobytes() == twin.parameters()[name].tobytes(), name


@pytest.mark.slow
def test_values_are_read_and_written_across_a_loss() -> None:
    with lasting("ray"):
        twin, net = Net(OPTIMIZERS["adam"]), Net(OPTIMIZERS["adam"])
        losses_of(twin, twin.compiled(2), 1, lambda step: None)
        program = net.compiled(2)
        net.run(program, feed(8, 0), [net.loss])
        kill(program, 0)
        for name, value in net.parameters().items():
            assert value.tobytes() == twin.parameters()[name].tobytes()
        name, value = next(iter(net.parameters().items()))
        kill(program, 1)
        net.scope.find_var(name).get_tensor().set(np.zeros_like(value))
        net.run(program, feed(8, 0), [net.loss])
        replicas_equal(net, program)


@pytest.mark.slow
def test_reduce_mode_needs_its_owners() -> None:
    build = {"reduce_strategy": BuildStrategy.ReduceStrategy.Reduce}
    with rowlock.cluster(launcher="ray"):  # whose values are not to be missed below
        net = Net(OPTIMIZERS["adam"])
        program = net.compiled(2, build=build)
        net.run(program, feed(8, 0), [net.loss])
        kill(program, 1)
        text = r"replica 1 \(process .*lost replica alone held .*AllReduce keeps them"
        with pytest.raises(InvalidState, match=text):
            net.run(program, feed(8, 1), [net.loss])
        net.run(net.startup)
        net.run(program, feed(8, 1), [net.loss])
    with lasting("ray"):
        without = Net(OPTIMIZERS["sgd"])
        program = without.compiled(2, build=build)
        without.run(program, feed(8, 0), [without.loss])
        kill(program, 1)
        without.run(program, feed(8, 1), [without.loss])
        replicas_equal(without, program)


def test_statistics_of_batch_norm_go_on() -> None:
    with lasting("ray"):
        twin, net = Normed("rows"), Normed("rows")
        twin.train(2, sync=True)
        struck = []

        def strike(program: Any) -> None:
            if not struck:
                struck.append(kill(program, 1))

        net.train(2, sync=True, after_step=strike)
        assert struck
        for name, value in net.values().items():
            assert value.tobytes() == twin.values()[name].tobytes(), name


@pytest.mark.slow
def test_a_group_that_some_were_told_to_form_is_left() -> None:
    """An interrupt kept the others from the message: the next run forms another group at once."""
    with rowlock.cluster(launcher="ray", step_deadline_s=20):
        net = Net(OPTIMIZERS["sgd"])
        program = net.compiled(2)
        net.run(program, feed(8, 0), [net.loss])
        gang = program._parallel.gang
        delivery = gang.delivery
        delivery._group = "rowlock-of-one"
        head = {"group": delivery._group, "size": 2, "rank": 0, "pin": None}
        head |= {"backend": delivery.config.collectives, "within": delivery.config.start_deadline_s}
        delivery.give_up(delivery.start({0: Message("regroup", head)}))
        gang.ledger.torn = True
        with gang.turn:
            Recovery(gang).resume()
        net.run(program, feed(8, 1), [net.loss])
        replicas_equal(net, program)


@pytest.mark.slow
def test_too_many_in_a_row_are_raised() -> None:
    """A replica that dies of the step itself would be replaced for ever."""
    with rowlock.cluster(launcher="ray", max_failures=0):
        net = Net()
        program = net.compiled(2)
        net.run(program, feed(8, 0), [net.loss])
        kill(program, 0)
        with pytest.raises(ReplicaLost):
            net.run(program, feed(8, 1), [net.loss])


@pytest.mark.slow
def test_a_test_program_goes_on_beside_training() -> None:
    with lasting("ray"):
        net = Net(OPTIMIZERS["adam"])
        train = net.compiled(2)
        net.run(train, feed(8, 0), [net.loss])
        test = on_places(net.test, 2, share_vars_from=train)
        (before,) = net.run(test, feed(8, 5), [net.prediction])
        kill(train, 1)
        (after,) = net.run(test, feed(8, 5), [net.prediction])
        np.testing.assert_array_equal(before, after)
        kill(train, 0)
        net.run(train, feed(8, 1), [net.loss])
        replicas_equal(net, train)


def test_named_rebuilt_and_nothing_left(caplog: pytest.LogCaptureFixture) -> None:
    with lasting("ray", spares=1):
        net = Net(OPTIMIZERS["sgd"])
        program = net.compiled(2)
        net.run(program, feed(8, 0), [net.loss])
        logging.getLogger("rowlock").setLevel(logging.NOTSET)
        steps = program._parallel.gang.ledger.done
        pid = kill(program, 1)
        net.run(program, feed(8, 1), [net.loss])
        assert any(f"replica 1 (process {pid} on" in r.getMessage() for r in caplog.records)
        assert any(
            f"Training goes on at step {steps} with 2 replicas" in r.getMessage()
            for r in caplog.records
        )
