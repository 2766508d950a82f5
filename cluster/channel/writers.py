"""Messages for several replicas made into frames: large arrays go into shared memory by several threads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeAlias

from ...executor.replica.message import Message
from .connection import ReplicaConnection, Rung
from .frame import Outgoing

_MUCH = 8 << 20  # bytes, which a core takes about a millisecond to write
_CORES = 4  # with fewer, threads that write take turns with replicas that compute
_MOST = 8  # threads: more wait for memory
Pieces: TypeAlias = "list[memoryview] | Rung"


def frames_of(
    lines: Mapping[int, ReplicaConnection],
    number: int,
    messages: Mapping[int, Message],
    slot: int | None,
    rings: bool,
) -> dict[int, Outgoing | Rung]:
    """Return what is to be pushed to each rank; a message for all is encoded once."""
    pieces: dict[int, Pieces] = {}  # by the identity of a message
    if len(messages) > 1 and _is_much(messages):
        pieces = _at_once(lines, number, messages, slot, rings)
    frames: dict[int, Outgoing | Rung] = {}
    for rank, message in messages.items():
        key = id(message)
        if key not in pieces:
            pieces[key] = lines[rank].frame(number, message, slot, rings)
        frame = pieces[key]
        frames[rank] = frame if isinstance(frame, Rung) else Outgoing(frame)
    return frames


def _is_much(messages: Mapping[int, Message]) -> bool:
    nbytes = 0
    for array in next(iter(messages.values())).arrays:  # the others' are about as large
        nbytes += array.nbytes
    return len(messages) * nbytes > _MUCH and len(os.sched_getaffinity(0)) >= _CORES


def _at_once(
    lines: Mapping[int, ReplicaConnection],
    number: int,
    messages: Mapping[int, Message],
    slot: int | None,
    rings: bool,
) -> dict[int, Pieces]:
    by_message = {id(message): (lines[rank], message) for rank, message in messages.items()}
    writing = {
        key: _writers().submit(line.frame, number, message, slot, rings)
        for key, (line, message) in by_message.items()
    }
    try:
        return {key: one.result() for key, one in writing.items()}
    finally:  # whatever happens, nobody writes into a slot that is used again
        wait(writing.values())


@cache
def _writers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST), "rowlock-feeds")
