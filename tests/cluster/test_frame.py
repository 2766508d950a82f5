"""Messages as bytes: what goes in comes out, whole or refused, wherever the transfer is cut."""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np
import pytest

from rowlock.cluster.channel.frame import (
    ChannelClosed,
    Incoming,
    Outgoing,
    encode,
    encode_beside,
    head_of,
    send,
)
from rowlock.executor.replica.message import Message
from rowlock.strategies.errors import InvalidType, ProtocolError

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def through(pair: Pair, message: Message, number: int = 7) -> Message:
    """Send a message and receive it at the other end."""
    sender = threading.Thread(target=send, args=(pair[0], number, message))
    sender.start()
    received = Incoming().pull(pair[1])
    sender.join()
    assert received is not None and received[0] == number
    return received[1]


ARRAYS = [
    np.float32(3.5),
    np.array(7, "int64"),
    np.zeros((0,), "float32"),
    np.zeros((3, 0, 2), "float16"),
    np.arange(6, dtype="float32").reshape(2, 3).astype("bfloat16"),
    np.arange(5, dtype="uint8"),
    np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(20)[::-3],
    np.arange(6, dtype=">i4").reshape(2, 3),
    np.array([True, False, True]),
    np.array([1 + 2j, 3j], "complex64"),
    np.array(["a", "längs"]),
    np.array(["", ""]),
    np.array([b"x", b"yz"]),
    np.array(["2020-01-01", "NaT"], "datetime64[D]"),
    np.array([np.nan, -np.inf, -0.0]),
    np.asfortranarray(np.arange(40_000.0).reshape(200, 200)),
    np.arange(300_000)[1::2],
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{list(a.shape)}")
def test_any_array_arrives_as_it_was(pair: Pair, array: np.ndarray) -> None:
    arrived = through(pair, Message("x", {}, [array])).arrays[0]
    assert (arrived.dtype, arrived.shape) == (array.dtype, array.shape)
    assert arrived.tobytes() == array.tobytes()
    assert arrived.flags.c_contiguous and arrived.flags.writeable and arrived.flags.aligned


def test_all_arrays_in_one_message_and_in_order(pair: Pair) -> None:
    many = ARRAYS * 100  # more pieces than one system call takes
    arrived = through(pair, Message("x", {"n": 1}, many))
    assert [a.tobytes() for a in arrived.arrays] == [a.tobytes() for a in many]
    assert [a.shape for a in arrived.arrays] == [np.shape(a) for a in many]


def test_the_head_is_plain_data(pair: Pair) -> None:
    head = {"text": "größe\n", "none": None, "inf": -np.inf, "list": [1, 2.5, {"x": True}]}
    assert through(pair, Message("step", head)).head == head
    assert through(pair, Message("step", {"n": np.int64(4)})).head == {"n": 4}
    with pytest.raises(TypeError, match="set cannot stand in the head"):
        encode(1, Message("step", {"x": {1}}))


@pytest.mark.parametrize("array", [np.array([None]), np.zeros(2, "i4,f8")])
def test_objects_and_records_are_refused(array: np.ndarray) -> None:
    with pytest.raises(InvalidType, match="cannot be sent"):
        encode(1, Message("x", {}, [array]))


def test_received_arrays_are_the_receivers_own(pair: Pair) -> None:
    incoming, arrays = Incoming(), []
    for value in (1.0, 2.0, 3.0):
        for count in (3, 3000):
            send(pair[0], 1, Message("x", {}, [np.full(count, value)]))
            received = incoming.pull(pair[1])
            assert received is not None
            arrays.append(received[1].arrays[0])
    assert [a[0] for a in arrays] == [1, 1, 2, 2, 3, 3]


def test_a_small_array_does_not_hold_a_large_one(pair: Pair) -> None:
    small, _ = through(pair, Message("x", {}, [np.ones(2), np.ones(100_000)])).arrays
    assert small.base is None


def test_with_reuse_large_messages_share_one_buffer(pair: Pair) -> None:
    incoming, places = Incoming(reuse=True), set()
    for _ in range(3):
        sender = threading.Thread(
            target=send, args=(pair[0], 1, Message("x", {}, [np.ones(100_000)]))
        )
        sender.start()
        received = incoming.pull(pair[1])
        assert received is not None
        places.add(received[1].arrays[0].ctypes.data)
        sender.join()
    assert len(places) == 1


@pytest.mark.parametrize("step", [1, 7, 31, 32, 33, 1000])
def test_messages_arrive_in_any_portions(step: int) -> None:
    messages = [Message("a", {"i": 1}, [np.arange(3)]), Message("b", {}), Message("c", {}, [])]
    messages.append(Message("d", {}, [np.arange(9000)]))
    data = b"".join(bytes(p) for i, m in enumerate(messages) for p in encode(i, m))
    here, there = socket.socketpair()
    with here, there:
        there.setblocking(False)
        incoming, frames = Incoming(), []
        for start in range(0, len(data), step):
            here.sendall(data[start : start + step])
            while (received := incoming.pull(there)) is not None:
                frames.append(received)
    assert [(f.number, f.message.kind, f.message.head) for f in frames] == [
        (i, m.kind, m.head) for i, m in enumerate(messages)
    ]
    np.testing.assert_array_equal(frames[3][1].arrays[0], np.arange(9000))


def raw(start: Any, data: bytes = b"", magic: bytes = b"RLK3", **lengths: int) -> bytes:
    """Return the bytes of a message that may be wrong."""
    text = start if isinstance(start, bytes) else msgpack.packb(start)
    text += b" " * (-len(text) % 16)
    head, body = lengths.get("head", len(text)), lengths.get("body", len(data))
    header = struct.pack("<4sIIIQQ", magic, 1, head, lengths.get("flags", 0), body, 0)
    return header + text + data


def of_array(dtype: Any, shape: Any, data: bytes = b"", body: int = 0) -> bytes:
    """Return the bytes of a message with one array."""
    return raw(["x", {}, [[dtype, shape]]], data, body=body or len(data))


DEEP = b"\x93\xa1x\x81\xa1k" + b"\x91" * 900 + b"\xc0" + b"\x90"
# A thousand lists within each other, each of which says that it has a million elements:
LONG = b"\x93\xa1x\x81\xa1k" + b"\xdd\x00\x0f\xff\xff" * 1000 + b"\xc0" * (1 << 20)


@pytest.mark.parametrize(
    "data",
    [
        raw(["x", {}, []], magic=b"HTTP"),
        raw(["x", {}, []], head=0),
        raw(["x", {}, []], head=(1 << 32) - 1),
        raw(["x", {}, []], body=1 << 60),
        raw(b"no json"),
        raw(b"\xff\xfe"),
        raw(["x", {}]),
        raw(["x", {}, [["<f4", [100]]]], b"\0" * 16),
        raw(["x", {}, [["<f4", [1 << 62, 4]]]], b"\0" * 16),
        raw(["x", {}, [["|O", [2]]]], b"\0" * 16),
        raw(["x", {}, [["nonsense", [2]]]], b"\0" * 16),
        of_array("<f4", "ab", b"\0" * 16),
        of_array("<f4", [1 << 38], body=1 << 40),
        of_array("|S0", [1 << 40]),
        of_array("|V8", [2], b"\0" * 16),
        of_array("(4,)f4", [1], b"\0" * 16),
        of_array("f4,f4", [2], b"\0" * 16),
        of_array("<f4", [-4], b"\0" * 16),
        of_array("<f4", [-2, -2], b"\0" * 16),
        of_array("<f4", [4.0], b"\0" * 16),
        of_array("<f4", [True, 4], b"\0" * 16),
        of_array("<f4", ["4"], b"\0" * 16),
        of_array("<f4", [4] * 40, b"\0" * 16),
        of_array("<f4", [0, 1 << 63]),
        of_array("<f4", [1 << 32, 1 << 32]),
        of_array("<f4", [2], b"\0" * 32),
        of_array("<f4", [[[[]]]]),
        of_array(["<f4"], [4], b"\0" * 16),
        raw(["x", {}, []], flags=200),
        raw(["x", {}, []], flags=200 << 8),
        raw(["x", {}, []], flags=1, body=16, data=b"\0" * 16),
        raw([3, {}, []]),
        raw(["x", [], []]),
        raw(["x", {}, 7]),
        raw(DEEP),
        raw(LONG),
        raw(b"\xdd\xff\xff\xff\xff"),
        raw(b"\xc6\xff\xff\xff\xff"),
    ],
)
def test_what_is_no_message_is_refused(pair: Pair, data: bytes) -> None:
    sender = threading.Thread(target=sent, args=(pair[0], data))
    sender.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProtocolError, match=r"no message|cannot be read"):
        Incoming().pull(pair[1])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    pair[1].close()
    sender.join()


