"""Mutated frames and messages: each is taken, or refused with an error of the family; nothing else happens."""

from __future__ import annotations

import os
import random
import resource
import socket
import struct
import time
from typing import Any

import msgpack
import numpy as np

from rowlock.cluster.channel.frame import Incoming, encode
from rowlock.cluster.collective.stream import FRAME_BYTES, Announcement
from rowlock.executor.replica.message import Message
from rowlock.executor.replica.replica import Replica
from rowlock.strategies.errors import CollectiveError

from .kills import Enough
from .report import Report

_MEMORY = 1 << 30  # bytes that reading frames may add to what the process has
_EACH_S = 1.0  # of the processor
_ROUND = 2000
_ODD: list[Any] = [
    None, True, -1, 0, 1, 1.5, float("nan"), 2**31, 2**63 - 1, -(2**63), 2**64 - 1, "", "x" * 300, b"\0",
    [], [[]], [-1], [2**62, 4], [0, 2**40], [1.5], ["3"], {}, {"a": {}}, "<f4", "|O", "object", "V0", "<U0",
    "S0", "<M8[s]", "bfloat16", "i4,f8", "<f4,<f4", ("<f4", [2]), [["a", "<f4"]], "(1000000000,)f8", "T",
]  # fmt: skip
_KINDS = [
    "step",
    "load",
    "unload",
    "inventory",
    "libraries",
    "write",
    "read",
    "roll_forward",
    "resume",
    "names",
    "drop",
    "trace",
    "clock",
    "what",
]


def attack(report: Report, enough: Enough) -> None:
    """Read mutated frames in a child whose memory is limited, round after round, until it is enough."""
    number = 0
    while not enough(report.counts["frames and messages"]):
        number += 1
        _in_a_child(report, report.seed + number)
        report.counts["frames and messages"] += _ROUND


def _in_a_child(report: Report, seed: int) -> None:
    """Fork, so that a crash, a hang or eaten memory is seen and harms nothing."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            _limit_memory()
            for text in _round(random.Random(seed)):
                os.write(writing, text.encode()[:500] + b"\n")
            os.write(writing, b"done\n")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()
    _, status = os.waitpid(pid, 0)
    for text in lines[: -1 if lines[-1:] == ["done"] else None]:
        report.note(f"seed {seed}: {text}")
    if lines[-1:] != ["done"]:
        report.note(f"seed {seed}: the process ended, status {status}")


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _round(draw: random.Random) -> Any:
    for _ in range(_ROUND):
        attempt = draw.choice([_frame, _frame, _head, _message, _header])
        began = time.process_time()
        try:
            what = attempt(draw)
        except CollectiveError:
            what = None
        except BaseException as error:
            what = f"{attempt.__name__}: {type(error).__name__}: {error}"
        took = time.process_time() - began
        if took > _EACH_S:
            what = f"{attempt.__name__} took {took:.1f} s ({what})"
        if what:
            yield what


def _whole(draw: random.Random) -> bytearray:
    """Return the bytes of a message as replicas and drivers send them."""
    count = draw.choice([0, 1, 2])
    kinds = ["<f4", "<i8", "|b1", "<f2", "<U3"]
    arrays = [
        np.zeros(draw.choice([(), (3,), (2, 0), (2, 3)]), draw.choice(kinds)) for _ in range(count)
    ]
    message = Message("step", {"id": 1, "rows": [0], "epoch": 2}, arrays, 5)
    return bytearray(b"".join(encode(draw.randrange(100), message)))


def _frame(draw: random.Random) -> str | None:
    """Bytes are changed, cut out, doubled, or numbers of the header are replaced."""
    data = _whole(draw)
    for _ in range(draw.choice([1, 1, 2, 5])):
        at = draw.randrange(len(data))
        way = draw.randrange(5)
        if way == 0:
            data[at] ^= 1 << draw.randrange(8)
        elif way == 1:
            data[at] = draw.randrange(256)
        elif way == 2:
            del data[at : at + draw.randrange(1, 20)]
            data = data or bytearray(1)
        elif way == 3:
            data[at:at] = data[at : at + draw.randrange(1, 20)]
        else:
            at = draw.choice([4, 8, 12])
            data[at : at + 4] = struct.pack(
                "<I", draw.choice([0, 1, 2**16, 2**30, 2**31, 2**32 - 1])
            )
    return _read(bytes(data))


def _head(draw: random.Random) -> str | None:
    """The head is well packed, but says something odd."""
    described = [[draw.choice(_ODD), draw.choice(_ODD)] for _ in range(draw.randrange(3))]
    parts: list[Any] = [draw.choice(["step", *_ODD]), draw.choice([{}, *_ODD]), described]
    if draw.random() < 0.3:
        parts[draw.randrange(3)] = draw.choice(_ODD)
    try:
        text = msgpack.packb(parts)
    except (OverflowError, ValueError):
        return None
    text += b" " * (-len(text) % 16)
    body = draw.choice([0, 16, 64, 2**20, 2**39, 2**63])
    header = struct.pack("<4sIIIQq", bytes(_whole(draw)[:4]), 1, len(text), 0, body, 0)
    return _read(header + text + bytes(min(body, 64)))


def _read(data: bytes) -> str | None:
    """Read frames until the sender is gone; nothing may come of it but frames and errors of the family."""
    ends = socket.socketpair()
    with ends[0], ends[1]:
        ends[0].sendall(data)
        ends[0].shutdown(socket.SHUT_WR)
        incoming = Incoming()
        for _ in range(len(data)):
            frame = incoming.pull(ends[1])
            if frame is None:
                return "no frame, though the socket blocks"
            if sum(array.nbytes for array in frame.message.arrays) > len(data):
                return (
                    f"arrays of {[a.shape for a in frame.message.arrays]} came of {len(data)} bytes"
                )
    return None


def _message(draw: random.Random) -> str | None:
    """A replica gets a message that no driver sends; it answers, with an error if need be."""
    fields = [
        "id",
        "rows",
        "epoch",
        "iterations",
        "parts",
        "idle",
        "drop",
        "scope",
        "names",
        "program",
        "upto",
    ]
    head = {name: draw.choice(_ODD) for name in draw.sample(fields, draw.randrange(len(fields)))}
    arrays = [np.zeros(3)] * draw.randrange(3)
    answer = Replica(0, None).handle(Message(draw.choice(_KINDS), head, arrays))
    return None if isinstance(answer, Message) else f"the answer is {answer!r}"


def _header(draw: random.Random) -> str | None:
    """The head of a collective's message between hosts."""
    data = bytearray(Announcement.of("all_reduce/sum", 3, 4, 100).packed())
    for _ in range(draw.randrange(1, 8)):
        data[draw.randrange(FRAME_BYTES)] = draw.randrange(256)
    header = Announcement.unpacked(data)
    return None if str(header) else "an empty header"
