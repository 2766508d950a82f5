"""Groups over several hosts, among plain processes: the hosts are pretended, the sockets are real."""

from __future__ import annotations

import glob
import multiprocessing
import socket
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pytest

from rowlock.cluster.collective.connector import Address
from rowlock.cluster.collective.group import SharedMemoryGroup
from rowlock.cluster.collective.hosts import HostsGroup
from rowlock.cluster.collective.inter_host import InterHostTransport
from rowlock.cluster.primitives.doorway import SECRET_BYTES
from rowlock.executor.plan.group import When
from rowlock.strategies.errors import CollectiveAborted, CollectiveError
from tests.conftest import product

_context = multiprocessing.get_context("fork")
HOSTS = ([[0], [1]], [[0, 1], [2]], [[0, 1], [2, 3]], [[0], [1], [2]])


def across(
    hosts: Sequence[Sequence[int]],
    work: Callable[[HostsGroup], Any],
    within: float = 60.0,
    dead: Collection[int] = (),
) -> list[Any]:
    """Run ``work`` in one process per rank; returns its results in rank order (exceptions included).

    Those in ``dead`` will be killed, or stop, and have none.
    """
    name = f"test-{uuid.uuid4().hex}"
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in hosts]
    secrets = [bytes([i + 1]) * SECRET_BYTES for i in range(len(hosts))]
    addresses = [
        Address("127.0.0.1", listener.getsockname()[1], secret)
        for listener, secret in zip(listeners, secrets, strict=True)
    ]
    size = sum(len(members) for members in hosts)
    results: Any = _context.Queue()

    def body(rank: int) -> None:
        here = next(i for i, members in enumerate(hosts) if rank in members)
        members = list(hosts[here])
        local = links = None
        if len(members) > 1:
            seat = members.index(rank)
            local = SharedMemoryGroup(f"{name}-{here}", seat, len(members), within, members)
        if rank == members[0]:
            names = [f"host {i} (ranks {list(ranks)})" for i, ranks in enumerate(hosts)]
            links = InterHostTransport(here, addresses, listeners[here], within, local, names)
        group = HostsGroup(rank, hosts, local, links)
        try:
            results.put((rank, work(group)))
        except Exception as error:
            results.put((rank, error))
        finally:
            group.close()

    processes = [_context.Process(target=body, args=(rank,)) for rank in range(size)]
    for process in processes:
        process.start()
    for listener in listeners:
        listener.close()
    by_rank = dict(results.get(timeout=240) for _ in range(size - len(dead)))
    for rank, process in enumerate(processes):
        if rank in dead:
            process.kill()
        process.join(60)
    assert not glob.glob(f"/dev/shm/rowlock-*{name}*")
    return [by_rank.get(rank) for rank in range(size)]


def summand(rank: int, count: int, dtype: str) -> np.ndarray:
    return (np.random.default_rng(rank).standard_normal(count) * 100).astype(dtype)


@product(12, hosts=HOSTS, count=[1, 1000, 200_000], dtype=["float32", "float16", "int64"])
def test_all_reduce(hosts: list[list[int]], count: int, dtype: str) -> None:
    def work(group: HostsGroup) -> Any:
        arrays = []
        for shared in (True, False):
            array = np.empty(count, dtype)
            if shared:
                array = group.buffer(array.nbytes).view(dtype)
            array[...] = summand(group.rank, count, dtype)
            group.all_reduce(array, when=When(tag="a"))
            arrays.append(array.copy())
        return arrays

    results = across(hosts, work)
    parts = [summand(rank, count, dtype) for rank in range(len(results))]
    near = 1e-2 if dtype == "float16" else 1e-5
    for arrays in results:
        for array in arrays:
            np.testing.assert_allclose(array, sum(parts), rtol=near, atol=near * 100)
            assert array.tobytes() == results[0][0].tobytes()  # the same bits everywhere


@pytest.mark.parametrize("hosts", HOSTS, ids=str)
def test_parts_have_roots(hosts: list[list[int]]) -> None:
    size = sum(len(members) for members in hosts)
    ends = [3, 4, 10, 12]
    roots = [size - 1, 0, 1, size - 1]

    def work(group: HostsGroup) -> Any:
        reduced = group.buffer(12 * 4).view("float32")
        reduced[...] = np.arange(12) + group.rank
        group.reduce_parts(reduced, ends, roots, when=When(60, "r"))
        spread = group.buffer(12 * 4).view("float32")
        spread[...] = np.arange(12) + 100 * group.rank
        group.broadcast_parts(spread, ends, roots, when=When(60, "b"))
        group.barrier(When(60))
        return reduced.copy(), spread.copy()

    for rank, (reduced, spread) in enumerate(across(hosts, work)):
        for begin, end, root in zip((0, *ends), ends, roots, strict=False):
            own, total = np.arange(12) + rank, np.arange(12) * size + sum(range(size))
            expected = total if root == rank else own
            np.testing.assert_array_equal(reduced[begin:end], expected[begin:end])
            np.testing.assert_array_equal(
                spread[begin:end], (np.arange(12) + 100 * root)[begin:end]
            )


