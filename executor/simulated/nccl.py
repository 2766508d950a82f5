"""Collectives between simulated GPUs, with the names and behaviour of ``cupy.cuda.nccl``.

Work is put on streams and done when all ranks have reached it; ranks in different operations wait for ever, as
do ranks of which some reach it in a graph and some do not. A rank that aborted waits no more, but its kernels
go on telling their peers that data has come: these get arrays of NaN, and single numbers as if all were well.
Ranks are threads or processes of one host: the first of a communicator has a thread to which all send.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import secrets
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .streams import NOT_YET, is_device_memory, is_in_graph, stream_at

NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)
NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64 = range(6)
NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_BFLOAT16 = range(6, 10)
available = True

_TYPES = ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "u2")  # bfloat16 as its bits
_ID_BYTES = 128
_NUMBER_BYTES = 8
_FRAME = struct.Struct("<IQ")  # bytes of a head in JSON, and of the payload behind it
_RETRY_S = 0.002
_COMBINE: dict[int, Any] = {NCCL_SUM: np.add, NCCL_AVG: np.add, NCCL_PROD: np.multiply}
_COMBINE |= {NCCL_MAX: np.maximum, NCCL_MIN: np.minimum}
_grouped = threading.local()


class NcclError(RuntimeError):
    """A call that NCCL refuses, or a failure of a communicator."""


def get_version() -> int:
    """Return the version whose interface this is."""
    return 22700


def get_unique_id() -> bytes:
    """Return an id by which the ranks of a communicator find each other."""
    return secrets.token_bytes(_ID_BYTES)


def groupStart() -> None:
    """Hold back this thread's work for streams."""
    _grouped.depth = getattr(_grouped, "depth", 0) + 1
    if _grouped.depth == 1:
        _grouped.pieces = []


def groupEnd() -> None:
    """Put the work held back on the streams."""
    if not getattr(_grouped, "depth", 0):
        raise NcclError("NCCL_ERROR_INVALID_USAGE: groupEnd without groupStart")
    _grouped.depth -= 1
    if not _grouped.depth:
        for stream, piece in _grouped.pieces:
            stream.add(piece)


