"""NCCL's communicator of one rank: made by all ranks at the same time, ended, and made again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ...executor.cuda.runtime import Runtime
from ...executor.host.deadline import Deadline
from ...executor.plan.group import CollectiveGroup, When
from ...strategies.errors import CollectiveAborted, CollectiveError
from .rendezvous import never_ended

_LOOK_S = 0.05
_CALL_S = 1.0  # that a call of NCCL takes at most if it waits for no peer
_ID_BYTES = 128


class NcclCommunicator:
    """NCCL's communicator of the ranks of ``control``, and the stream that its collectives run on.

    ``within``: seconds that other ranks are waited for. ``ended()`` returns why the group was given up from
    outside (None: it was not). ``world`` is what NCCL made, None after :meth:`abort`.

    Raises:
        CollectiveError: the ranks do not come.
        CollectiveAborted: the group was given up.
    """

    def __init__(
        self,
        control: CollectiveGroup,
        runtime: Runtime,
        within: float,
        ended: Callable[[], str | None] = never_ended,
    ) -> None:
        self._within, self._ended = within, ended
        self._control, self._runtime, self._nccl = control, runtime, runtime.nccl
        self._ending: list[threading.Thread] = []
        # Taken for calls of the communicator, and while it is taken away to be ended.
        self.lock = threading.Lock()
        # its few blocks go first: kernels fill what is left
        self.stream = runtime.stream(urgent=True)
        self.world: Any = None
        self.form()

    def form(self) -> None:
        """Make the communicator; every rank calls it."""
        rank, size = self._control.rank, self._control.size
        number = np.zeros(_ID_BYTES, np.uint8)
        if rank == 0:
            number[...] = np.frombuffer(self._nccl.get_unique_id(), np.uint8)
        self._control.broadcast(number, 0, When(self._within, "NCCL's unique id"))
        self.world = self._in_time(
            lambda: self._nccl.NcclCommunicator(size, number.tobytes(), rank),
            f"a communicator of {size} ranks",
        )

    def _in_time(self, work: Callable[[], Any], what: str) -> Any:
        """Do what waits for all ranks and knows no deadline, in a thread that can be left behind."""
        results: list[Any] = []
        failures: list[Exception] = []

        def run() -> None:
            try:
                self._runtime.use()
                results.append(work())
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        deadline = Deadline(self._within)
        while thread.is_alive() and not deadline.over:
            thread.join(_LOOK_S)
            reason = self._ended() or self._control.aborted
            if reason is not None and not results:
                raise CollectiveAborted(f"making {what} was aborted: {reason}")
        if results:
            return results[0]
        why = failures[0] if failures else f"not every rank came within {self._within:g} s"
        raise CollectiveError(
            f"rank {self._control.rank}: NCCL could not make {what}: {why}. NCCL_DEBUG=INFO tells more."
        ) from (failures[0] if failures else None)

    def check(self) -> None:
        """Raise what went wrong in the communicator; it is not ended meanwhile."""
        with self.lock:
            if self.world is not None:
                self.world.check_async_error()

    def abort(self) -> None:
        """End the communicator. What waits for a peer ends at once; a thread stays until graphs are gone."""
        # A call that waits for a peer ends by this alone: the first collective connects them, and a launch
        # waits while the GPU's queue is full.
        alone = self.lock.acquire(timeout=_CALL_S)
        world, self.world = self.world, None
        if alone:
            self.lock.release()
        if world is not None:
            ending = threading.Thread(target=self._end, args=(world,), daemon=True)
            ending.start()
            self._ending.append(ending)

    def _end(self, world: Any) -> None:
        with contextlib.suppress(Exception):  # it is of no use any more, whatever it says
            self._runtime.use()
            world.abort()

    def linger(self) -> None:
        """Give communicators that were aborted a moment to end: the process, and its driver, may end next."""
        deadline = Deadline(_CALL_S)
        for ending in self._ending:
            ending.join(deadline.left)

    def drain(self) -> None:
        """Return when the communicators that were aborted have ended.

        Raises:
            CollectiveError: they do not, so this process cannot go on.
        """
        deadline = Deadline(self._within)
        while self._ending:
            self._ending[-1].join(deadline.slice_s)
            if not self._ending[-1].is_alive():
                self._ending.pop()
            elif deadline.over:
                raise CollectiveError(
                    f"rank {self._control.rank}: NCCL did not end a communicator within {self._within:g} s."
                )
