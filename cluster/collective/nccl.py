"""A group of GPUs, one in each process. A CPU group handles membership, deadlines and aborts; NCCL moves data.

NCCL waits for ever, on the GPU, for a rank that does not come, and computes nonsense with one that comes for
something else. So the host never waits for it alone: ranks first meet in the group of CPUs, which knows
deadlines, names ranks that are missing and compares what each came for, and then ask whether the GPU is done.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...executor.cuda.device_vote import DeviceVote
from ...executor.cuda.runtime import Event, Fork, Runtime, Step
from ...executor.host.deadline import Deadline
from ...executor.plan.group import DEADLINE_S, WHEN, Agree, CollectiveGroup, Ints, When
from ...executor.replica.agreement import NO_STEP
from ...strategies.errors import CollectiveAborted, CollectiveError
from .communicator import NcclCommunicator
from .nccl_calls import NcclCalls
from .rendezvous import never_ended

_SPIN_S = 2e-4  # for so long the host asks again at once
_PAUSE_S = 5e-5
_ERRORS_S = 1e-3  # how often NCCL is asked what went wrong


class NcclGroup(CollectiveGroup):
    """One rank's handle. Arrays lie in memory of this rank's GPU.

    ``control`` is a CPU group of the same ranks, which this group takes over. Collectives from ``bound_``
    methods run on a stream beside the compute stream and can be captured; :meth:`landed` waits for their
    results.

    Raises:
        CollectiveError: a rank is missing after the deadline, or ranks disagree about a collective.
        CollectiveAborted: a rank gave up or its process ended; the message says which and why.
    """

    asynchronous = True

    def __init__(
        self,
        control: CollectiveGroup,
        runtime: Runtime,
        within: float = DEADLINE_S,
        ended: Callable[[], str | None] = never_ended,
    ) -> None:
        if runtime.nccl is None:
            raise CollectiveError(
                "this process has a GPU but no NCCL: pip install '.[gpu]' in Rowlock's folder."
            )
        self.rank, self.size, self.local_size = control.rank, control.size, control.local_size
        self.runtime = runtime
        self._control, self._within = control, within
        self._given_up: str | None = None
        self._communicator = NcclCommunicator(control, runtime, within, ended)
        self._calls = NcclCalls(self._communicator, runtime, self.rank, lambda: self._given_up)
        self._vote = DeviceVote(runtime, self.size)
        self._query_at = 0.0  # when NCCL was asked what went wrong
        self._lock = threading.Lock()
        self._meanwhile: Callable[[], None] | None = None

    # -- memory -----------------------------------------------------------------------------------

    def buffer(self, nbytes: int) -> Any:
        self._control.barrier(When(self._within, f"buffer of {nbytes} bytes"))
        memory = self.runtime.empty(max(nbytes, 1))[:nbytes]
        memory.fill(0)
        return memory

    # -- bound: what a captured graph can hold ------------------------------------------------------

    def bound_all_reduce(self, array: Any, op: str = "sum", when: When = WHEN) -> Fork:
        """Return a call that combines ``array`` over the ranks on NCCL's stream; see :meth:`landed`."""
        return self._calls.all_reduce(array, op)

    def bound_reduce_parts(
        self, array: Any, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> Fork:
        """Return a call that combines each part of ``array`` into its root's."""
        return self._calls.reduce_parts(array, ends, roots, op)

    def bound_broadcast_parts(self, array: Any, ends: Ints, roots: Ints, when: When = WHEN) -> Fork:
        """Return a call that copies each part of ``array`` from its root's to every rank's."""
        return self._calls.broadcast_parts(array, ends, roots)

    def landed(self, when: When = WHEN) -> None:
        """Wait for the results of every collective that the compute stream waits for.

        Raises:
            CollectiveError: a rank did not come with all of its own, or the GPUs did not finish in time.
        """
        deadline = Deadline(when.within)
        self._meet(when.about("landing"))
        self._wait(self.runtime.record(self.runtime.compute), deadline, when)

    def reached(self, when: When = WHEN, collectives: bool = False) -> None:
        deadline = Deadline(when.within)
        streams = [self.runtime.compute, *([self._communicator.stream] if collectives else [])]
        for stream in streams:
            self._wait(self.runtime.record(stream), deadline, when)

    def _wait(self, event: Event, deadline: Deadline, when: When) -> None:
        began = self._query_at = time.monotonic()
        while True:
            if self._meanwhile is not None:
                self._meanwhile()
            if self.passed(event, deadline, when):
                break
            if time.monotonic() - began > _SPIN_S:
                time.sleep(_PAUSE_S)
        self._refuse_aborted(when.tag)

    def passed(self, event: Event, deadline: Deadline, when: When = WHEN) -> bool:
        """Tell, without waiting, whether this rank's GPU has come to an event; it must by a deadline.

        Raises:
            CollectiveError: it did not, or NCCL failed.
            CollectiveAborted: a rank gave up meanwhile.
        """
        if event.done():
            return True
        now = time.monotonic()
        self._refuse_aborted(when.tag)
        if now - self._query_at > _ERRORS_S:
            self._check(when.tag)
            self._query_at = now
        if deadline.over:
            reason = (
                f"{when.tag or 'a collective'} was not done by NCCL within {when.within:g} s, though every "
                f"rank came for it; it waits on the GPU of rank {self.rank}"
            )
            self.abort(reason)
            raise CollectiveError(f"collective stopped: {reason}. NCCL_DEBUG=INFO tells more.")
        return False

    def _check(self, tag: str) -> None:
        try:
            self._communicator.check()
        except Exception as error:  # NcclError, or KeyError: CuPy has no name for newer codes
            self.abort(f"NCCL: {error}")
            raise CollectiveError(
                f"{tag or 'a collective'} failed in NCCL on rank {self.rank}: {error}"
            ) from error

    # -- at once ------------------------------------------------------------------------------------

    def _do(self, what: str, array: Any, fork: Fork, when: When) -> None:
        """Meet the other ranks for a collective, run it, and wait for its result."""
        when = When(when.within, f"{what} ({array.dtype}[{array.size}] {when.tag})")
        deadline = Deadline(when.within)
        self._meet(when)
        self.runtime.execute((fork, fork.finish))
        self._wait(self.runtime.record(self.runtime.compute), deadline, when)

    def all_reduce(self, array: Any, op: str = "sum", when: When = WHEN) -> None:
        """Combine ``array`` over the ranks, in place. ``op``: sum, mean, product, min, max."""
        self._do(f"all_reduce/{op}", array, self.bound_all_reduce(array, op), when)

    def reduce_parts(
        self, array: Any, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> None:
        fork = self.bound_reduce_parts(array, ends, roots, op)
        self._do(f"reduce_parts/{op}", array, fork, when)

    def broadcast_parts(self, array: Any, ends: Ints, roots: Ints, when: When = WHEN) -> None:
        fork = self.bound_broadcast_parts(array, ends, roots)
        self._do("broadcast_parts", array, fork, when)

    def all_gather(self, array: Any, when: When = WHEN) -> list[Any]:
        result = self.runtime.empty(max(array.nbytes * self.size, 1))
        self._do("all_gather", array, self._calls.all_gather(array, result), when)
        parts = (result[r * array.nbytes : (r + 1) * array.nbytes] for r in range(self.size))
        return [part.view(array.dtype).reshape(array.shape) for part in parts]

    def reduce_scatter(self, arrays: Sequence[Any], op: str = "sum", when: When = WHEN) -> Any:
        own = arrays[self.rank]
        result = self.runtime.empty(max(own.nbytes, 1))[: own.nbytes].view(own.dtype)
        sizes = when.about(str([array.size for array in arrays]))
        fork = self._calls.reduce_scatter(arrays, result, op)
        self._do(f"reduce_scatter/{op}", arrays[0], fork, sizes)
        return result.reshape(own.shape)

    def exchange(self, numbers: np.ndarray, when: When = WHEN) -> np.ndarray:
        """Return every rank's ``numbers``, an array of the host, stacked in rank order; the GPU has no part."""
        self._refuse_aborted(when.tag)
        with self._giving_up():
            return self._control.exchange(numbers, when)

    # -- membership --------------------------------------------------------------------------------

    def begin(self, step: int) -> None:
        """Say which step the collectives that follow belong to; ranks in different steps stop."""
        self._control.begin(step)

    def barrier(self, when: When = WHEN) -> None:
        self._meet(when)

    def bound_agree(self, when: When = WHEN) -> Agree:
        """Return a call that returns every rank's number once all begin the same step, which NCCL ignores."""
        row, when = np.zeros(self.size, np.int64), when.about("step of")
        gather = self._control.bound_all_reduce(row, when=when)

        def agree(standing: int) -> Sequence[int]:
            row.fill(0)
            row[self.rank] = standing
            with self._giving_up():
                gather()
            return row.tolist()

        return agree

    @property
    def device_vote(self) -> DeviceVote:
        return self._vote

    def bound_vote(self, failed: Any) -> Sequence[Step]:
        return self._vote.steps(self._calls.all_reduce(self._vote.sum, "sum"), failed)

    def vote(self, when: When = WHEN) -> None:
        """Return when every rank has the results of every collective so far."""
        self._meet(when.about("vote"))

    def _meet(self, when: When) -> None:
        """Wait until every rank came for the same; else end the communicator, so that no call waits on."""
        self._refuse_aborted(when.tag)
        with self._giving_up():
            self._control.barrier(when)

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except CollectiveError as error:
            self._break(str(error))
            raise

    def while_waiting(self, call: Callable[[], None]) -> None:
        """Take a function to call now and then while this rank waits for its GPU."""
        self._meanwhile = call

    @property
    def waited(self) -> float:
        return self._control.waited

    # -- failures -----------------------------------------------------------------------------------

    @property
    def aborted(self) -> str | None:
        return self._given_up or self._control.aborted

    def abort(self, reason: str) -> None:
        self._control.abort(reason)
        self._break(self._control.aborted or reason)

    def _refuse_aborted(self, what: str) -> None:
        reason = self.aborted
        if reason is not None:
            self._break(reason)
            raise CollectiveAborted(f"{what or 'a collective'} was aborted: {reason}")

    def _break(self, reason: str) -> None:
        """End the communicator: what waits on the GPU for a peer ends, without a result."""
        with self._lock:
            self._given_up = self._given_up or reason
            self._vote.give_up()
            self._communicator.abort()

    def reset(self, epoch: int) -> None:
        """Begin afresh after an abort; every rank calls it with the same number, larger than before.

        Graphs that were captured with the communicator of before are gone by now: these wait for that.
        """
        self._break("the group is reset")
        self._communicator.drain()
        self._vote.reset()
        self._control.reset(epoch)
        self._control.begin(NO_STEP)  # ranks may have failed in different ones
        self._given_up = None
        self._communicator.form()

    def close(self) -> None:
        self._break("the group is closed")
        self._communicator.linger()
        self._control.close()
