"""Copy arrays to a GPU and back beside its work: one slot is filled while another is in use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from ...graph.lowering.memory import aligned
from .page_locked import page_locked
from .runtime import Event, Runtime

SLOTS = 2
_UNDER_WAY = 64 << 20  # bytes of uploads that may be in flight


def dense_like(flat: Any, array: Any) -> Any:
    """Return flat bytes as an array of the shape and type of ``array``, its elements in the same order."""
    flat = flat[: array.nbytes].view(array.dtype)
    if array.flags.c_contiguous:
        return flat.reshape(array.shape)
    order = sorted(range(array.ndim), key=lambda i: -abs(array.strides[i]))
    dense = flat.reshape(tuple(array.shape[i] for i in order))
    return dense.transpose([order.index(i) for i in range(array.ndim)])


class _Slot:
    """Room for some arrays on the host and on the GPU: a block on each, so that one copy moves all of them."""

    def __init__(self, runtime: Runtime, arrays: Sequence[Any]) -> None:
        starts = list(accumulate((aligned(a.nbytes) for a in arrays), initial=0))
        self._runtime, self._nbytes = runtime, starts[-1]
        self._each = list(zip(starts, arrays, strict=False))
        self.on_device = runtime.empty(starts[-1])
        self.device = [dense_like(self.on_device[at:], a) for at, a in self._each]
        self.arrived: Event | None = None
        # a pool may give memory that the compute stream still works with
        self.used = runtime.record(runtime.compute)
        self.sources: Sequence[np.ndarray] = ()  # that are copied without the host's help

    @cached_property
    def on_host(self) -> np.ndarray:
        """The block on the host; a slot into which nothing is copied there needs none."""
        return self._runtime.pinned(self._nbytes)

    @cached_property
    def host(self) -> list[np.ndarray]:
        """The arrays on the host."""
        return [dense_like(self.on_host[at:], a) for at, a in self._each]


class Staged:
    """Copies feeds through pinned host memory to the GPU on the stream of copies, then into their buffers.

    ``read`` is an event behind the copies from feeds that were not copied on the host (None: there were none).
    """

    def __init__(self, runtime: Runtime, places: Sequence[Any]) -> None:
        self._runtime = runtime
        self._fed = [i for i, place in enumerate(places) if place is not None and place.size]
        targets = [places[i] for i in self._fed]
        self._slots = [_Slot(runtime, targets) for _ in range(SLOTS if targets else 0)]
        self._moves = [
            [runtime.copying(place, at) for place, at in zip(targets, slot.device, strict=True)]
            for slot in self._slots
        ]
        self._turn = 0
        self._feeds_ahead: Sequence[np.ndarray] | None = None
        self.read: Event | None = None

    def bring(self, feeds: Sequence[np.ndarray], lasting: bool = False) -> None:
        """Put the copies of a step's feeds to the GPU on the stream of copies, beside the step before.

        The arrays may be changed afterwards; ``lasting`` ones only once ``read`` is done, and page-locked ones
        once they are not referred to any more.
        """
        if not self._fed or self._feeds_ahead is feeds:
            return
        runtime, slot = self._runtime, self._slots[self._turn]
        if slot.arrived is not None:
            slot.arrived.synchronize()  # the copy from this host memory, two steps ago
        runtime.wait(runtime.copies, slot.used)
        sources = [feeds[i] for i in self._fed]
        direct = [
            _same_bytes(source, device) and (lasting or page_locked(source))
            for source, device in zip(sources, slot.device, strict=True)
        ]
        slot.sources = sources if any(direct) else ()
        if all(direct):
            for source, device in zip(sources, slot.device, strict=True):
                runtime.copy(device, source, runtime.copies)
        else:
            self._fill(slot, sources, direct)
        slot.arrived = runtime.record(runtime.copies)
        self.read = slot.arrived if any(direct) else None
        self._feeds_ahead = feeds

    def _fill(self, slot: _Slot, sources: Sequence[np.ndarray], direct: Sequence[bool]) -> None:
        """Copy sources by way of the host; in one copy, if none of them goes directly."""
        runtime = self._runtime
        for source, host, straight in zip(sources, slot.host, direct, strict=True):
            if not straight:
                np.copyto(host, source)
        if not any(direct):
            runtime.copy(slot.on_device, slot.on_host, runtime.copies)
            return
        for source, host, device, straight in zip(
            sources, slot.host, slot.device, direct, strict=True
        ):
            runtime.copy(device, source if straight else host, runtime.copies)

    def forget(self) -> None:
        """Do not use what was brought: it is no step's."""
        self._feeds_ahead = None

    def send(self, feeds: Sequence[np.ndarray], lasting: bool = False) -> None:
        """Bring a step's feeds, if that was not done, and put them into their buffers."""
        if not self._fed:
            return
        self.bring(feeds, lasting)
        self._feeds_ahead = None
        runtime, slot, moves = self._runtime, self._slots[self._turn], self._moves[self._turn]
        self._turn = (self._turn + 1) % SLOTS
        runtime.wait(runtime.compute, slot.arrived)
        runtime.execute(moves)
        slot.used = runtime.record(runtime.compute)


