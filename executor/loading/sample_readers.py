"""Decorators of readers. A reader is a function without arguments whose result yields samples."""

from __future__ import annotations

import itertools
import multiprocessing
import queue
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ...strategies.errors import ExecutionError, InvalidType, InvalidValue
from ..host.bounded_queue import BoundedQueue

Generator = Callable[[], Iterable[Any]]

_LOOK_S = 0.2  # how often one that waits for others looks whether they are still there
_END_S = 2.0


class ComposeNotAligned(ValueError):
    """Readers that are composed have different numbers of samples."""


def batch(reader: Generator, batch_size: float, drop_last: bool = False) -> Generator:
    """Return a reader of lists of ``batch_size`` samples; the last may be shorter unless it is dropped.

    Of a size that is no whole number the fraction is cut off.

    Raises:
        InvalidType: ``reader`` is no function, or ``batch_size`` no number.
        InvalidValue: ``batch_size`` is not above 0.
    """
    if not callable(reader):
        raise InvalidType(f"batch: reader must be a function that returns samples, got {reader!r}.")
    try:
        size = int(batch_size)
    except (TypeError, ValueError):
        raise InvalidType(f"batch: batch_size must be a number, got {batch_size!r}.") from None
    if size < 1:
        raise InvalidValue(f"batch: batch_size must be above 0, got {batch_size!r}.")

    def batches() -> Iterator[list[Any]]:
        samples = iter(reader())
        while group := list(islice(samples, size)):
            if len(group) == size or not drop_last:
                yield group

    return batches


