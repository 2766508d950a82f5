"""The header that steps, collectives and aborts share: what one connection takes, another refuses."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import pytest

from rowlock.cluster.channel.frame import Incoming
from rowlock.cluster.collective.abort_channel import AbortChannel
from rowlock.cluster.collective.stream import FRAME_BYTES, Announcement
from rowlock.cluster.primitives.wire import (
    ABORT,
    COLLECTIVE,
    FAREWELL,
    HEADER_BYTES,
    REASON_BYTES,
    STEP,
    frame_head,
    read_header,
)
from rowlock.strategies.errors import ProtocolError
from tests.conftest import eventually

KINDS = {STEP: 1 << 28, COLLECTIVE: 224, ABORT: REASON_BYTES, FAREWELL: 0}


def header(kind: bytes, text: int) -> bytes:
    return struct.pack("<4sIIIQq", kind, 7, text, 1, 9, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_header_says_what_was_put_in(kind: bytes) -> None:
    text = b"x" * min(KINDS[kind], 3)
    data = frame_head(kind, 7, text, flags=1, body=9, step=-1)
    assert data == struct.pack("<4sIIIQq", kind, 7, len(text), 1, 9, -1) + text
    assert read_header(data, *KINDS) == (kind, 7, len(text), 1, 9, -1)
    assert len(data) == HEADER_BYTES + len(text)


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_and_texts_too_long_are_refused(kind: bytes) -> None:
    read_header(header(kind, KINDS[kind]), kind)
    for data in (header(kind, KINDS[kind] + 1), header(b"HTTP", 0)):
        with pytest.raises(ProtocolError):
            read_header(data, kind)
    for other in KINDS:
        if other != kind:
            with pytest.raises(ProtocolError):
                read_header(header(other, 0), kind)


def _step(data: bytes) -> str:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(data)
        with pytest.raises(ProtocolError) as caught:
            Incoming().pull(there)
        return str(caught.value)


def _collective(data: bytes) -> str:
    with pytest.raises(ProtocolError) as caught:
        Announcement.unpacked(data.ljust(FRAME_BYTES, b"\0")[:FRAME_BYTES])
    return str(caught.value)


def _abort(data: bytes) -> str:
    here, there = socket.socketpair()
    reasons: list[str] = []
    channel = AbortChannel({1: there}, {1: "host 1"}, lambda: None, reasons.append)
    with here:
        here.sendall(data)
        assert eventually(lambda: reasons)
        channel.close()
    return reasons[0]


@pytest.mark.parametrize(
    ("reader", "kind"),
    [(_step, COLLECTIVE), (_collective, STEP), (_abort, STEP), (_abort, COLLECTIVE)],
)
def test_a_frame_on_the_wrong_connection_is_no_message(
    reader: Callable[[bytes], str], kind: bytes
) -> None:
    assert "no message" in reader(frame_head(kind, 1, b"x" * 224, body=16) + b"\0" * 16)


def test_an_announcement_whose_text_is_short_is_refused() -> None:
    assert "no message" in _collective(frame_head(COLLECTIVE, 1, b"x"))


def test_a_step_before_the_first_is_refused() -> None:
    assert "no message" in _step(frame_head(STEP, 1, b"x" * 16, step=-1))