def _same_bytes(source: np.ndarray, target: Any) -> bool:
    """Tell whether one copy of bytes makes an array of another."""
    alike = source.dtype == target.dtype and source.shape == target.shape
    return alike and source.flags.c_contiguous and bool(target.flags.c_contiguous)


class Outward:
    """Copies fetches aside on the GPU, then to pinned host memory while the next step runs.

    ``arrays`` are the last step's, once :meth:`wait` has returned and until the next but one is sent. Values on
    the host are complete when they are sent.
    """

    def __init__(self, runtime: Runtime, fetched: Sequence[Any], slots: int = SLOTS) -> None:
        self._runtime = runtime
        full = [i for i, array in enumerate(fetched) if array.size]
        self._on_host_indices = [i for i in full if runtime.on_host(fetched[i])]
        self._beside = [fetched[i] for i in self._on_host_indices]
        self._full = [i for i in full if i not in self._on_host_indices]
        sources = [fetched[i] for i in self._full]
        self._slots = [_Slot(runtime, sources) for _ in range(slots if sources else 0)]
        self._moves = [
            [runtime.copying(at, array) for at, array in zip(slot.device, sources, strict=True)]
            for slot in self._slots
        ]
        self._empty = [np.empty(array.shape, array.dtype) for array in fetched if not array.size]
        places = [slot.host for slot in self._slots] or [[]]
        self._all = [self._in_order(arrays, len(fetched)) for arrays in places]
        self._turn = 0
        self.arrays: list[np.ndarray] = self._all[0]

    def _in_order(self, arrays: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
        full = dict(zip(self._full, arrays, strict=True))
        full.update((i, np.empty(a.shape, a.dtype)) for i, a in self._on_host())
        empty = iter(self._empty)
        return [full[i] if i in full else next(empty) for i in range(count)]

    def send(self) -> None:
        """Put the copies of the present values on the streams."""
        arrays = self._all[self._turn]
        if self._on_host_indices:  # copies from the GPU may be what came last
            self._runtime.record(self._runtime.compute).synchronize()
        for i, array in self._on_host():
            np.copyto(arrays[i], array)
        if self._full:
            self._put(self._slots[self._turn])
        self.arrays = arrays
        self._turn = (self._turn + 1) % len(self._all)

    def _on_host(self) -> Iterator[tuple[int, np.ndarray]]:
        return zip(self._on_host_indices, self._beside, strict=True)

    def _put(self, slot: _Slot) -> None:
        runtime = self._runtime
        if slot.arrived is not None:
            runtime.wait(runtime.compute, slot.arrived)
        runtime.execute(self._moves[self._turn])
        slot.used = runtime.record(runtime.compute)
        runtime.wait(runtime.fetches, slot.used)
        runtime.copy(slot.on_host, slot.on_device, runtime.fetches)
        slot.arrived = runtime.record(runtime.fetches)
        self._last = slot

    _last: _Slot | None = None

    def wait(self) -> None:
        """Return when the values sent last have arrived."""
        self.arriving(range(len(self.arrays))).wait()

    def arriving(
        self,
        which: Sequence[int],
        behind: Event | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Arriving:
        """Return some of the arrays that were sent last, by position.

        ``behind``: an event that must have passed, too; the step that is fetched from waited for it. ``check``:
        see :class:`Arriving`.
        """
        event = self._last.arrived if self._last is not None else behind
        return Arriving([self._array_to_give(i) for i in which], event, check)

    def _array_to_give(self, position: int) -> np.ndarray:
        """Return an array for a caller; one on the host is copied, for no event guards it."""
        array = self.arrays[position]
        return array.copy() if position in self._on_host_indices else array


class Decision(Protocol):
    """Whether a step happens, which is not known yet."""

    def here(self) -> bool:
        """Tell, without waiting, whether it has happened; raises the reason if it never will."""

    def wait(self) -> None:
        """Return when it has happened; raises the reason if it never will."""


class Arriving(Sequence[np.ndarray]):
    """Arrays on their way to the host; reading an item waits for it and returns a copy.

    ``step``: the step that they are of, if its GPUs vote on it: it may not happen, and says why. Of any other
    step ``check`` raises what went wrong with the work that is done.
    """

    def __init__(
        self,
        arrays: Sequence[np.ndarray],
        event: Event | None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._arrays, self._event, self._check = arrays, event, check
        self.step: Decision | None = None

    def here(self) -> bool:
        """Tell, without waiting, whether they have arrived, or never will (:meth:`wait` raises the reason)."""
        try:
            decided = self.step is None or self.step.here()
            return decided and (self._event is None or self._event.done())
        except Exception:
            return True

    def wait(self) -> None:
        """Return when they have arrived; raises errors of the work that computed them."""
        if self.step is not None:
            self.step.wait()
        if self._event is not None:
            self._event.synchronize()
            if self.step is None:
                self._check()
            self._arrays, self._event = [array.copy() for array in self._arrays], None

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, index: Any) -> Any:
        self.wait()
        return self._arrays[index]


class Uploads:
    """Copies host arrays into GPU memory, before later work on the compute stream."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._sent: deque[tuple[Event, np.ndarray]] = deque()
        self._bytes = 0

    def send(self, target: Any, value: np.ndarray) -> None:
        """Put a copy on the compute stream; the value may be changed afterwards."""
        runtime = self._runtime
        while self._sent and (self._bytes > _UNDER_WAY or self._sent[0][0].done()):
            event, arrived = self._sent.popleft()
            event.synchronize()
            self._bytes -= arrived.nbytes
        staged = dense_like(runtime.pinned(target.nbytes), target)
        np.copyto(staged, value)
        runtime.copy(target, staged, runtime.compute)
        self._sent.append((runtime.record(runtime.compute), staged))
        self._bytes += staged.nbytes


def upload(runtime: Runtime, target: Any, value: np.ndarray) -> None:
    """Copy a host array to the GPU, and return when it is there."""
    Uploads(runtime).send(target, value)
    runtime.record(runtime.compute).synchronize()


def download(runtime: Runtime, source: Any) -> np.ndarray:
    """Return a copy of a device array on the host."""
    staged = dense_like(runtime.pinned(source.nbytes), source)
    runtime.copy(staged, source, runtime.compute)
    runtime.record(runtime.compute).synchronize()
    return np.array(staged)


def device_array(runtime: Runtime, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an uninitialised array of its own on the GPU."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return runtime.empty(nbytes).view(dtype).reshape(shape)