def batch_by_length(
    reader: Generator,
    batch_size: int,
    buf_size: int,
    length: Callable[[Any], int] = lambda sample: len(sample[0]),
    drop_last: bool = False,
) -> Generator:
    """Return a reader of lists of ``batch_size`` samples that are about as long, in random order.

    Within windows of about ``buf_size`` samples, in whole batches, those that follow each other by ``length``
    (that of the first field unless told) come together; which of equal ones do, and the order of a window's
    batches, are drawn (Python's ``random``). So padding is short, and steps meet few numbers of rows. One batch
    of the last window may be shorter; ``drop_last`` leaves as many samples out, drawn from that window.

    Raises:
        InvalidValue: ``batch_size`` is not above 0, or ``buf_size`` is less than it.
    """
    if batch_size < 1:
        raise InvalidValue(f"batch_by_length: batch_size must be above 0, got {batch_size!r}.")
    if buf_size < batch_size:
        raise InvalidValue(
            f"batch_by_length: buf_size must hold a batch of {batch_size} samples, got {buf_size!r}."
        )

    def batches() -> Iterator[list[Any]]:
        samples = iter(reader())
        while window := list(islice(samples, buf_size // batch_size * batch_size)):
            random.shuffle(window)
            if drop_last:
                del window[len(window) // batch_size * batch_size :]
            window.sort(key=length)
            firsts = range(0, len(window), batch_size)
            for first in random.sample(firsts, len(firsts)):
                yield window[first : first + batch_size]

    return batches


def shuffle(reader: Generator, buf_size: int) -> Generator:
    """Return a reader that shuffles within windows of ``buf_size`` samples (Python's ``random``)."""

    def shuffled() -> Iterator[Any]:
        samples = iter(reader())
        while window := list(islice(samples, max(1, buf_size))):
            random.shuffle(window)
            yield from window

    return shuffled


def cache(reader: Generator) -> Generator:
    """Read everything at once; return a reader that yields from memory."""
    samples = list(reader())
    return lambda: iter(samples)


def map_readers(func: Callable[..., Any], *readers: Generator) -> Generator:
    """Return a reader of ``func`` of one sample of each reader, until the shortest ends."""
    return lambda: map(func, *(reader() for reader in readers))


def chain(*readers: Generator) -> Generator:
    """Return a reader of all samples of one reader after the other."""
    return lambda: itertools.chain.from_iterable(reader() for reader in readers)


def firstn(reader: Generator, n: int) -> Generator:
    """Return a reader of the first ``n`` samples."""
    return lambda: islice(reader(), n)


def compose(*readers: Generator, check_alignment: bool = True) -> Generator:
    """Return a reader of tuples: one sample of each reader, tuples among them joined.

    Without ``check_alignment`` it ends with the shortest reader.

    Raises:
        ComposeNotAligned: while reading, a reader ends before another.
    """

    def composed() -> Iterator[tuple[Any, ...]]:
        over = object()
        for samples in itertools.zip_longest(*(reader() for reader in readers), fillvalue=over):
            if any(sample is over for sample in samples):
                if check_alignment:
                    raise ComposeNotAligned(
                        "the readers that are composed have different numbers of samples; "
                        "check_alignment=False ends with the shortest."
                    )
                return
            yield tuple(
                itertools.chain.from_iterable(
                    sample if isinstance(sample, tuple) else (sample,) for sample in samples
                )
            )

    return composed


class _Failure:
    """An error of a thread, on its way to the reader's caller."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Stream:
    """A bounded queue from threads to one iterator; ``closed`` is set when the iterator ends."""

    def __init__(self, size: int, fillers: int) -> None:
        self._queue = BoundedQueue(size)
        self._fillers = fillers
        self.closed = threading.Event()

    def put(self, item: Any) -> bool:
        """Put an item, waiting for room; tell whether the iterator is still there."""
        return self._queue.put(item, self.closed)

    def run(self, fill: Callable[[], None]) -> threading.Thread:
        """Start a thread that fills the queue; its error is raised by the iterator."""

        def work() -> None:
            try:
                fill()
                self.put(self)  # one filler has ended
            except BaseException as error:
                self.put(_Failure(error))

        thread = threading.Thread(target=work, name="rowlock-reader", daemon=True)
        thread.start()
        return thread

    def __iter__(self) -> Iterator[Any]:
        try:
            while self._fillers:
                item = self._queue.get()
                if isinstance(item, _Failure):
                    raise item.error
                if item is self:
                    self._fillers -= 1
                else:
                    yield item
        finally:
            self.closed.set()


def buffered(reader: Generator, size: int) -> Generator:
    """Return a reader that a thread reads up to ``size`` samples ahead."""

    def ahead() -> Iterator[Any]:
        stream = _Stream(size, 1)

        def fill() -> None:
            for sample in reader():
                if not stream.put(sample):
                    return

        stream.run(fill)
        yield from stream

    return ahead


def xmap_readers(
    mapper: Callable[[Any], Any],
    reader: Generator,
    process_num: int,
    buffer_size: int,
    order: bool = False,
) -> Generator:
    """Return a reader of ``mapper`` of each sample, computed by ``process_num`` threads.

    At most ``buffer_size`` results wait; ``order``: they come in the order of the samples.
    """

    def mapped() -> Iterator[Any]:
        samples = enumerate(reader())
        results = _Stream(buffer_size, process_num)
        taking = threading.Lock()
        turn = threading.Condition()
        position = 0

        def work() -> None:
            nonlocal position
            while not results.closed.is_set():
                with taking:
                    number, sample = next(samples, (-1, None))
                if number < 0:
                    return
                result = mapper(sample)
                if not order:
                    results.put(result)
                    continue
                with turn:
                    while position != number:
                        if results.closed.is_set():
                            return
                        turn.wait(_LOOK_S)
                    results.put(result)
                    position += 1
                    turn.notify_all()

        for _ in range(process_num):
            results.run(work)
        yield from results

    return mapped


def multiprocess_reader(
    readers: Sequence[Generator], use_pipe: bool = True, queue_size: int = 1000
) -> Generator:
    """Return a reader of the samples of several, each read by a process of its own, in any order.

    ``queue_size`` samples may wait. ``use_pipe`` is accepted: samples travel through a queue either way.

    Raises:
        InvalidValue: there is no reader.
        ExecutionError: while reading, a reader raises, or its process ends.
    """
    if not readers:
        raise InvalidValue("multiprocess_reader needs at least one reader.")

    def merged() -> Iterator[Any]:
        context = multiprocessing.get_context("fork")  # readers are closures
        samples = context.Queue(queue_size)
        processes = [
            context.Process(target=_read_all, args=(reader, samples), daemon=True)
            for reader in readers
        ]
        for process in processes:
            process.start()
        try:
            running = len(processes)
            while running:
                try:
                    kind, item = samples.get(timeout=_LOOK_S)
                except queue.Empty:
                    _check_running(processes, running)
                    continue
                if kind == "error":
                    raise ExecutionError(f"a reader of multiprocess_reader raised {item}")
                if kind == "end":
                    running -= 1
                else:
                    yield item
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(_END_S)
            samples.close()
            samples.cancel_join_thread()

    return merged


def _check_running(processes: Sequence[Any], running: int) -> None:
    """Raise ExecutionError if a reader's process was killed, so that its end never comes."""
    killed = [process for process in processes if process.exitcode not in (None, 0)]
    if killed:
        raise ExecutionError(
            f"a process of multiprocess_reader ended (exit code {killed[0].exitcode}); {running} of "
            f"{len(processes)} readers had not finished."
        )


def _read_all(reader: Generator, samples: Any) -> None:
    """Put all samples of a reader into a queue, then its end or its error."""
    try:
        for sample in reader():
            samples.put(("sample", sample))
        samples.put(("end", None))
    except BaseException as error:
        samples.put(("error", f"{type(error).__name__}: {error}"))
