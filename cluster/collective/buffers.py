"""Shared memory of a group: every rank maps every rank's, so that arrays are reached where they lie."""

from __future__ import annotations

import contextlib
import os
from functools import partial

import numpy as np

from ...strategies.errors import CollectiveError
from ..primitives.shm import Segment, segment_path
from .rendezvous import Rendezvous


class Buffers:
    """One rank's handle. Waiting for the others while memory is made ends after ``within`` seconds."""

    def __init__(self, rendezvous: Rendezvous, within: float) -> None:
        self.name, self.rank, self.size = rendezvous.name, rendezvous.rank, rendezvous.size
        self._rendezvous, self._within = rendezvous, within
        self._all: list[list[Segment]] = []
        self._parts: dict[tuple[int, int, str], list[np.ndarray]] = {}
        self._staging = 0

    def allocate(self, nbytes: int) -> np.ndarray:
        """Return ``nbytes`` of zeroed memory (uint8) that the peers can reach; every rank calls it.

        Raises CollectiveError or CollectiveAborted on every rank if one cannot.
        """
        number, size = len(self._all), max(nbytes, 1)
        paths = [
            segment_path(self.name, f"{number}-{rank}-{self._rendezvous.epoch}")
            for rank in range(self.size)
        ]
        own = self._own(paths[self.rank], size)
        # A rank that gave up takes its file away.
        check = partial(self._rendezvous.refuse_aborted, "buffer")
        try:
            self._rendezvous.meet("buffer", f"{nbytes} bytes", self._within)
            segments = [
                own
                if rank == self.rank
                else Segment.attach(paths[rank], size, self._within, f"rank {rank}", check=check)
                for rank in range(self.size)
            ]
            self._rendezvous.meet("buffer/done", "", self._within)
        finally:
            for path in paths:  # of all ranks: their owners may not live to do it
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        for segment in segments:
            segment.populate()  # the peers' pages are there already; this maps them
        self._all.append(segments)
        return own.array[:nbytes]

    def _own(self, path: str, nbytes: int) -> Segment:
        """Make this rank's memory; if there is no room, release the peers that wait for it."""
        try:
            segment = Segment.create(path, nbytes)
            try:
                segment.populate()
            except CollectiveError:
                segment.unlink()
                raise
        except CollectiveError as error:
            self._rendezvous.abort(f"rank {self._rendezvous.ranks[self.rank]} failed: {error}")
            raise
        return segment

    def release(self, buffer: np.ndarray) -> None:
        """Give back what :meth:`allocate` returned; every rank calls it."""
        begin = buffer.__array_interface__["data"][0]
        for number, segments in enumerate(self._all):
            if segments and segments[self.rank].address == begin:
                end = begin + len(segments[self.rank].array)
                self._parts = {k: v for k, v in self._parts.items() if not begin <= k[0] < end}
                for segment in segments:
                    segment.close()
                self._all[number] = []  # the others keep their numbers

    def peers(self, array: np.ndarray) -> list[np.ndarray] | None:
        """Return every rank's array at the place of ``array``, or None if it is in no shared buffer."""
        address, nbytes = array.__array_interface__["data"][0], array.nbytes
        key = (address, nbytes, array.dtype.name)
        if key not in self._parts:
            for segments in filter(None, self._all):
                offset = address - segments[self.rank].address
                if offset >= 0 and offset + nbytes <= len(segments[self.rank].array):
                    self._parts[key] = [
                        s.array[offset : offset + nbytes].view(array.dtype) for s in segments
                    ]
                    return self._parts[key]
            return None
        return self._parts[key]

    def staged(self, row: np.ndarray) -> list[np.ndarray]:
        """Return every rank's staging memory as rows like ``row``."""
        if not self._staging or len(self._all[self._staging - 1][0].array) < row.nbytes:
            self.forget_staging()
            self.allocate(row.nbytes)
            self._staging = len(self._all)
        return [s.array[: row.nbytes].view(row.dtype) for s in self._all[self._staging - 1]]

    def forget_staging(self) -> None:
        """Have staging memory made anew: a rank that came for something else may have another size, or none."""
        if self._staging:
            old, self._staging = self._staging, 0
            self.release(self._all[old - 1][self.rank].array)

    def newest(self) -> list[np.ndarray]:
        """Return every rank's memory (uint8) that was made last."""
        return [segment.array for segment in self._all[-1]]

    def close(self) -> None:
        """Let go of the memory."""
        self._parts.clear()
        for segments in self._all:
            for segment in segments:
                segment.close()
        self._all.clear()
