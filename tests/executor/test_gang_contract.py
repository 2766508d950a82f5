"""What every gang promises, whatever it is made of."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.gang.delivery import Request, Share
from rowlock.executor.gang.gang import Gang
from rowlock.executor.gang.local import launch_threads
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.replica.message import Message
from rowlock.executor.replica.orders import Drop, Temporaries
from rowlock.graph.compile import compile_program
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.errors import ExecutionError, InvalidState, NotInitialized, RowlockError
from tests.programs import own_programs

SIZE = 2
SCOPE = 9


KINDS = {
    "threads": ClusterConfig(launcher="threads", collective_deadline_s=20, step_deadline_s=60),
    "ray": ClusterConfig(collective_deadline_s=20, step_deadline_s=60),
    "actor calls": ClusterConfig(transport="actor", collective_deadline_s=20, step_deadline_s=60),
}


@pytest.fixture(scope="module", params=KINDS)
def gang(request: pytest.FixtureRequest) -> Iterator[Gang]:
    places = fluid.cpu_places(SIZE)
    config = KINDS[request.param]
    if config.launcher == "ray":
        request.getfixturevalue("ray_cluster")
        from rowlock.cluster.gang import launch_ray

        gang = launch_ray(places, config)
    else:
        gang = launch_threads(places, config)
    yield gang
    gang.close()
    assert gang.delivery.broken, "a closed gang is not used again"
    with pytest.raises(InvalidState):
        gang.all(Drop(0))


class Regression:
    """y = x w, trained by SGD; loaded on a gang."""

    def __init__(self, gang: Gang) -> None:
        with own_programs() as (main, _):
            x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
            guess = fluid.layers.fc(x, 1, bias_attr=False)
            loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
            fluid.optimizer.SGD(0.1).minimize(loss)
        self.weight = main.all_parameters()[0].name
        target = Target(replicas=gang.size, strategy=BuildStrategy(), has_loss=True)
        compiled = compile_program(main, ("x", "y"), (loss.name,), target, capabilities())
        self.gang, self.scope, self.steps = gang, gang.new_id(), 0
        self.number = gang.load(compiled.program.to_json(), self.scope)
        others = [n for n in compiled.program.needed_names() if n != self.weight]
        gang.write(self.scope, [self.weight], [np.zeros((3, 1), "f4")])
        gang.write(self.scope, others, [np.full(1, 0.1, "f4") for _ in others])

    def step(self, feeds: list[list[np.ndarray]]) -> list[Any]:
        self.steps += 1
        shares = [Share(arrays, [0], [1.0], [False]) for arrays in feeds]
        request = Request(self.number, shares, self.steps, 1, [self.number])
        self.gang.begin(request)
        return self.gang.finish(request)

    def weights(self) -> list[np.ndarray]:
        return [self.gang.read(self.scope, self.weight, r) for r in range(self.gang.size)]


def feeds(seed: int, width: int = 3) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    shares = [rng.standard_normal((4, width)).astype("f4") for _ in range(SIZE)]
    return [[x, x.sum(1, keepdims=True)] for x in shares]


def test_every_replica_gets_its_own_message(gang: Gang) -> None:
    messages = [
        Message("write", {"epoch": gang.epoch, "scope": SCOPE, "names": ["x"]}, [np.full(3, rank)])
        for rank in range(SIZE)
    ]
    assert [answer.kind for answer in gang.each(messages)] == ["ok"] * SIZE
    assert [gang.read(SCOPE, "x", rank).tolist() for rank in range(SIZE)] == [[0] * 3, [1] * 3]


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int64", "bool"]
)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (3, 2), (1000, 30)])
def test_what_is_written_is_read(gang: Gang, dtype: str, shape: tuple[int, ...]) -> None:
    value = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3).astype(dtype)
    gang.write(SCOPE, ["a", "b"], [value, value.T])
    read = gang.read(SCOPE, "a", 1)
    assert read.dtype == dtype
    np.testing.assert_array_equal(read, value)
    np.testing.assert_array_equal(gang.read(SCOPE, "b"), value.T)


def test_what_is_read_is_a_copy(gang: Gang) -> None:
    value = np.zeros(5000)
    gang.write(SCOPE, ["c"], [value])
    value += 1
    gang.read(SCOPE, "c")[...] = 7
    assert gang.read(SCOPE, "c").max() == 0


def test_steps_average_gradients_and_keep_replicas_equal(gang: Gang) -> None:
    model, weight = Regression(gang), np.zeros((3, 1))
    for seed in range(5):
        shares = feeds(seed)
        losses = model.step(shares)
        gradient = sum(2 * x.T @ (x @ weight - y) / len(x) for x, y in shares) / SIZE
        expected = [np.mean((x @ weight - y) ** 2) for x, y in shares]
        np.testing.assert_allclose([float(loss[0][0]) for loss in losses], expected, rtol=1e-4)
        weight = weight - 0.1 * gradient
    weights = model.weights()
    np.testing.assert_allclose(weights[0], weight, rtol=1e-4)
    assert weights[0].tobytes() == weights[1].tobytes()


@pytest.mark.parametrize("failing", range(SIZE))
def test_one_replica_fails_all_stop_and_the_next_step_works(gang: Gang, failing: int) -> None:
    model = Regression(gang)
    model.step(feeds(1))
    before = model.weights()
    bad = feeds(2)
    bad[failing] = feeds(2, width=5)[failing]
    with pytest.raises(RowlockError, match=f"replica {failing}"):
        model.step(bad)
    for old, new in zip(before, model.weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    model.step(feeds(3))
    assert model.weights()[0].tobytes() == model.weights()[1].tobytes()
    model.step(feeds(3))
    with pytest.raises(RowlockError, match=f"replica {failing}"):
        model.step(bad)
    Regression(gang).step(feeds(4))  # which has buckets of its own
    assert not gang.delivery.broken


def test_errors_of_replicas_are_of_the_family(gang: Gang) -> None:
    with pytest.raises(NotInitialized, match="replica 1 holds no value for nothing"):
        gang.read(SCOPE, "nothing", 1)
    with pytest.raises(ExecutionError, match=r"replica 0.*KeyError"):
        gang.all(Temporaries(12345))
    assert gang.all(Drop(12345))[0].kind == "ok"


def test_several_programs_share_one_gang(gang: Gang) -> None:
    first, second = Regression(gang), Regression(gang)
    first.step(feeds(1))
    second.step(feeds(1))
    second.step(feeds(2))
    first.step(feeds(2))
    assert first.weights()[0].tobytes() == second.weights()[1].tobytes()


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt."""


def test_after_an_interrupt_the_next_step_gets_its_own_answers(gang: Gang) -> None:
    armed, struck = [False], [0]

    def strike(*_: Any) -> None:
        if armed[0]:
            armed[0] = False
            struck[0] += 1
            raise Interrupted

    model = Regression(gang)
    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGUSR1, strike)
    try:
        for seed in range(600):
            if seed >= 60 and struck[0] > 10:
                break
            delay = random.random() * 1e-3
            timer = threading.Timer(delay, signal.pthread_kill, (main, signal.SIGUSR1))
            timer.start()
            try:
                armed[0] = True
                model.step(feeds(seed))
                armed[0] = False
            except Interrupted:
                pass
            timer.join()
            gang.write(model.scope, ["mark"], [np.full(4, seed)])
            assert gang.read(model.scope, "mark", 1).tolist() == [seed] * 4
            losses = model.step(feeds(seed))
            assert all(len(loss) == 1 and loss[0].shape == (1,) for loss in losses)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert struck[0] > 3
    assert not gang.delivery.broken
