"""Steps whose shapes change every time: what each process has after up to 10,000 of them.

``OMP_NUM_THREADS=1 python -m benchmarks.changing_shapes [PROGRAM ...] [--on WAY] [--steps N]``: the programs of
``sequence_models.py`` that take any length, in a small size, and a loop that data end; on one place, on two of
this process, or on two Ray replicas. Lengths and their number are drawn: hardly a shape comes twice. On Ray a
program of one ``py_func`` counts in each replica's process.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import rowlock
from benchmarks import sequence_models
from rowlock import fluid
from rowlock.executor.codegen import native
from rowlock.executor.kernels.onednn.primitive import Primitive
from rowlock.executor.plan.plan import Plan

L = fluid.layers
SEED, WIDTH = 3, 16
WAYS = {"place": 1, "threads": 2, "ray": 2}  # and the places of each
SIZES = {  # of the programs: steps of the sizes there take ten times as long
    "TEXT": {"words": 5_000, "width": WIDTH, "channels": 8},
    "LSTM": {"words": 5_000, "width": WIDTH, "hidden": 2 * WIDTH},
    "FIELDS": {"table": 100_000, "width": WIDTH, "hidden": 4 * WIDTH},
    "SESSIONS": {"items": 5_000, "hidden": 2 * WIDTH},
    "PAIRS": {"words": 500, "width": WIDTH},
}

Feed = dict[str, Any]
Draw = Callable[[np.random.Generator], Feed]


class Counts(NamedTuple):
    """What a process has.

    ``process`` is its number; ``anonymous`` and ``shared`` are resident bytes, of its own memory and of
    segments in ``/dev/shm``; ``allocated`` those that are in use of what the C library's ``malloc`` has;
    ``objects`` the blocks that Python's allocator has given away; ``loops``, ``primitives``: what is compiled.
    """

    process: int
    anonymous: int
    shared: int
    allocated: int
    objects: int
    plans: int
    loops: int
    primitives: int
    files: int
    threads: int
    segments: int

    def __str__(self) -> str:
        pairs = list(self._asdict().items())
        sizes = (f"{name} {n / 2**20:.1f}" for name, n in pairs[1:4])
        counts = (f"{name} {n}" for name, n in pairs[4:])
        return f"MiB {', '.join(sizes)}; {', '.join(counts)}"


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def allocated() -> int:
    """Return the bytes in use of what glibc's ``malloc`` has; 0: another library, or an old one."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    mallinfo.restype = _MallInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def count() -> Counts:
    """Return what this process has."""
    gc.collect()
    kinds = [type(o) for o in gc.get_objects()]
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kib = {name: int(status[name].split()[0]) for name in ("RssAnon", "RssShmem")}
    maps = Path("/proc/self/maps").read_text().splitlines()
    return Counts(
        os.getpid(),
        kib["RssAnon"] << 10,
        kib["RssShmem"] << 10,
        allocated(),
        sys.getallocatedblocks(),
        sum(issubclass(kind, Plan) for kind in kinds),
        len(native._loaded),
        sum(issubclass(kind, Primitive) for kind in kinds),
        len(os.listdir("/proc/self/fd")),
        int(status["Threads"]),
        len({line.split()[4] for line in maps if "/dev/shm/" in line}),
    )


def counted_array(_: Any) -> np.ndarray[Any, Any]:
    """Return this process's :class:`Counts`, int64 [1, fields]."""
    from benchmarks import changing_shapes  # a replica is sent what the main module has, by value

    return np.array([changing_shapes.count()])


