"""Processes that read batches of a data set, for the driver.

Each worker is a fork of the driver with one socket to it. Batches are dealt to workers in turns, so that they
come back in order. A batch's arrays travel in anonymous shared memory (a memfd) whose descriptor goes through
the socket: it has no name, and ends with its last user, even if a process dies. A worker that loses the driver
ends.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import queue
import random
import signal
import socket
import struct
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from multiprocessing.connection import wait
from typing import Any, NoReturn

import numpy as np

from ...strategies.errors import ExecutionError
from ..host.deadline import Deadline
from .collate import Exhausted
from .datasets import Dataset

Fetch = Callable[[Any], Any]
_LOOK_S = 1.0  # how often a worker looks for its driver, and the driver for a silent worker
_END_S = 2.0
_SHARED = 1 << 14  # bytes from which on arrays travel in shared memory
_ALIGN = 64
_HEAD = struct.Struct("<QQ")


@dataclass(frozen=True)
class WorkerInfo:
    """A worker's number ``id``, the number of workers, the worker's data set, and a seed."""

    id: int
    num_workers: int
    dataset: Dataset
    seed: int


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Return the WorkerInfo of this worker of a DataLoader; None in any other process."""
    return _info


@dataclass(frozen=True)
class Job:
    """The work of workers. ``fetcher()`` opens the data set and returns a function that reads a batch."""

    dataset: Dataset
    fetcher: Callable[[], Fetch]
    init: Callable[[int], Any] | None
    shared: bool


class Crew:
    """The workers of a loader."""

    def __init__(self, job: Job, count: int, ahead: int, within: float) -> None:
        self._ahead = ahead
        self._within = within
        self._epoch = 0
        self._driver = os.getpid()
        seed = int(np.random.randint(0, 2**31 - 1))
        self._ends: list[socket.socket] = []
        self._processes: list[Any] = []
        context = multiprocessing.get_context("fork")  # data sets and functions may be closures
        for number in range(count):
            driver_end, worker_end = socket.socketpair()
            self._ends.append(driver_end)
            info = WorkerInfo(number, count, job.dataset, seed)
            process = context.Process(
                target=_work, args=(worker_end, list(self._ends), job, info), daemon=True
            )
            process.start()
            worker_end.close()
            self._processes.append(process)

    def batches(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of these tasks in their order; tasks without end stop with the workers' data."""
        self._epoch += 1
        due: deque[int] = deque()  # numbers of workers, in the order of their batches
        remaining = iter(tasks)
        active = set(range(len(self._ends)))
        for number in active:
            _send(self._ends[number], ("begin", self._epoch, None))
        for _ in range(self._ahead):
            for number in sorted(active):
                self._give(number, remaining, due)
        while due:
            number = due.popleft()
            if number not in active:
                continue
            kind, batch = self._take(number)
            if kind == "end":
                active.discard(number)
            else:
                self._give(number, remaining, due)
                yield batch

    def _give(self, number: int, tasks: Iterator[Any], due: deque[int]) -> None:
        for task in tasks:
            try:
                _send(self._ends[number], ("batch", self._epoch, task))
            except OSError:
                self._lost(number)
            due.append(number)
            return

    def _take(self, number: int) -> tuple[str, Any]:
        deadline = Deadline(self._within or inf)
        while True:
            self._await(number, deadline)
            try:
                kind, epoch, value = _receive(self._ends[number])
            except (OSError, EOFError):
                self._lost(number)
            if epoch != self._epoch:
                continue  # the driver has left that iteration
            if kind == "error":
                raise _error(number, *value)
            return kind, value

    def _await(self, number: int, deadline: Deadline) -> None:
        end, process = self._ends[number], self._processes[number]
        while end not in (ready := wait([end, process.sentinel], _LOOK_S)):
            if ready:
                self._lost(number)
            if deadline.over:
                raise ExecutionError(
                    f"worker {number} of the DataLoader gave no batch for {self._within:g} s (timeout)."
                )

    def _lost(self, number: int) -> NoReturn:
        process = self._processes[number]
        process.join(_END_S)
        code = process.exitcode
        ending = (
            f"was killed by {signal.Signals(-code).name}"
            if code and code < 0
            else f"ended ({code})"
        )
        raise ExecutionError(
            f"worker {number} of the DataLoader (process {process.pid}) {ending} before its batch was there."
        )

    def stop(self) -> None:
        """End the workers. A fork of the driver leaves them alone."""
        own = os.getpid() == self._driver
        for end in self._ends:
            if own:
                with suppress(OSError):  # the worker is gone
                    end.shutdown(socket.SHUT_RDWR)
            end.close()
        for process in self._processes if own else ():
            process.join(_END_S)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self._ends.clear()
        self._processes.clear()


# -- in a worker ----------------------------------------------------------------------------------


def _work(own: socket.socket, others: list[socket.socket], job: Job, info: WorkerInfo) -> None:
    """Make batches until the driver is gone."""
    global _info
    gc.freeze()  # a worker must not collect the driver's objects (handles of Ray's among them)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for end in others:
        end.close()
    _info = info
    random.seed(info.seed + info.id)
    np.random.seed(np.random.SeedSequence([info.seed, info.id]).generate_state(4))
    tasks = _Tasks(own)
    failure: BaseException | None = None
    try:
        if job.init is not None:
            job.init(info.id)
    except BaseException as error:
        failure = error
    fetch: Fetch | None = None
    while True:
        kind, epoch, task = tasks.queue.get()
        if epoch < tasks.epoch:
            continue  # the driver has left that iteration
        try:
            if kind == "begin":
                fetch = None
                continue
            if failure is not None:
                raise failure
            fetch = fetch or job.fetcher()
            answer = ("batch", epoch, fetch(task))
        except Exhausted:
            answer = ("end", epoch, None)
        except BaseException as error:
            answer = ("error", epoch, _describe_error(error))
        _answer(own, answer, job.shared)


def _answer(own: socket.socket, answer: tuple[str, int, Any], shared: bool) -> None:
    try:
        _send(own, answer, shared)
    except OSError:  # the driver is gone
        _leave()
    except Exception as error:  # the data set's result cannot be sent
        _answer(own, ("error", answer[1], _describe_error(error)), False)


class _Tasks:
    """Receives tasks on a thread, so that the driver never waits to send one; ends with the driver."""

    def __init__(self, own: socket.socket) -> None:
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.epoch = 0  # the newest
        self._own = own
        self._driver = os.getppid()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError, EOFError):
            while os.getppid() == self._driver:
                if wait([self._own], _LOOK_S):
                    task = _receive(self._own)
                    self.epoch = task[1]
                    self.queue.put(task)
        _leave()


