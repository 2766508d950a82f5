"""Batches that come from a user's generator: a thread keeps a bounded queue filled, steps take from it."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..graph.program import Program
from ..strategies.errors import EOFException, ExecutionError, InvalidState

Batch = Mapping[str, Any]  # what one place is fed: arrays or tensors by variable name
Source = Callable[[], Iterator[Batch]]

_POLL_S = 0.1  # how soon a thread that waits for room notices that nobody wants more
_ENDING_S = 5.0


class Prefetch:
    """Runs a source on a thread of its own, ``capacity`` batches ahead."""

    def __init__(self, source: Source, capacity: int) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(capacity)
        self._unwanted = threading.Event()
        self._ended: BaseException | None = None
        self._thread = threading.Thread(
            target=_fill,
            args=(source, self._queue, self._unwanted),
            name="rowlock-reader",
            daemon=True,
        )
        self._thread.start()
        # The thread knows only queue and event, so that a forgotten reader ends it.
        self._finalizer = weakref.finalize(self, self._unwanted.set)

    def take(self, within: float) -> Batch:
        """Return the next batch.

        Raises:
            EOFException: there is none.
            ExecutionError: the generator raised (the cause is chained), or gave nothing for ``within`` seconds.
        """
        if self._ended is None:
            try:
                item = self._queue.get(timeout=within)
            except queue.Empty:
                raise ExecutionError(
                    f"the reader's generator gave no batch for {within} s "
                    f"(ClusterConfig.step_deadline_s sets how long to wait)."
                ) from None
            if not isinstance(item, BaseException):
                batch: Batch = item
                return batch
            self._ended = item
        if isinstance(self._ended, EOFException):
            raise EOFException(str(self._ended))
        raise ExecutionError(
            f"the reader's generator failed: {type(self._ended).__name__}: {self._ended}"
        ) from self._ended

    def stop(self) -> None:
        """End the thread. One that is stuck in the user's generator is left to end with the process."""
        self._unwanted.set()
        self._thread.join(_ENDING_S)


def _fill(source: Source, room: queue.Queue[Any], unwanted: threading.Event) -> None:
    last: BaseException = EOFException("there is no next batch: the reader is exhausted.")
    try:
        for batch in source():
            if not _put(room, batch, unwanted):
                return
    except (
        Exception
    ) as error:  # whatever the user's generator raises belongs to the run that waits for it
        last = error
    _put(room, last, unwanted)


def _put(room: queue.Queue[Any], item: Any, unwanted: threading.Event) -> bool:
    while not unwanted.is_set():
        try:
            room.put(item, timeout=_POLL_S)
        except queue.Full:
            continue
        return True
    return False


class Reader:
    """Feeds variables of a program from a source, between ``start`` and ``reset``."""

    def __init__(self, names: Sequence[str], capacity: int) -> None:
        self.names = tuple(names)
        self.capacity = capacity
        self.source: Source | None = None
        self._prefetch: Prefetch | None = None

    def start(self) -> None:
        """Begin to read from the start of the generator; does nothing if it is being read.

        Raises:
            InvalidState: no generator was set.
        """
        if self.source is None:
            raise InvalidState(
                f"the reader of {', '.join(self.names)} has no generator: call set_batch_generator, "
                f"set_sample_list_generator or set_sample_generator first."
            )
        if self._prefetch is None:
            self._prefetch = Prefetch(self.source, self.capacity)

    def reset(self) -> None:
        """Stop reading and forget what was read ahead; the next ``start`` begins anew."""
        if self._prefetch is not None:
            self._prefetch.stop()
        self._prefetch = None

    def take(self, places: int, within: float) -> list[Batch]:
        """Return a batch for each place; batches that are too few for all places are lost.

        Raises:
            InvalidState: the reader was not started.
            EOFException: there are not enough batches left.
        """
        if self._prefetch is None:
            raise InvalidState(
                f"nothing is fed for {', '.join(self.names)}, and their reader was not started: call start(), "
                f"or reset() and start() once it was exhausted."
            )
        return [self._prefetch.take(within) for _ in range(places)]


def batches_for(
    program: Program, feed: Any, places: int, sets: int, within: float
) -> list[list[dict[str, Any]]] | None:
    """Return what a program's readers feed: per step, a batch for each place. None if nothing is read.

    A reader whose variables are fed by the user is left alone.
    """
    if not program.readers:
        return None
    first = feed[0] if isinstance(feed, (list, tuple)) and feed else feed
    given = set(first) if isinstance(first, Mapping) else set()
    known = program.global_block().vars
    readers: list[Reader] = [
        reader
        for reader in program.readers
        if not given.intersection(reader.names) and any(name in known for name in reader.names)
    ]
    if not readers:
        return None
    taken: list[list[dict[str, Any]]] = []
    for _ in range(sets):
        merged: list[dict[str, Any]] = [{} for _ in range(places)]
        for reader in readers:
            for place, batch in zip(merged, reader.take(places, within), strict=True):
                place.update({name: array for name, array in batch.items() if name in known})
        taken.append(merged)
    return taken
