"""Readers made of readers."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest

import rowlock as paddle
import rowlock.fluid as fluid
from rowlock.strategies.errors import InvalidValue


def numbers(count: int = 5):
    def reader() -> Iterator[int]:
        yield from range(count)

    return reader


def pairs() -> Iterator[tuple[int, int]]:
    yield from ((i, -i) for i in range(4))


def test_readers_of_readers() -> None:
    r = paddle.reader
    assert list(r.chain(numbers(2), numbers(3))()) == [0, 1, 0, 1, 2]
    assert list(r.firstn(numbers(), 2)()) == [0, 1]
    assert list(r.map_readers(lambda a, b: a + b, numbers(), numbers(3))()) == [0, 2, 4]
    assert list(r.buffered(numbers(), 2)()) == [0, 1, 2, 3, 4]
    assert list(r.compose(numbers(4), pairs)()) == [(i, i, -i) for i in range(4)]
    assert len(list(r.compose(numbers(9), pairs, check_alignment=False)())) == 4
    with pytest.raises(r.ComposeNotAligned, match="different numbers of samples"):
        list(r.compose(numbers(9), pairs)())
    cached = r.cache(numbers())
    assert list(cached()) == list(cached()) == [0, 1, 2, 3, 4]
    random.seed(0)
    assert sorted(r.shuffle(numbers(), 3)()) == [0, 1, 2, 3, 4]
    assert list(paddle.batch(numbers(), 2)()) == [[0, 1], [2, 3], [4]]
    assert list(fluid.io.batch(numbers(), 2, drop_last=True)()) == [[0, 1], [2, 3]]


def test_batches_hold_samples_of_like_length() -> None:
    draw = random.Random(5)
    sentences = [([k] * draw.randint(1, 30), k) for k in range(103)]
    read = paddle.reader.batch_by_length(lambda: iter(sentences), 4, 50)
    random.seed(1)
    first, second = list(read()), list(read())
    for batches in (first, second):
        assert sorted(sample for group in batches for sample in group) == sorted(sentences)
        assert sorted(map(len, batches)) == [3, *[4] * 25]
        spread = [max(n) - min(n) for n in ([len(words) for words, _ in b] for b in batches)]
        assert sum(spread) / len(spread) < 5  # of batches in the order given: 19
    assert first != second
    dropped = paddle.reader.batch_by_length(lambda: iter(sentences), 4, 50, drop_last=True)
    assert [len(group) for group in dropped()] == [4] * 25
    by_label = paddle.reader.batch_by_length(
        lambda: iter(sentences), 2, 103, lambda sample: sample[1]
    )
    assert all(a[1] + 1 == b[1] for a, b in (group for group in by_label() if len(group) == 2))
    for sizes, text in (
        ((0, 9), "batch_size must be above 0, got 0"),
        ((4, 3), "hold a batch of 4"),
    ):
        with pytest.raises(InvalidValue, match=text):
            paddle.reader.batch_by_length(lambda: iter(sentences), *sizes)


@pytest.mark.parametrize("order", [False, True])
def test_samples_mapped_by_threads(order: bool) -> None:
    def slow_first(sample: int) -> int:
        time.sleep(0.02 * (sample == 0))
        return sample * sample

    mapped = list(paddle.reader.xmap_readers(slow_first, numbers(20), 3, 4, order)())
    squares = [i * i for i in range(20)]
    assert (mapped if order else sorted(mapped)) == squares


def test_errors_of_threads_are_raised_where_samples_are_read() -> None:
    def divide(sample: int) -> float:
        return 1 / (sample - 2)

    with pytest.raises(ZeroDivisionError):
        list(paddle.reader.xmap_readers(divide, numbers(), 2, 4)())

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        list(paddle.reader.buffered(broken, 4)())


def test_a_reader_that_is_left_early_leaves_no_thread() -> None:
    for reader in (
        paddle.reader.buffered(numbers(1000), 2),
        paddle.reader.xmap_readers(abs, numbers(1000), 2, 2, True),
    ):
        iterator = iter(reader())
        next(iterator)
        iterator.close()
    deadline = time.monotonic() + 60
    while any(t.name == "rowlock-reader" for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.kills
def test_readers_in_processes() -> None:
    merged = paddle.reader.multiprocess_reader([numbers(3), numbers(4)])
    assert sorted(merged()) == [0, 0, 1, 1, 2, 2, 3]

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    with pytest.raises(RuntimeError, match="OSError: disk"):
        list(paddle.reader.multiprocess_reader([broken])())

    def killed() -> Iterator[int]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield 1

    with pytest.raises(RuntimeError, match="exit code -9"):
        list(paddle.reader.multiprocess_reader([killed, numbers(2)])())
