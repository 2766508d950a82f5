"""While a group forms: who waits for a rank that will not come hears so, from the driver or from that rank."""

from __future__ import annotations

import fcntl
import os
import socket
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from rowlock.cluster.collective.connector import Address
from rowlock.cluster.collective.group import SharedMemoryGroup
from rowlock.cluster.collective.inter_host import InterHostTransport
from rowlock.cluster.primitives.doorway import SECRET_BYTES
from rowlock.cluster.primitives.shm import _lock, segment_path
from rowlock.strategies.errors import CollectiveAborted

_LONG_S = 240.0
_AT_ONCE_S = 100.0  # far from the deadline, also on a busy host


def links(ended: Callable[[], str | None]) -> InterHostTransport:
    """Wait for a host that does not call."""
    listener = socket.create_server(("127.0.0.1", 0))
    key = os.urandom(SECRET_BYTES)
    addresses = [Address("127.0.0.1", listener.getsockname()[1], key)] * 2
    with listener:
        return InterHostTransport(0, addresses, listener, _LONG_S, ended=ended)


@pytest.mark.parametrize("rank", [0, 1, "host"])
def test_a_rank_that_waits_for_others_looks_whether_it_should(rank: int | str) -> None:
    began = time.monotonic()

    def ended() -> str | None:
        return "rank 1 is gone" if time.monotonic() - began > 0.2 else None

    with pytest.raises(CollectiveAborted, match="rank 1 is gone"):
        if isinstance(rank, str):
            links(ended)
        else:
            SharedMemoryGroup(f"test-{uuid.uuid4().hex}", rank, 2, _LONG_S, ended=ended)
    assert time.monotonic() - began < _AT_ONCE_S


class Pair:
    """Two actors that are told to form a group by hand."""

    def __init__(self) -> None:
        from rowlock.cluster.ray.replica import ReplicaActor

        self.actors = [ReplicaActor.options(num_cpus=0).remote(1, _LONG_S, False) for _ in "12"]
        self.number = 0

    def regroup(self, rank: int, group: str) -> Any:
        self.number += 1
        head = {"group": group, "size": 2, "backend": "rowlock", "within": _LONG_S}
        head |= {"rank": rank, "pin": None}
        return self.actors[rank].answer.remote(self.number, "regroup", head, [], 0)


def test_it_is_told_by_the_driver_and_by_the_rank_that_fails(ray_cluster: None) -> None:
    import ray

    def error_of(asked: Any, collateral: bool) -> str:
        answer = ray.get(asked, timeout=_AT_ONCE_S)
        assert answer.kind == "error" and answer.head["collateral"] is collateral
        return str(answer.head["text"])

    pair = Pair()
    ray.get([actor.describe.remote() for actor in pair.actors])
    first, second, third, fourth = (f"test-{uuid.uuid4().hex}" for _ in range(4))
    # While rank 0 waits for its peer. That another group ended does not matter to it.
    asked = pair.regroup(0, first)
    ray.get(pair.actors[0].abort.remote(second, "another group ended"))
    assert not ray.wait([asked], timeout=0.5)[0]
    ray.get(pair.actors[0].abort.remote(first, "rank 1 is gone"))
    assert "rank 1 is gone" in error_of(asked, collateral=True)
    # Before it begins.
    ray.get(pair.actors[1].abort.remote(third, "rank 0 is gone"))
    assert "rank 0 is gone" in error_of(pair.regroup(1, third), collateral=True)
    # By a rank that fails on its way: there is something under the name of its memory.
    path = segment_path(fourth, "control")
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    _lock(descriptor, fcntl.F_RDLCK, fcntl.F_OFD_SETLK)  # or a replica that starts now sweeps it
    try:
        asked = pair.regroup(1, fourth)
        assert "exists" in error_of(pair.regroup(0, fourth), collateral=False).lower()
        assert "rank 0 failed" in error_of(asked, collateral=True)
    finally:
        os.unlink(path)
        os.close(descriptor)
    # And all is well afterwards.
    last = f"test-{uuid.uuid4().hex}"
    answers = ray.get([pair.regroup(rank, last) for rank in range(2)], timeout=_AT_ONCE_S)
    assert [answer.kind for answer in answers] == ["ok", "ok"]
    for actor in pair.actors:
        ray.kill(actor)
