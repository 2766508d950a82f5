"""Steps whose shapes change every time: memory, plans and kernels of each replica after 1,000 to 10,000 steps.

``OMP_NUM_THREADS=1 python -m benchmarks.changing_shapes [PROGRAM ...] [--places N] [--steps N]``: a text CNN,
an LSTM, a click-through net with sparse tables and a loop that data end, on one place of this process or on N
Ray replicas. Hardly a shape comes twice. A program of one ``py_func`` counts in each replica's process.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rowlock
from rowlock import fluid
from rowlock.executor.codegen import native
from rowlock.executor.kernels.onednn.primitive import Primitive
from rowlock.executor.plan.plan import Plan

L = fluid.layers
WORDS, WIDTH, IDS, FIELDS = 5_000, 16, 100_000, 4
SEED = 3

Feed = dict[str, Any]
Draw = Callable[[np.random.Generator], Feed]


class Counts(NamedTuple):
    """What a process has: resident bytes, bound plans, compiled loops and primitives of oneDNN."""

    resident: int
    plans: int
    loops: int
    primitives: int


def count(_: Any) -> np.ndarray[Any, Any]:
    """Return this process's :class:`Counts`, int64 [1, 4]."""
    gc.collect()
    kinds = [type(o) for o in gc.get_objects()]
    plans = sum(issubclass(kind, Plan) for kind in kinds)
    primitives = sum(issubclass(kind, Primitive) for kind in kinds)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    resident = pages * os.sysconf("SC_PAGE_SIZE")
    return np.array([[resident, plans, len(native._loaded), primitives]])


