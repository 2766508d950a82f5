"""Programs on GPU places: which replica runs them, what is refused, what memory and graphs they take."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.device.gpus import local_gpus, open_gpu
from rowlock.executor.driver.program_runs import ProgramRuns
from rowlock.executor.gang import launchers
from rowlock.executor.simulated.simulated import COUNT, MEMORY
from rowlock.strategies.errors import ExecutionError, PlacementError, ResourceExhausted, TrainerLost
from rowlock.strategies.garbage import gc_paused
from tests.contract.nets import OPTIMIZERS, Net, feed
from tests.contract.rings import add_ring
from tests.ops.gpu import needs_compiler
from tests.programs import on_places, own_programs

pytestmark = [needs_compiler, pytest.mark.usefixtures("two_gpus", "threads")]


def on(place: Any, **how: Any) -> Net:
    net = Net(**how)
    net.exe = fluid.Executor(place)
    return net


def parallel(net: Net, *gpus: int, **switches: Any) -> fluid.CompiledProgram:
    return on_places(net.main, [fluid.CUDAPlace(i) for i in gpus], net.loss, build=switches)


def losses(net: Net, program: Any, steps: int = 5) -> list[float]:
    return [float(np.mean(net.run(program, feed(8, i), [net.loss])[0])) for i in range(steps)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_plain_program_trains_there_as_on_a_cpu(optimizer: str) -> None:
    there, here = (on(p, optimizer=OPTIMIZERS[optimizer], drop=0.3) for p in _places())
    np.testing.assert_allclose(losses(there, there.main), losses(here, here.main), rtol=1e-5)
    name = there.main.all_parameters()[0].name
    values = [np.array(net.scope.find_var(name).get_tensor()) for net in (there, here)]
    np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6)


def _places() -> tuple[Any, Any]:
    return fluid.CUDAPlace(0), fluid.CPUPlace()


def test_test_programs_run_on_replicas_of_the_gang_with_its_newest_values() -> None:
    there, here = (on(place) for place in _places())
    program, other = parallel(there, 0, 1), fluid.Executor(fluid.CUDAPlace(1))
    for i in range(3):
        trained = np.mean(there.run(program, feed(8, i), [there.loss])[0])
        np.testing.assert_allclose(
            trained, here.run(here.main, feed(8, i), [here.loss])[0], rtol=1e-5
        )
        (wanted,) = here.run(here.test, feed(8), [here.loss])
        for exe in (there.exe, other):
            tested = exe.run(there.test, feed(8), [there.loss], scope=there.scope)[0]
            np.testing.assert_allclose(tested, wanted, rtol=1e-5)


def test_what_the_user_writes_is_seen_there() -> None:
    net = on(fluid.CUDAPlace(0))
    before = net.run(net.test, feed(4), [net.loss])[0]
    for parameter in net.main.all_parameters():
        tensor = net.scope.find_var(parameter.name).get_tensor()
        tensor.set(np.zeros(tensor.shape(), "float32"), fluid.CUDAPlace(0))
    after = net.run(net.test, feed(4), [net.loss])[0]
    assert after != before
    np.testing.assert_allclose(after, np.mean(np.square(feed(4)["y"])), rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2])
def test_a_step_with_a_wrong_id_or_label_is_refused_changes_nothing_and_the_next_one_runs(
    count: int,
) -> None:
    """The fourth and the sixth step, by graphs that were captured before; a step without fetches, too."""
    ids = np.array([[0], [1], [2], [3]])
    wrong = {3: ("ids", 9, "lookup_table: index 9 is outside the 5 rows"),
             5: ("label", 7, "softmax_with_cross_entropy: label 7 is outside the 3 classes")}  # fmt: skip

    def trained(refused: bool) -> tuple[list[Any], Any]:
        scope = fluid.Scope()
        with own_programs(3) as (main, startup):
            fed = fluid.data("ids", [None, 1], "int64"), fluid.data("label", [None, 1], "int64")
            scores = fluid.layers.fc(
                fluid.layers.reshape(fluid.embedding(fed[0], [5, 4]), [-1, 4]), 3
            )
            loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, fed[1]))
            fluid.optimizer.Adam(0.1).minimize(loss)
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(startup, scope=scope)
        program = (
            on_places(main, [fluid.CUDAPlace(i) for i in range(count)], loss) if count > 1 else main
        )
        losses = []
        for number in range(8):
            feed = {"ids": ids.copy(), "label": ids % 3}
            if number in wrong:
                if not refused:
                    continue
                name, value, sentence = wrong[number]
                feed[name][3] = value
                with pytest.raises(ExecutionError, match=sentence) as error:
                    exe.run(program, feed, [loss], scope=scope)
                assert name in str(error.value) and "test_gpu_places.py" in str(error.value)
            else:
                losses.append(exe.run(program, feed, [loss], scope=scope)[0])
        if refused and count == 1:  # it is told by the next step
            exe.run(program, {"ids": ids + 9, "label": ids % 3}, [], scope=scope)
            with pytest.raises(ExecutionError, match="is outside the 5 rows"):
                exe.run(program, {"ids": ids, "label": ids % 3}, [loss], scope=scope)
        names = [parameter.name for parameter in main.all_parameters()]
        values = [np.array(scope.find_var(name).get_tensor()) for name in names]
        return losses, values

    (losses, values), (known, expected) = trained(True), trained(False)
    np.testing.assert_array_equal(losses, known)
    for value, other in zip(values, expected, strict=True):
        np.testing.assert_array_equal(value, other)


def test_two_replicas_on_one_gpu_are_refused() -> None:
    net = on(fluid.CUDAPlace(0))
    with pytest.raises(PlacementError, match="two replicas on GPU 0; a GPU holds one"):
        net.run(parallel(net, 0, 0), feed(4), [])
    both = parallel(net, 0, 1)
    net.run(both, feed(4), [])
    with pytest.raises(PlacementError, match="GPU 1 holds a replica of the gang on"):
        net.run(parallel(net, 1), feed(4), [])
    with pytest.raises(PlacementError, match=r"GPUs 0, 1 hold replicas of .* GPU holds one"):
        net.run(parallel(net, 1, 0), feed(4), [])
    net.run(both, feed(4), [])  # it goes on
    with pytest.raises(NotImplementedError, match="there is no GPU 9"):
        net.run(parallel(net, 9), feed(4), [])


def test_two_trainers_on_one_gpu_of_a_process_are_refused() -> None:
    ends, results = ["127.0.0.1:6990", "127.0.0.1:6991"], []
    exes = [fluid.Executor(fluid.CUDAPlace(0)) for _ in ends]
    with rowlock.cluster(launcher="threads", start_deadline_s=1, step_deadline_s=1):
        for rank, exe in enumerate(exes):
            main, startup = fluid.Program(), fluid.Program()
            with fluid.program_guard(main, startup):
                x = fluid.data("x", [4, 3])
                main.global_block().append_op(
                    type="c_allreduce_sum",
                    inputs={"X": [x]},
                    outputs={"Out": [x]},
                    attrs={"ring_id": 0},
                )
            add_ring(startup, rank, ends)
            scope = fluid.Scope()
            exe.run(startup, scope=scope)
            with pytest.raises((TrainerLost, PlacementError)) as info:
                exe.run(main, {"x": np.ones((4, 3), "float32")}, scope=scope)
            results.append(info.value)
    assert isinstance(results[0], TrainerLost), "the other has not come"
    assert "trainers 0 and 1 of 127.0.0.1:6990, " in str(results[1]) and "share" in str(results[1])


def test_a_program_that_is_gone_leaves_its_gpus() -> None:
    net = on(fluid.CUDAPlace(0))
    net.run(parallel(net, 0, 1), feed(4), [])
    net.run(parallel(net, 0), feed(4), [])


def test_a_program_that_is_gone_with_what_refers_to_itself_leaves_its_gpus_too() -> None:
    """As one does that the traceback of a caught error has."""
    net = on(fluid.CUDAPlace(0))
    circle = [parallel(net, 0, 1)]
    circle.append(circle)
    with gc_paused():
        net.run(circle[0], feed(4), [])
        del circle
        net.run(parallel(net, 0), feed(4), [])


def test_a_program_without_places_leaves_its_gpu_also_to_a_gang_that_it_did_not_start() -> None:
    there, here = (on(place) for place in _places())
    for i, gpus in enumerate([(0,), (), (0, 1), (), (1,), ()]):
        # without places it runs on a replica of those before
        program = parallel(there, *gpus) if gpus else there.main
        trained = np.mean(there.run(program, feed(8, i), [there.loss])[0])
        np.testing.assert_allclose(
            trained, here.run(here.main, feed(8, i), [here.loss])[0], rtol=1e-5
        )


def test_a_gang_that_another_thread_starts_leaves_one_whose_first_program_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, new_run = on(fluid.CUDAPlace(0)), ProgramRuns._new_run
    other = threading.Thread(target=launchers.gang_for, args=([fluid.CUDAPlace(1)],))

    def meanwhile(*args: Any) -> Any:
        other.start()
        other.join(0.5)
        return new_run(*args)

    monkeypatch.setattr(launchers, "_UNUSED_KEPT", 0)
    monkeypatch.setattr(ProgramRuns, "_new_run", meanwhile)
    assert np.isfinite(losses(net, net.main, 1)).all()
    other.join(60)
    assert not other.is_alive()


def test_a_step_is_captured_after_it_ran_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []  # what libraries were timed on, of which GPU
    monkeypatch.setattr(
        type(open_gpu(0)), "give_back", lambda runtime: given_back.append(runtime.index)
    )
    net = on(fluid.CUDAPlace(0))
    program = parallel(net, 0)
    net.run(program, feed(4), [net.loss])
    assert "0 captured" in str(program.explain())
    bound = len(given_back)
    net.run(program, feed(4), [net.loss])
    assert given_back == [0] * bound and bound, "behind what was bound, and not in the next step"
    report = str(program.explain())
    assert "a step is" in report
    assert "0 captured" not in report
    plain = parallel(on(fluid.CUDAPlace(0)), 0, allow_cuda_graph_capture=False)
    for _ in range(3):
        net.run(plain, feed(4), [])
    assert "0 captured" in str(plain.explain())


def test_the_vote_splits_the_graph_and_is_told() -> None:
    net = on(fluid.CUDAPlace(0))
    program = parallel(net, 0, 1)
    net.run(program, feed(4), [net.loss])
    assert "split at fused_all_reduce" in str(program.explain())


def test_a_step_that_does_not_fit_names_a_batch_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    if local_gpus() and not _simulated():
        pytest.skip("the GPU has other memory")
    monkeypatch.setenv(MEMORY, str(66 << 20))
    net = on(fluid.CUDAPlace(0))
    program = parallel(net, 0)
    net.run(program, feed(4), [net.loss])
    big = {"x": np.zeros((1 << 20, 4), "f4"), "y": np.zeros((1 << 20, 1), "f4")}
    with pytest.raises(ResourceExhausted, match=r"a place has .* batch that fits has \d+ rows"):
        net.run(program, big, [net.loss])
    net.run(program, feed(4), [net.loss])


def _simulated() -> bool:
    import os

    return COUNT in os.environ
