"""Messages for several replicas made into frames: large arrays go into shared memory by several threads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

from ...executor.replica.message import Message
from .connection import ReplicaConnection

_MUCH = 8 << 20  # bytes, which a core takes about a millisecond to write
_CORES = 4  # with fewer, threads that write take turns with replicas that compute
_MOST = 8  # threads: more wait for memory


def frames_of(
    lines: Mapping[int, ReplicaConnection],
    number: int,
    messages: Mapping[int, Message],
    slot: int | None,
) -> dict[int, list[memoryview]]:
    """Return the pieces to send to each rank; a message for all is encoded once."""
    by_message = {id(message): (lines[rank], message) for rank, message in messages.items()}
    if len(by_message) > 1 and _is_much(messages):
        pieces = _at_once(by_message, number, slot)
    else:
        pieces = {
            key: line.frame(number, message, slot) for key, (line, message) in by_message.items()
        }
    return {rank: pieces[id(message)] for rank, message in messages.items()}


def _is_much(messages: Mapping[int, Message]) -> bool:
    arrays = next(iter(messages.values())).arrays  # the others' are about as large
    much = len(messages) * sum(array.nbytes for array in arrays) > _MUCH
    return much and len(os.sched_getaffinity(0)) >= _CORES


def _at_once(
    by_message: Mapping[int, tuple[ReplicaConnection, Message]], number: int, slot: int | None
) -> dict[int, list[memoryview]]:
    writing = {
        key: _writers().submit(line.frame, number, message, slot)
        for key, (line, message) in by_message.items()
    }
    try:
        return {key: one.result() for key, one in writing.items()}
    finally:  # whatever happens, nobody writes into a slot that is used again
        wait(writing.values())


@cache
def _writers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST), "rowlock-feeds")