def _leave() -> NoReturn:
    """End this process without the driver's own endings (Ray's among them), which a fork has too."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(0)


def _describe_error(error: BaseException) -> tuple[bytes, str, str]:
    """Return an error's class, pickled, the name of the class, and the error's traceback."""
    text = "".join(traceback.format_exception(error))
    try:
        kind = pickle.dumps(type(error))
    except Exception:  # a class that only the worker knows
        kind = pickle.dumps(ExecutionError)
    return kind, type(error).__name__, text


class _Text(str):
    """Text that also KeyError shows as it is."""

    def __repr__(self) -> str:
        return str(self)


def _error(number: int, kind: bytes, name: str, text: str) -> BaseException:
    """Return a worker's error, of its own class if that takes a text."""
    message = _Text(f"worker {number} of the DataLoader raised {name}:\n{text}")
    try:
        error = pickle.loads(kind)(message)
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            return error
    except Exception:
        pass
    return ExecutionError(message)


# -- messages -------------------------------------------------------------------------------------


def _send(end: socket.socket, message: Any, shared: bool = False) -> None:
    """Send an object; ``shared``: large arrays go through shared memory."""
    buffers: list[pickle.PickleBuffer] = []
    payload = pickle.dumps(message, 5, buffer_callback=buffers.append)
    parts = [buffer.raw() for buffer in buffers]
    sizes = [part.nbytes for part in parts]
    in_memory = shared and sum(sizes) >= _SHARED
    head = pickle.dumps((sizes, in_memory))
    lengths = _HEAD.pack(len(head), len(payload))
    if not in_memory:
        end.sendall(b"".join([lengths, head, payload]))
        for part in parts:
            end.sendall(part)
        return
    memory = os.memfd_create("rowlock-batch", os.MFD_CLOEXEC)
    try:
        for part, at in zip(parts, _places(sizes), strict=True):
            while part.nbytes:
                count = os.pwrite(memory, part, at)
                part, at = part[count:], at + count
        os.ftruncate(memory, _places([*sizes, 0])[-1])
        offset = socket.send_fds(end, [lengths], [memory])
        end.sendall(lengths[offset:] + head + payload)
    finally:
        os.close(memory)


def _receive(end: socket.socket) -> Any:
    """Receive an object.

    Raises:
        EOFError: the other end was closed.
    """
    data, memories, _, _ = socket.recv_fds(end, _HEAD.size, 1)
    try:
        if not data:
            raise EOFError
        lengths = _HEAD.unpack(data + bytes(_exactly(end, _HEAD.size - len(data))))
        head, payload = (_exactly(end, length) for length in lengths)
        sizes, in_memory = pickle.loads(head)
        if not in_memory:
            return pickle.loads(payload, buffers=[_exactly(end, size) for size in sizes])
        # Copied, for a mapping would keep its descriptor as long as the batch, and they are few.
        buffer = np.empty(_places([*sizes, 0])[-1], np.uint8).data
        at = 0
        while at < buffer.nbytes:
            at += os.preadv(memories[0], [buffer[at:]], at)
    finally:
        for memory in memories:
            os.close(memory)
    places = zip(_places(sizes), sizes, strict=True)
    return pickle.loads(payload, buffers=[buffer[at : at + size] for at, size in places])


def _places(sizes: list[int]) -> list[int]:
    places, at = [], 0
    for size in sizes:
        places.append(at)
        at += -(-size // _ALIGN) * _ALIGN
    return places


def _exactly(end: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view.nbytes:
        count = end.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return data
