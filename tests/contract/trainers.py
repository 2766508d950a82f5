"""Several trainers as threads of one process: each with a program, a scope and a gang of its own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import rowlock.fluid as fluid
from tests.contract.nets import Net, feed
from tests.programs import own_programs

_ports = itertools.count(7000)


def endpoints(count: int) -> list[str]:
    """Return a list of trainers that no other test has."""
    return [f"127.0.0.1:{next(_ports)}" for _ in range(count)]


def endpoints_on_one_place(count: int) -> list[str]:
    """Return such a list of trainers that all have the first place, which a GPU cannot be for several."""
    if isinstance(fluid.CPUPlace(), fluid.CUDAPlace):
        import pytest

        pytest.skip("about several gangs at once")
    return endpoints(count)


def at_once(bodies: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call every one on a thread of its own; return results, or the errors that were raised, in order."""
    import pytest  # here: trainers that are processes have no use for it, and it takes them a quarter second

    results: list[Any] = [None] * len(bodies)

    def run(k: int) -> None:
        try:
            results[k] = bodies[k]()
        except (Exception, pytest.skip.Exception) as error:
            results[k] = error

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert not any(thread.is_alive() for thread in threads), results
    for result in results:
        if isinstance(result, pytest.skip.Exception):  # this host has too few GPUs
            raise result
    return results


def all_well(results: Sequence[Any]) -> list[Any]:
    """Return the results if nobody failed."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return list(results)


def trained(net: Net, trainer: int, ends: list[str], places: int, **fields: Any) -> Any:
    """Return the program of one of several trainers, on GPUs of its own if places are GPUs."""
    build = {"num_trainers": len(ends), "trainer_id": trainer, "trainers_endpoints": ends, **fields}
    return net.compiled(places, build=build, first=trainer * places)


def part(fed: dict[str, Any], trainer: int, count: int) -> dict[str, Any]:
    """Return a trainer's rows of a batch."""
    rows = len(fed["y"]) // count
    return {name: value[trainer * rows : (trainer + 1) * rows] for name, value in fed.items()}


def train(
    net: Net, trainer: int, ends: list[str], places: int, steps: int, rows: int = 12, **fields: Any
) -> list[Any]:
    """Train one's part of each batch; return what was fetched of each step."""
    program = trained(net, trainer, ends, places, **fields)
    return [
        net.run(program, part(feed(rows, step), trainer, len(ends)), [net.loss])
        for step in range(steps)
    ]


class _Own(Net):
    """A net of the test's own in the place of ``Net``'s."""

    def __init__(self, build: Callable[[], Any], optimizer: Any = None) -> None:
        self.scope, self.exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        with own_programs(5) as (self.main, self.startup):
            self.loss = build()
            (optimizer or fluid.optimizer.SGD(0.1)).minimize(self.loss)
        self.run(self.startup)


def normalised() -> Net:
    """Return a net with a batch norm."""

    def build() -> Any:
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
        hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 3))
        return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))

    return _Own(build)


def rows_of_table() -> Net:
    """Return a net that fails if it is fed a number from 10 up."""

    def build() -> Any:
        ids = fluid.data("ids", [None, 1], "int64")
        return fluid.layers.mean(fluid.layers.embedding(ids, [10, 4]))

    return _Own(build)


def images() -> Net:
    """Return a net with a convolution."""

    def build() -> Any:
        x = fluid.data("x", [None, 3, 8, 8])
        hidden = fluid.layers.conv2d(x, num_filters=4, filter_size=3, act="relu")
        return fluid.layers.mean(fluid.layers.fc(hidden, 1))

    return _Own(build)


def wide() -> Net:
    """Return a net with a gradient of a megabyte."""

    def build() -> Any:
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
        hidden = fluid.layers.fc(x, 65536, bias_attr=False)
        mean = fluid.layers.reduce_mean(hidden, 1, keep_dim=True)
        return fluid.layers.mean(fluid.layers.square_error_cost(mean, y))

    return _Own(build)


def words(optimizer: str, sparse: bool = True, height: int = 50) -> Net:
    """Return a net with a table of so many rows whose gradients are sparse."""

    def build() -> Any:
        ids, y = fluid.data("ids", [None, 3], "int64"), fluid.data("y", [None, 1])
        rows = fluid.layers.reduce_sum(fluid.embedding(ids, [height, 4], is_sparse=sparse), 1)
        return fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(rows, 1), y))

    kinds = {
        "sgd": lambda: fluid.optimizer.SGD(0.1),
        "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
        "lazy adam": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True),
    }
    return _Own(build, kinds[optimizer]())


def words_fed(rows: int, step: int, place: int = 0) -> dict[str, Any]:
    """Return rows for such a net that differ by step and place."""
    draw = np.random.default_rng([step, place])
    return {"ids": draw.integers(0, 12, (rows, 3)), "y": draw.random((rows, 1), "float32")}