def test_rays_other_collectives() -> None:
    def work(group: HostsGroup) -> Any:
        mine = np.array([1.0, 2.0]) * (group.rank + 1)
        mean, total = mine.copy(), mine.copy()
        group.all_reduce(mean, "mean")
        group.reduce(total, root=2)
        message = mine.copy()
        group.broadcast(message, root=1)
        gathered = np.concatenate(group.all_gather(mine))
        scattered = group.reduce_scatter([mine, mine * 10, mine * 100])
        return [mean, total, message, gathered, scattered]

    for rank, arrays in enumerate(across([[0, 1], [2]], work)):
        total = [6, 12] if rank == 2 else [rank + 1, 2 * rank + 2]
        scale = 10**rank
        wanted = [[2, 4], total, [2, 4], [1, 2, 2, 4, 3, 6], [6 * scale, 12 * scale]]
        for array, expected in zip(arrays, wanted, strict=True):
            np.testing.assert_allclose(array, expected)


@pytest.mark.parametrize("who", [0, 1, 2, 3])
def test_a_rank_that_gives_up_releases_all(who: int) -> None:
    """Whoever fails, on whichever host; the group works again after a reset."""

    def work(group: HostsGroup) -> Any:
        array = group.buffer(400_000).view("float32")
        group.all_reduce(array, when=When(60, "0"))
        if group.rank == who:
            time.sleep(0.1)
            group.abort("row 9 of 5")
            error: Any = None
        else:
            with pytest.raises(CollectiveAborted) as caught:  # no deadline: they are released
                group.all_reduce(array, when=When(60, "1"))
            error = str(caught.value)
        group.reset(1)
        array[...] = 1
        group.all_reduce(array, when=When(60, "2"))
        return error, float(array.min()), float(array.max())

    results = across([[0, 1], [2, 3]], work)
    assert [result[1:] for result in results] == [(4.0, 4.0)] * 4
    assert sum("row 9 of 5" in str(result[0]) for result in results) >= 1


def test_hosts_that_came_for_different_things_stop() -> None:
    def work(group: HostsGroup) -> Any:
        array = np.full(1000, group.rank, "float32")
        with pytest.raises(CollectiveError) as caught:
            group.all_reduce(array, when=When(60, f"{group.rank}"))
        return str(caught.value), float(array[0])

    for rank, (text, value) in enumerate(across([[0], [1]], work)):
        assert "another collective" in text or "aborted" in text
        assert value == rank  # what disagreed was not used


def test_a_missing_host_is_named_in_time() -> None:
    over = _context.Event()

    def work(group: HostsGroup) -> Any:
        if group.rank == 1:
            over.wait(60)
            return
        with pytest.raises(
            CollectiveError, match=r"host 1 \(ranks \[1\]\) are missing after 0\.3 s"
        ):
            group.all_reduce(np.zeros(4), when=When(0.3))
        over.set()

    across([[0], [1]], work)


def test_strangers_are_turned_away() -> None:
    """Who does not know the secret, or says nothing, holds up nobody."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    secret = b"s" * SECRET_BYTES
    addresses = [Address("127.0.0.1", port, secret), Address("127.0.0.1", 0, secret)]
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
    strangers[0].sendall(b"x" * 52)

    def second() -> None:
        other = socket.create_server(("127.0.0.1", 0))
        links = InterHostTransport(1, addresses, other, 100)
        array = np.ones(2)
        links.all_reduce(array, "sum", When(60, "t"))
        links.close()

    process = _context.Process(target=second)
    process.start()
    began = time.monotonic()
    links = InterHostTransport(0, addresses, listener, 100)
    assert time.monotonic() - began < 60
    array = np.ones(2)
    links.all_reduce(array, "sum", When(60, "t"))
    assert array.tolist() == [2, 2]
    links.close()
    for stranger in strangers:
        stranger.close()
    process.join(60)
    assert process.exitcode == 0


def test_after_ranks_of_a_host_brought_other_sizes_all_have_the_same_memory() -> None:
    def work(group: HostsGroup) -> Any:
        group.all_reduce(np.ones(1000), when=When(60, "0"))
        with pytest.raises(CollectiveError):  # rank 0 must make room first, the others need not
            group.all_reduce(np.ones(9000 if group.rank == 0 else 1000), when=When(60, "1"))
        extremes = []
        for epoch, size in enumerate((1000, 100, 5000), 1):
            group.reset(epoch)
            array = np.full(size, group.rank + 1.0)
            group.all_reduce(array, when=When(60, "2"))
            extremes.append((float(array.min()), float(array.max())))
        return extremes

    assert across([[0, 1], [2]], work) == [[(6.0, 6.0)] * 3] * 3