class NcclCommunicator:
    """One rank's end. The constructor returns when all ranks have called it."""

    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        if len(commId) != _ID_BYTES or not 0 <= rank < ndev:
            raise NcclError("NCCL_ERROR_INVALID_ARGUMENT")
        self._size, self._rank = ndev, rank
        self._answers: dict[int, bytes] = {}
        self._numbers = itertools.count()
        self._error = ""
        self._closed = False
        self._lock = threading.Lock()
        address = b"\0rowlock-nccl-" + commId.hex()[:64].encode()
        if rank == 0:
            _Hub(address, ndev)
        self._socket = _connect(address)
        _send(self._socket, {"rank": rank})
        _receive(self._socket)  # all are here
        threading.Thread(target=self._listen, daemon=True).start()

    def rank_id(self) -> int:
        """Return this end's rank."""
        return self._rank

    def size(self) -> int:
        """Return how many ranks there are."""
        return self._size

    def check_async_error(self) -> None:
        """Raise the error of an earlier operation, if there is one."""
        if self._error:
            raise NcclError(self._error)

    def abort(self) -> None:
        """End this rank's work on streams without results; its peers do not notice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                with contextlib.suppress(OSError):  # the others have left
                    _send(self._socket, {"kind": "bye"})

    destroy = abort

    def allReduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
    ) -> None:
        """Combine everybody's elements."""
        head = {"kind": "all_reduce", "op": op}
        self._put(head, (sendbuf, count), (recvbuf, count), datatype, stream)

    def reduce(
        self,
        sendbuf: int,
        recvbuf: int,
        count: int,
        datatype: int,
        op: int,
        root: int,
        stream: int,
    ) -> None:
        """Combine the elements of all ranks at one rank."""
        into = (recvbuf, count if root == self._rank else 0)
        head = {"kind": "reduce", "op": op, "root": root}
        self._put(head, (sendbuf, count), into, datatype, stream)

    def broadcast(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        """Give one rank's elements to all."""
        operand = (sendbuff, count if root == self._rank else 0)
        head = {"kind": "broadcast", "root": root, "count": count}
        self._put(head, operand, (recvbuff, count), datatype, stream)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        """Give everybody's elements to all, in rank order."""
        into = (recvbuf, count * self._size)
        self._put({"kind": "all_gather"}, (sendbuf, count), into, datatype, stream)

    def _put(
        self,
        head: dict[str, Any],
        operand: tuple[int, int],
        into: tuple[int, int],
        datatype: int,
        stream: int,
    ) -> None:
        """Put an operation on a stream, or in the group that this thread has begun."""
        if self._closed or not 0 <= datatype < len(_TYPES):
            raise NcclError("NCCL_ERROR_INVALID_ARGUMENT")
        dtype = np.dtype(_TYPES[datatype])
        views = [_memory(address, count, dtype) for address, count in (operand, into)]
        piece = self._piece({**head, "type": datatype, "in a graph": is_in_graph()}, *views)
        if getattr(_grouped, "depth", 0):
            _grouped.pieces.append((stream_at(stream), piece))
        else:
            stream_at(stream).add(piece)

    def _piece(
        self, head: dict[str, Any], operand: np.ndarray, into: np.ndarray
    ) -> Callable[[], Any]:
        numbers: list[int] = []

        def piece() -> Any:
            with (
                self._lock,
                contextlib.suppress(OSError) if self._closed else contextlib.nullcontext(),
            ):
                if not numbers:
                    numbers.append(next(self._numbers))
                    how = {"number": numbers[0], "aborted": self._closed}
                    _send(self._socket, {**head, **how}, operand.tobytes())
            if self._closed:
                return None
            if numbers[0] not in self._answers:
                return NOT_YET
            into[...] = np.frombuffer(self._answers.pop(numbers[0]), into.dtype)
            return None

        return piece

    def _listen(self) -> None:
        try:
            while True:
                head, payload = _receive(self._socket)
                if "error" in head:
                    self._error = head["error"]
                else:
                    self._answers[head["number"]] = payload
        except OSError:
            self._error = self._error or "NCCL_ERROR_REMOTE: a process has ended"
            self._socket.close()


class _Hub:
    """Receives the operands of the ranks, and answers once all have sent the same operation."""

    def __init__(self, address: bytes, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._lines: dict[int, socket.socket] = {}
        self._staying = set(range(size))
        self._requests: dict[int, deque[tuple[dict[str, Any], bytes]]] = {
            rank: deque() for rank in range(size)
        }
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(address)
        self._listener.listen(size)
        threading.Thread(target=self._gather, daemon=True).start()

    def _gather(self) -> None:
        while len(self._lines) < self._size:
            line, _ = self._listener.accept()
            head, _ = _receive(line)
            self._lines[head["rank"]] = line
        self._listener.close()
        for rank, line in self._lines.items():
            _send(line, {})
            threading.Thread(target=self._serve, args=(rank, line), daemon=True).start()

    def _serve(self, rank: int, line: socket.socket) -> None:
        try:
            while True:
                head, payload = _receive(line)
                with self._lock:
                    if head.get("kind") == "bye":
                        self._leave(rank)
                    else:
                        self._take(rank, head, payload)
        except OSError:
            with self._lock:
                if rank in self._staying:
                    self._tell_others(rank)
                    self._leave(rank)

    def _leave(self, rank: int) -> None:
        """Note that a rank's communicator ended; when all have, so does this."""
        self._staying.discard(rank)
        if not self._staying:
            for line in self._lines.values():
                with contextlib.suppress(OSError):  # its process has ended
                    line.shutdown(socket.SHUT_RDWR)
                line.close()

    def _tell_others(self, rank: int) -> None:
        for peer, line in self._lines.items():
            if peer != rank:
                self._answer(line, {"error": f"NCCL_ERROR_REMOTE: rank {rank} has ended"})

    def _answer(self, line: socket.socket, head: dict[str, Any], payload: bytes = b"") -> None:
        try:
            _send(line, head, payload)
        except OSError:  # it has left meanwhile
            return

    def _take(self, rank: int, head: dict[str, Any], payload: bytes) -> None:
        self._requests[rank].append((head, payload))
        if not all(self._requests.values()):
            return
        heads = [queue[0][0] for queue in self._requests.values()]
        if any(_operation(other) != _operation(heads[0]) for other in heads):
            return  # for ever
        operands = [self._requests[rank].popleft()[1] for rank in range(self._size)]
        broken = any(head["aborted"] for head in heads)
        for peer, result in enumerate(_results(heads[0], operands)):
            if broken and len(result) > _NUMBER_BYTES:
                result = b"\xff" * len(result)
            self._answer(self._lines[peer], {"number": heads[peer]["number"]}, result)


def _operation(head: dict[str, Any]) -> dict[str, Any]:
    """Return what the heads of all ranks have in common."""
    return {name: value for name, value in head.items() if name not in ("number", "aborted")}


def _results(head: dict[str, Any], operands: list[bytes]) -> list[bytes]:
    """Return the result of each rank from the operands of all."""
    size, kind = len(operands), head["kind"]
    if kind == "broadcast":
        return [operands[head["root"]]] * size
    if kind == "all_gather":
        return [b"".join(operands)] * size
    combined = _combine(operands, head["type"], head["op"])
    if kind == "reduce":
        return [combined if rank == head["root"] else b"" for rank in range(size)]
    return [combined] * size


def _combine(operands: list[bytes], datatype: int, op: int) -> bytes:
    """Combine in rank order; low precision in float32, rounded once."""
    dtype = np.dtype(_TYPES[datatype])
    parts = [np.frombuffer(operand, dtype) for operand in operands]
    if datatype == NCCL_BFLOAT16:
        parts = [(part.astype("u4") << 16).view("f4") for part in parts]
    elif datatype == NCCL_FLOAT16:
        parts = [part.astype("f4") for part in parts]
    total = parts[0].copy()
    for part in parts[1:]:
        _COMBINE[op](total, part, out=total)
    if op == NCCL_AVG:
        np.divide(total, len(parts), out=total, casting="unsafe")
    if datatype == NCCL_BFLOAT16:
        bits = total.view("u4")
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2").tobytes()
    return total.astype(dtype).tobytes()


def _memory(address: int, count: int, dtype: np.dtype) -> np.ndarray:
    """Return elements in device memory."""
    nbytes = count * dtype.itemsize
    if not nbytes:
        return np.empty(0, dtype)
    if not is_device_memory(address, nbytes):
        raise NcclError(f"NCCL_ERROR_INVALID_ARGUMENT: {address:#x} is no device memory")
    memory: Any = (ctypes.c_ubyte * nbytes).from_address(address)
    return np.frombuffer(memory, dtype)


def _connect(address: bytes) -> socket.socket:
    while True:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.connect(address)
            return line
        except ConnectionRefusedError:  # the first rank is not here yet
            line.close()
            time.sleep(_RETRY_S)


def _send(line: socket.socket, head: dict[str, Any], payload: bytes = b"") -> None:
    text = json.dumps(head).encode()
    line.sendall(_FRAME.pack(len(text), len(payload)) + text + payload)


def _receive(line: socket.socket) -> tuple[dict[str, Any], bytes]:
    text, payload = _FRAME.unpack(_exactly(line, _FRAME.size))
    return json.loads(_exactly(line, text)), _exactly(line, payload)


def _exactly(line: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = line.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise ConnectionResetError
        data += piece
    return bytes(data)