def counting() -> tuple[fluid.Program, Any]:
    """Return a program that counts, and what to fetch; it is fed ``x``, float32 [places, 1]."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [-1, 1])
        counts = main.current_block().create_var(name="counts", shape=[1, 4], dtype="int64")
        L.py_func(count, x, counts)
    return main, counts


def sequences(draw: np.random.Generator, lengths: Any, ids: int) -> Any:
    """Return sequences of random ids, [sum of lengths, 1]."""
    rows = draw.integers(0, ids, (int(np.sum(lengths)), 1))
    return fluid.create_lod_tensor(rows, [list(map(int, lengths))], fluid.CPUPlace())


def text_cnn() -> tuple[Any, Draw]:
    """Windows over texts of one length in a step, a sparse embedding, lazy Adam."""
    words, label = fluid.data("words", [-1, -1], "int64"), fluid.data("label", [-1, 1], "int64")
    image = L.unsqueeze(fluid.embedding(words, (WORDS, WIDTH), is_sparse=True), [1])
    features = []
    for length in (3, 5):
        maps = L.conv2d(image, 8, (length, WIDTH), act="relu")
        features.append(L.pool2d(maps, pool_type="max", global_pooling=True))
    scores = L.fc(L.concat(features, 1), 4)
    loss = L.mean(L.softmax_with_cross_entropy(scores, label))
    fluid.optimizer.Adam(1e-3, lazy_mode=True).minimize(loss)

    def draw(rng: np.random.Generator) -> Feed:
        rows, length = int(rng.integers(2, 50)) * 2, int(rng.integers(6, 200))
        words = rng.integers(0, WORDS, (rows, length))
        return {"words": words, "label": rng.integers(0, 4, (rows, 1))}

    return loss, draw


def lstm() -> tuple[Any, Draw]:
    """An LSTM over sentences, and the largest of its states, Adam."""
    words = fluid.data("words", [-1, 1], "int64", lod_level=1)
    label = fluid.data("label", [-1, 1], "int64")
    rows = L.embedding(words, (WORDS, WIDTH), is_sparse=True)
    states, _ = L.dynamic_lstm(L.fc(rows, 4 * WIDTH), 4 * WIDTH, use_peepholes=False)
    scores = L.fc(L.sequence_pool(states, "max"), 2)
    loss = L.mean(L.softmax_with_cross_entropy(scores, label))
    fluid.optimizer.Adam(1e-3).minimize(loss)

    def draw(rng: np.random.Generator) -> Feed:
        lengths = rng.integers(1, 60, int(rng.integers(1, 12)) * 2)
        label = rng.integers(0, 2, (len(lengths), 1))
        return {"words": sequences(rng, lengths, WORDS), "label": label}

    return loss, draw


def clicks() -> tuple[Any, Draw]:
    """Fields of several ids, whose rows of sparse tables are added up, Adagrad."""
    fields = [fluid.data(f"field{k}", [-1, 1], "int64", lod_level=1) for k in range(FIELDS)]
    label = fluid.data("label", [-1, 1], "int64")
    rows = [L.embedding(field, (IDS, WIDTH), is_sparse=True) for field in fields]
    hidden = L.fc(L.concat([L.sequence_pool(row, "sum") for row in rows], 1), 32, act="relu")
    loss = L.mean(L.softmax_with_cross_entropy(L.fc(hidden, 2), label))
    fluid.optimizer.Adagrad(1e-2).minimize(loss)

    def draw(rng: np.random.Generator) -> Feed:
        samples = int(rng.integers(4, 30)) * 2
        feed: Feed = {"label": rng.integers(0, 2, (samples, 1))}
        for field in fields:
            feed[field.name] = sequences(rng, rng.integers(1, 9, samples), IDS)
        return feed

    return loss, draw


def loop() -> tuple[Any, Draw]:
    """A state that goes through one layer until its sum is large enough, SGD."""
    x = fluid.data("x", [-1, -1, WIDTH])
    weight = L.create_parameter([WIDTH, WIDTH], "float32")
    limit = fluid.data("limit", [1])
    state = L.reduce_sum(x, 1)

    def goes_on(state: Any, rounds: Any) -> Any:
        return L.less_than(rounds, limit)

    def turn(state: Any, rounds: Any) -> list[Any]:
        return [L.tanh(L.matmul(state, weight)), rounds + 1.0]

    state, _ = L.while_loop(goes_on, turn, [state, L.fill_constant([1], "float32", 0.0)])
    loss = L.mean(L.square(state))
    fluid.optimizer.SGD(1e-2).minimize(loss)

    def draw(rng: np.random.Generator) -> Feed:
        shape = (int(rng.integers(1, 100)) * 2, int(rng.integers(1, 80)), WIDTH)
        x = rng.standard_normal(shape, "float32")
        return {"x": x, "limit": np.array([rng.integers(1, 6)], "float32")}

    return loss, draw


PROGRAMS = {program.__name__: program for program in (text_cnn, lstm, clicks, loop)}


def grow(name: str, places: int, marks: Sequence[int]) -> Iterator[tuple[int, list[Counts]]]:
    """Train a program on shapes that change in each step.

    Yields: the step and the counts of each replica, at ``marks``.
    """
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = SEED
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, draw = PROGRAMS[name]()
    counter, counts = counting()
    exe, scope, rng = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), np.random.default_rng(SEED)
    exe.run(startup, scope=scope)
    if places > 1:
        cpus = [fluid.CPUPlace()] * places
        main = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name, places=cpus)
        counter = fluid.CompiledProgram(counter).with_data_parallel(places=cpus)
    x = {"x": np.zeros((places, 1), "float32")}
    for step in range(1, max(marks) + 1):
        feed = draw(rng)
        if places > 1 and name == "loop":  # one limit for all places
            halves = np.split(feed["x"], places)
            feed = [{"x": half, "limit": feed["limit"]} for half in halves]
        (value,) = exe.run(main, feed=feed, fetch_list=[loss], scope=scope)
        assert np.isfinite(value).all(), (name, step, value)
        if step in marks:
            (numbers,) = exe.run(counter, feed=x, fetch_list=[counts], scope=scope)
            yield step, [Counts(*map(int, row)) for row in np.reshape(numbers, (places, 4))]


def main() -> None:
    """Print a line for each program, number of steps and replica."""
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--places", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    marks = [max(options.steps * k // 10, 1) for k in (1, 2, 5, 10)]
    for name in options.programs:
        began = time.perf_counter()
        with rowlock.cluster(launcher="ray"):
            for step, replicas in grow(name, options.places, marks):
                for rank, has in enumerate(replicas):
                    print(
                        f"{name:9} replica {rank} step {step:6}: {has.resident / 2**20:7.1f} MiB, "
                        f"{has.plans:5} plans, {has.loops:5} loops, {has.primitives:5} primitives, "
                        f"{time.perf_counter() - began:6.0f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