def counting() -> tuple[fluid.Program, Any]:
    """Return a program that counts, and what to fetch; it is fed ``x``, float32 [places, 1]."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [-1, 1])
        shape = [1, len(Counts._fields)]
        counts = main.current_block().create_var(name="counts", shape=shape, dtype="int64")
        L.py_func(counted_array, x, counts)
    return main, counts


def sequences(rng: np.random.Generator, lengths: Any, ids: int) -> Any:
    """Return sequences of random ids, [sum of lengths, 1]."""
    rows = rng.integers(0, ids, (int(np.sum(lengths)), 1))
    return fluid.create_lod_tensor(rows, [list(map(int, lengths))], fluid.CPUPlace())


def draw_texts(rng: np.random.Generator) -> Feed:
    texts, length = 2 * int(rng.integers(2, 50)), int(rng.integers(6, 200))
    words = rng.integers(0, sequence_models.TEXT["words"], (texts, length))
    return {"words": words, "label": rng.integers(0, 10, (texts, 1))}


def draw_sentences(rng: np.random.Generator) -> Feed:
    lengths = rng.integers(1, 60, 2 * int(rng.integers(1, 12)))
    words = sequences(rng, lengths, sequence_models.LSTM["words"])
    return {"words": words, "label": rng.integers(0, 2, (len(lengths), 1))}


def draw_sessions(rng: np.random.Generator) -> Feed:
    lengths, items = rng.integers(2, 30, 2 * int(rng.integers(1, 30))), sequence_models.SESSIONS
    return {name: sequences(rng, lengths, items["items"] // 10) for name in ("items", "following")}


def draw_clicks(rng: np.random.Generator) -> Feed:
    rows, size = 2 * int(rng.integers(2, 30)), sequence_models.FIELDS
    feed: Feed = {
        "dense": rng.random((rows, size["dense"]), "float32"),
        "label": rng.integers(0, 2, (rows, 1)),
    }
    for k in range(size["count"]):
        feed[f"ids{k}"] = sequences(rng, rng.integers(1, 9, rows), size["table"])
    return feed


def draw_pairs(rng: np.random.Generator) -> Feed:
    pairs, words = 2 * int(rng.integers(1, 9)), sequence_models.PAIRS["words"]
    source, target = (rng.integers(1, 20, pairs) for _ in range(2))
    lengths = {"source": source, "target": target, "following": target}
    return {name: sequences(rng, each, words) for name, each in lengths.items()}


def loop(fluid: Any, rng: Any) -> tuple[Any, Any, Any]:
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
    return L.mean(L.square(state)), fluid.optimizer.SGD(1e-2), []


def draw_states(rng: np.random.Generator) -> Feed:
    shape = (2 * int(rng.integers(1, 100)), int(rng.integers(1, 80)), WIDTH)
    x = rng.standard_normal(shape, "float32")
    return {"x": x, "limit": np.array([rng.integers(1, 6)], "float32")}


PROGRAMS: dict[str, tuple[Any, Draw]] = {
    program.__name__: (program, draw)
    for program, draw in (
        (sequence_models.stacked_lstm, draw_sentences),
        (sequence_models.session_gru, draw_sessions),
        (sequence_models.click_through_uneven, draw_clicks),
        (sequence_models.text_cnn_uneven, draw_texts),
        (sequence_models.translator, draw_pairs),
        (loop, draw_states),
    )
}


@contextmanager
def small() -> Iterator[None]:
    """Give the programs of ``sequence_models.py`` the sizes of this benchmark meanwhile."""
    with ExitStack() as stack:
        for name, sizes in SIZES.items():
            stack.enter_context(patch.dict(getattr(sequence_models, name), sizes))
        yield


def grow(name: str, places: int, marks: Sequence[int]) -> Iterator[tuple[int, list[Counts]]]:
    """Train a program on shapes that change in each step.

    Yields: the step and the counts of this process, and of others that have a replica, at ``marks``.
    """
    build, draw = PROGRAMS[name]
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = SEED
    with small(), fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, optimizer, _ = build(fluid, np.random.RandomState(SEED))
        optimizer.minimize(loss)
    counter, counts = counting()
    exe, scope, rng = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), np.random.default_rng(SEED)
    exe.run(startup, scope=scope)
    if places > 1:
        cpus = [fluid.CPUPlace()] * places
        main = fluid.CompiledProgram(main).with_data_parallel(loss_name=loss.name, places=cpus)
        counter = fluid.CompiledProgram(counter).with_data_parallel(places=cpus)
    x = {"x": np.zeros((places, 1), "float32")}
    for step in range(1, max(marks) + 1):
        with small():
            feed: Any = draw(rng)
        if places > 1 and name == "loop":  # one limit for all places
            halves = np.split(feed["x"], places)
            feed = [{"x": half, "limit": feed["limit"]} for half in halves]
        (value,) = exe.run(main, feed=feed, fetch_list=[loss], scope=scope)
        assert np.isfinite(value).all(), (name, step, value)
        if step in marks:
            (rows,) = exe.run(counter, feed=x, fetch_list=[counts], scope=scope)
            processes = {counts.process: counts for counts in (count(), *map(_counts_of, rows))}
            yield step, list(processes.values())


def _counts_of(row: Sequence[Any]) -> Counts:
    return Counts(*map(int, row))


def main() -> None:
    """Print a line for each program, number of steps and process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--on", choices=WAYS, default="place")
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    marks = sorted({max(options.steps * k // 10, 1) for k in range(1, 11)})
    launcher = "ray" if options.on == "ray" else "threads"
    for name in options.programs:
        began = time.perf_counter()
        with rowlock.cluster(launcher=launcher):
            for step, processes in grow(name, WAYS[options.on], marks):
                for number, counts in enumerate(processes):
                    process = f"replica {number - 1}" if number else "driver"
                    seconds = time.perf_counter() - began
                    print(f"{name} {step:5} {process}: {counts}; {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