def sent(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the other end does not want the rest
        connection.sendall(data)


def mutated(frame: bytes, draw: random.Random) -> bytes:
    """Return a message with something wrong in it, now and then in a way that looks right."""
    data = bytearray(frame)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(min(len(data), draw.choice([32, 200, len(data)])))
        match draw.randrange(6):
            case 0:
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                data[at] = draw.choice([0, 0x7F, 0x80, 0xC1, 0xC9, 0xDB, 0xDD, 0xDF, 0xFF])
            case 2:
                wide = draw.choice([2, 4, 8])
                data[at : at + wide] = draw.getrandbits(8 * wide).to_bytes(wide, "little")
            case 3:
                del data[at : at + draw.randint(1, 40)]
            case 4:
                data[at:at] = draw.randbytes(draw.randint(1, 40))
            case 5:
                data[at:at] = data[draw.randrange(len(data)) :][:100]
        data = data or bytearray(b"RLK3")
    return bytes(data)


def test_mutated_messages_are_read_or_refused_at_once() -> None:
    """Nothing else comes out than a message or an error of the protocol, quickly and without much memory."""
    seed = random.getrandbits(32)
    print(f"seed {seed}")  # shown when the test fails
    draw = random.Random(seed)
    pieces = [
        encode(
            1, Message("step", {"id": 1, "rows": [0, 4], "parts": [1.0]}, [np.ones((4, 3), "f4")])
        ),
        encode(2, Message("fetched", {}, [np.arange(9), np.array(["a", "b"])]), posted=1),
        encode(
            3,
            Message(
                "load", {"program": "{" * 300, "memory_options": [True, False], "x": {"y": None}}
            ),
        ),
        encode_beside(4, head_of(Message("step", {}), [np.ones((1 << 20, 8))]), 7, 1),
        encode(5, Message("error", {"text": "größe", "type": "ValueError", "rank": 0, "done": 3})),
    ]
    frames = [b"".join(map(bytes, one)) for one in pieces]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = {"read": 0, "refused": 0, "cut off": 0}
    for _ in range(20_000):
        data = mutated(draw.choice(frames), draw)
        here, there = socket.socketpair()
        with here, there:
            here.sendall(data)
            here.shutdown(socket.SHUT_WR)
            incoming, began = Incoming(reuse=True), time.thread_time()
            try:
                while True:  # it ends with the end of the bytes at the latest
                    incoming.pull(there)
                    outcomes["read"] += 1
            except ProtocolError:
                outcomes["refused"] += 1
            except ChannelClosed:
                outcomes["cut off"] += 1
            assert time.thread_time() - began < 1, data
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10
    assert min(outcomes.values()) > 500, outcomes


@pytest.mark.parametrize("after", [0, 10, 40])
def test_the_end_of_the_peer_is_told(pair: Pair, after: int) -> None:
    pair[0].sendall(raw(["x", {"some": "text"}, []])[:after])
    pair[0].close()
    with pytest.raises(ChannelClosed, match="closed by the other end"):
        Incoming().pull(pair[1])


class Interrupted(BaseException):
    """What the signal of the next test raises, as Ctrl-C raises KeyboardInterrupt."""


def test_an_interrupt_anywhere_loses_no_byte() -> None:
    """Signals strike at random while messages are pushed and pulled; each is taken up again."""
    armed, struck = [False], [0]

    def strike(*_: Any) -> None:
        if armed[0]:
            struck[0] += 1
            raise Interrupted

    def again(call: Any) -> Any:
        while True:
            try:
                armed[0] = True
                result = call()
                armed[0] = False
                return result
            except Interrupted:
                armed[0] = False

    main, done = threading.main_thread().ident, threading.Event()
    assert main is not None

    def strikes() -> None:
        while not done.is_set():
            time.sleep(random.random() * 3e-4)
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, strike)
    striker = threading.Thread(target=strikes)
    here, there = socket.socketpair()
    here.setblocking(False)
    there.setblocking(False)
    try:
        striker.start()
        incoming, number, deadline = Incoming(), 0, time.monotonic() + 60
        while time.monotonic() < deadline and (number < 150 or struck[0] < 100):
            number += 1
            array = np.full(random.choice([1, 100, 5000, 200_000]), number)
            outgoing = Outgoing(encode(number, Message("x", {}, [array])))
            received = None
            while received is None or received[0] != number:  # one may be found twice, none lost
                again(lambda outgoing=outgoing: outgoing.push(here))
                frame = again(lambda: incoming.pull(there))
                if frame is not None:
                    assert frame[0] in (number, number - 1)
                    received = frame
            np.testing.assert_array_equal(received[1].arrays[0], array)
    finally:
        done.set()
        striker.join()
        signal.signal(signal.SIGUSR1, before)
        here.close()
        there.close()
    assert struck[0] > 20
