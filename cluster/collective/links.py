"""Sockets between hosts: every host sends to and receives from every other at once, and agrees what for.

A message is a header and an array's bytes. The header says which collective it belongs to, so that hosts that
came for different things stop before data is used. After an abort a stream may end in the middle of a
message; ``reset`` therefore connects anew.
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...strategies.errors import CollectiveAborted, CollectiveError
from ..channel import prepared
from .group import combine

_HEADER = struct.Struct("<4sIQQ")  # kind, crc of the request, sequence number, bytes that follow
_DATA, _ABORT = b"RLKD", b"RLKX"
_HELLO = struct.Struct("<32sIQ")  # secret of the host called, index of the caller, epoch
_SMALL = 1 << 16  # bytes: below, every host sends its whole array to all; above, each sums a part
_SLICE_S = 0.05  # how often an abort on the own host is looked for
SECRET_BYTES = 32


class Address(NamedTuple):
    """Where a host listens, and the secret that callers must know."""

    host: str
    port: int
    secret: bytes


@dataclass
class _Traffic:
    """What is still to be sent to a host, and to be received from it."""

    out: list[memoryview]
    into: memoryview
    header: bytearray
    body: bool = False  # the header is complete

    @property
    def done(self) -> bool:
        return not self.out and self.body and not self.into


class Links:
    """One host's sockets to the others, numbered like ``addresses``; ``index`` is this host.

    Raises:
        CollectiveError: a host does not connect, or does not send, in time; or came for something else.
        CollectiveAborted: a host gave up, or this one did (``refuse_aborted`` says so).
    """

    def __init__(
        self,
        index: int,
        addresses: Sequence[Address],
        listener: socket.socket,
        refuse_aborted: Callable[[str], None],
        within: float,
    ) -> None:
        self.index, self.size = index, len(addresses)
        self._addresses = list(addresses)
        self._listener = listener
        self._refuse_aborted = refuse_aborted
        self._within = within
        self._epoch = self._sequence = 0
        self._sockets: dict[int, socket.socket] = {}
        self._traffic: dict[int, _Traffic] = {}
        self._connect(within)

    # -- connections ------------------------------------------------------------------------------

    def _connect(self, within: float) -> None:
        deadline = time.monotonic() + within
        for peer in range(self.index):
            self._sockets[peer] = self._call(peer, deadline)
        while len(self._sockets) < self.size - 1:
            self._accept(deadline)
        for connection in self._sockets.values():
            connection.setblocking(False)

    def _call(self, peer: int, deadline: float) -> socket.socket:
        host, port, secret = self._addresses[peer]
        while True:
            try:
                made = socket.create_connection((host, port), timeout=1.0)
                made.sendall(_HELLO.pack(secret, self.index, self._epoch))
                if made.recv(1) == b"+":  # it is in the same epoch, and waits for this
                    made.sendall(b"!")
                    return prepared(made)
                made.close()
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise CollectiveError(f"host {peer} ({host}:{port}) did not answer in time.")
            time.sleep(0.005)

    def _accept(self, deadline: float) -> None:
        self._listener.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            made, _ = self._listener.accept()
            made.settimeout(1.0)
            with contextlib.suppress(OSError):
                hello = made.recv(_HELLO.size, socket.MSG_WAITALL)
                if len(hello) == _HELLO.size:
                    secret, peer, epoch = _HELLO.unpack(hello)
                    known = hmac.compare_digest(secret, self._addresses[self.index].secret)
                    if known and epoch == self._epoch and self.index < peer < self.size:
                        made.sendall(b"+")
                        if made.recv(1) != b"!":  # it gave up waiting, and will call again
                            raise ConnectionError
                        self._drop(peer)
                        self._sockets[peer] = prepared(made)
                        return
            made.close()
        if time.monotonic() > deadline:
            missing = sorted(set(range(self.size)) - set(self._sockets) - {self.index})
            raise CollectiveError(f"hosts {missing} did not connect in time.")

    def _drop(self, peer: int) -> None:
        found = self._sockets.pop(peer, None)
        if found is not None:
            found.close()

    def reset(self, epoch: int) -> None:
        """Connect anew; every host calls it with the same number, larger than before."""
        for peer in list(self._sockets):
            self._drop(peer)
        self._epoch, self._sequence = epoch, 0
        self._connect(self._within)

    def abort(self, reason: str) -> None:
        """Tell the other hosts that this one gave up; one that is in the middle of a message is cut off."""
        text = reason.encode()[:512]
        for peer, connection in list(self._sockets.items()):
            if peer in self._traffic and self._traffic[peer].out:
                self._drop(peer)  # the notice would be taken for the rest of the data
                continue
            with contextlib.suppress(OSError):
                connection.setblocking(True)
                connection.settimeout(0.2)
                connection.sendall(_HEADER.pack(_ABORT, 0, 0, len(text)) + text)
                connection.setblocking(False)

    def close(self) -> None:
        """Close every socket."""
        for peer in list(self._sockets):
            self._drop(peer)
        self._listener.close()

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(self, array: np.ndarray, op: str, within: float, tag: str) -> None:
        """Combine a flat array over the hosts, in place and in the order of the hosts."""
        others = [peer for peer in range(self.size) if peer != self.index]
        if array.nbytes <= _SMALL:
            got = {peer: np.empty_like(array) for peer in others}
            self.exchange(dict.fromkeys(others, array), got, f"all_reduce/{op} {tag}", within)
            parts = [array if peer == self.index else got[peer] for peer in range(self.size)]
            combine(parts, op, array) if self.index < 2 else _combine_apart(parts, op, array)
            return
        share = -(-array.size // self.size)
        part = [array[peer * share : (peer + 1) * share] for peer in range(self.size)]
        mine = part[self.index]
        got = {peer: np.empty_like(mine) for peer in others}
        self.exchange({p: part[p] for p in others}, got, f"all_reduce/{op} {tag}", within)
        parts = [mine if peer == self.index else got[peer] for peer in range(self.size)]
        _combine_apart(parts, op, mine)
        self.exchange(
            dict.fromkeys(others, mine), {p: part[p] for p in others}, f"gather {tag}", within
        )

    def exchange(
        self,
        out: Mapping[int, np.ndarray],
        into: Mapping[int, np.ndarray],
        request: str,
        within: float,
    ) -> None:
        """Send each host its array and receive from each into another, all at the same time."""
        self._sequence += 1
        mark = zlib.crc32(request.encode())
        traffic = self._traffic = {}
        if len(self._sockets) < self.size - 1:
            raise CollectiveAborted(f"{request}: a host was given up; the group must be reset.")
        for peer, connection in self._sockets.items():
            data = _bytes(out[peer])
            header = _HEADER.pack(_DATA, mark, self._sequence, len(data))
            pieces = [memoryview(header + data)] if len(data) < 4096 else [memoryview(header), data]
            traffic[peer] = _Traffic(pieces, _bytes(into[peer]), bytearray())
            _send(connection, traffic[peer])
        deadline = time.monotonic() + within
        with selectors.DefaultSelector() as selector:
            for peer in traffic:
                selector.register(self._sockets[peer], _wanted(traffic[peer]), peer)
            while waiting := [peer for peer, one in traffic.items() if not one.done]:
                for key, events in selector.select(_SLICE_S):
                    self._serve(key.data, events, traffic[key.data], (mark, request))
                    selector.modify(key.fileobj, _wanted(traffic[key.data]), key.data)
                self._refuse_aborted(request)
                if time.monotonic() > deadline:
                    raise CollectiveError(
                        f"{request}: hosts {waiting} are missing after {within} s."
                    )

    def _serve(self, peer: int, events: int, one: _Traffic, wanted: tuple[int, str]) -> None:
        connection = self._sockets[peer]
        try:
            if events & selectors.EVENT_WRITE:
                _send(connection, one)
            if events & selectors.EVENT_READ and not one.done:
                self._receive(peer, connection, one, wanted)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise CollectiveAborted(f"{wanted[1]}: host {peer} is gone: {error}.") from error

    def _receive(
        self, peer: int, connection: socket.socket, one: _Traffic, wanted: tuple[int, str]
    ) -> None:
        if not one.body:
            got = connection.recv(_HEADER.size - len(one.header))
            if not got:
                raise CollectiveAborted(f"{wanted[1]}: host {peer} is gone: its connection ended.")
            one.header += got
            if len(one.header) == _HEADER.size:
                self._check_header(peer, connection, one, wanted)
                one.body = True
        while one.body and one.into:
            count = connection.recv_into(one.into)
            if count == 0:
                raise CollectiveAborted(f"{wanted[1]}: host {peer} is gone: its connection ended.")
            one.into = one.into[count:]

    def _check_header(
        self, peer: int, connection: socket.socket, one: _Traffic, wanted: tuple[int, str]
    ) -> None:
        kind, mark, sequence, nbytes = _HEADER.unpack(bytes(one.header))
        if kind == _ABORT:
            connection.setblocking(True)
            connection.settimeout(0.5)
            reason = connection.recv(nbytes, socket.MSG_WAITALL).decode(errors="replace")
            raise CollectiveAborted(f"{wanted[1]} was aborted by host {peer}: {reason}")
        if (kind, mark, sequence, nbytes) != (_DATA, wanted[0], self._sequence, len(one.into)):
            raise CollectiveError(
                f"host {peer} came for another collective than {wanted[1]} "
                f"(its number {sequence} with {nbytes} bytes, here {self._sequence} with {len(one.into)})."
            )


def _wanted(one: _Traffic) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if one.out else 0)


def _send(connection: socket.socket, one: _Traffic) -> None:
    try:
        while one.out:
            count = connection.send(one.out[0])
            one.out[0] = one.out[0][count:]
            if not one.out[0]:
                one.out.pop(0)
    except (BlockingIOError, InterruptedError):
        return


def _bytes(array: np.ndarray) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8).data)


def _combine_apart(parts: Sequence[np.ndarray], op: str, out: np.ndarray) -> None:
    """Combine where ``out`` may be any of the parts."""
    total = np.empty_like(out)
    combine(parts, op, total)
    out[...] = total
