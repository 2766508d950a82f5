"""Read batches from a user's generator: a thread fills a bounded queue, from which steps take."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from queue import Empty
from typing import Any

import numpy as np

from ...graph.program.program import Program
from ...graph.program.where import raising_line
from ...strategies.errors import EnforceNotMet, EOFException, ExecutionError, InvalidState
from ..host.bounded_queue import BoundedQueue
from ..host.interrupts import interruptible

Batch = Mapping[str, Any]  # the feed of one place: arrays or tensors by variable name
Source = Callable[[], Iterator[Batch]]

_ENDING_S = 5.0


class Prefetch:
    """Runs a source on a thread of its own, ``capacity`` batches ahead."""

    def __init__(self, source: Source, capacity: int) -> None:
        self._queue = BoundedQueue(capacity)
        self._returned: deque[Batch] = deque()
        self._unwanted = threading.Event()
        self._end: BaseException | None = None
        self._thread = threading.Thread(
            target=_fill,
            args=(source, self._queue, self._unwanted),
            name="rowlock-reader",
            daemon=True,
        )
        with interruptible:
            self._thread.start()
        # The thread knows only queue and event, so that a forgotten reader ends it.
        self._finalizer = weakref.finalize(self, self._unwanted.set)

    def take(self, within: float) -> Batch:
        """Return the next batch.

        Raises:
            EOFException: there is none.
            ExecutionError: the generator raised (the cause is chained), or gave nothing for ``within`` seconds.
            EnforceNotMet: the generator gave values that cannot be fed, as :class:`FeedError` mostly.
        """
        if self._returned:
            return self._returned.popleft()
        if self._end is None:
            try:
                item = self._queue.get(timeout=within)
            except Empty:
                raise ExecutionError(
                    f"the reader's generator gave no batch for {within} s "
                    f"(ClusterConfig.step_deadline_s sets how long to wait)."
                ) from None
            if not isinstance(item, BaseException):
                batch: Batch = item
                return batch
            self._end = item
        if isinstance(self._end, EOFException):
            raise EOFException(str(self._end))
        if isinstance(self._end, EnforceNotMet):  # its own text describes the batch
            raise type(self._end)(str(self._end)) from self._end
        at = raising_line(self._end)
        raise ExecutionError(
            f"the reader's generator failed: {type(self._end).__name__}: {self._end}"
            + (f" (raised at {at})" if at else "")
        ) from self._end

    def give_back(self, batches: Sequence[Batch]) -> None:
        """Let batches that were taken be taken again, in the same order."""
        self._returned.extendleft(reversed(batches))

    def stop(self) -> None:
        """End the thread. One that is stuck in the user's generator is left to end with the process."""
        self._unwanted.set()
        if self._thread is not threading.current_thread():  # the garbage collector runs anywhere
            with interruptible:
                self._thread.join(_ENDING_S)


def _fill(source: Source, batches: BoundedQueue, unwanted: threading.Event) -> None:
    last: BaseException = EOFException("there is no next batch: the reader is exhausted.")
    try:
        for batch in source():
            if not batches.put(batch, unwanted):
                return
    except BaseException as error:  # an exit, too, belongs to the run that waits for a batch
        last = error
    batches.put(last, unwanted)


class Reader:
    """Feeds variables of a program from a source, between ``start`` and ``reset``.

    ``drop_last``: batches at the end that are too few for all places are lost, also where a program could
    run on some of them.
    """

    def __init__(self, names: Sequence[str], capacity: int, drop_last: bool) -> None:
        self.names = tuple(names)
        self.capacity = capacity
        self.drop_last = drop_last
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
        """Stop reading and drop the batches read ahead; the next ``start`` begins anew."""
        if self._prefetch is not None:
            self._prefetch.stop()
        self._prefetch = None

    def take(self, places: int, within: float, partial: bool = False) -> list[Batch]:
        """Return a batch for each place; batches that are too few for all places are lost.

        ``partial``: unless the reader drops them, they go to the first places, and no rows to the others.
        When the generator fails, or gives nothing in time, the batches taken so far wait for the next call.

        Raises:
            InvalidState: the reader was not started.
            EOFException: there are not enough batches left.
            ExecutionError, EnforceNotMet: see :meth:`Prefetch.take`.
        """
        if self._prefetch is None:
            raise InvalidState(
                f"nothing is fed for {', '.join(self.names)}, and their reader was not started: call start(), "
                f"or reset() and start() once it was exhausted."
            )
        batches: list[Batch] = []
        try:
            while len(batches) < places:
                batches.append(self._prefetch.take(within))
        except EOFException:
            if self.drop_last or not partial or not batches:
                if not batches:
                    raise
                raise EOFException(
                    f"the reader has {len(batches)} batch(es) left for {places} places: too few for a step."
                ) from None
            rowless = {name: np.asarray(array)[:0] for name, array in batches[0].items()}
            batches += [rowless] * (places - len(batches))
        except BaseException:
            self.give_back(batches)
            raise
        return batches

    def give_back(self, batches: Sequence[Batch]) -> None:
        """Let batches that were taken be taken again, in the same order."""
        if self._prefetch is not None:
            self._prefetch.give_back(batches)


def batches_for(
    program: Program, feed: Any, places: int, sets: int, within: float, partial: bool = False
) -> list[list[dict[str, Any]]] | None:
    """Return the batches of a program's readers: per step, one for each place; None without readers in use.

    A reader whose variables the user feeds does not read. ``partial``: some places may get no rows.
    """
    if not program.readers:
        return None
    first = feed[0] if isinstance(feed, (list, tuple)) and feed else feed
    fed_names = set(first) if isinstance(first, Mapping) else set()
    variables = program.global_block().vars
    readers: list[Reader] = [
        reader
        for reader in program.readers
        if not fed_names.intersection(reader.names)
        and any(name in variables for name in reader.names)
    ]
    if not readers:
        return None
    steps: list[list[list[Batch]]] = [[] for _ in range(sets)]
    try:
        for step in steps:
            for reader in readers:
                step.append(reader.take(places, within, partial))
    except EOFException:
        raise
    except BaseException:
        for step in reversed(steps):
            for reader, batches in zip(readers, step, strict=False):
                reader.give_back(batches)
        raise
    return [_merge(step, variables) for step in steps]


def _merge(by_reader: Sequence[Sequence[Batch]], variables: Container[str]) -> list[dict[str, Any]]:
    """Return, per place, the batches of several readers as one."""
    return [
        {name: array for batch in of_place for name, array in batch.items() if name in variables}
        for of_place in zip(*by_reader, strict=True)
    ]
