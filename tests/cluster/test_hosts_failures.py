"""Groups over several hosts when ranks disagree, give up, are killed or cut off; and votes."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from rowlock.cluster.collective import inter_host as links_module
from rowlock.cluster.collective.connector import Address
from rowlock.cluster.collective.hosts import HostsGroup
from rowlock.cluster.collective.inter_host import InterHostTransport
from rowlock.cluster.collective.stream import Stream
from rowlock.cluster.primitives.doorway import SECRET_BYTES
from rowlock.executor.plan.group import When
from rowlock.strategies.errors import CollectiveAborted, CollectiveError
from rowlock.strategies.types import BFLOAT16
from tests.cluster.test_hosts_group import _context, across
from tests.cluster.test_meeting import bfloat16, failing
from tests.pauses import paused

TWO_OF_TWO = [[0, 1], [2, 3]]

pytestmark = pytest.mark.kills


# -- agreement ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [[[0], [1]], [[0, 1], [2]], TWO_OF_TWO, [[0], [1], [2]]], ids=str)
@pytest.mark.parametrize("count", [4, 300_000])
def test_a_rank_that_repeats_a_step_is_stopped_everywhere(
    hosts: list[list[int]], count: int
) -> None:
    def work(group: HostsGroup) -> Any:
        array = np.empty(count, "f4")
        for step in range(3):
            array[...] = group.rank
            group.begin(1 if group.rank == 1 and step == 2 else step)
            try:
                group.all_reduce(array, when=When(60, "bucket 0"))
            except CollectiveError as error:
                assert step < 2 or np.all(array == group.rank)  # nothing was combined
                return str(error)  # in step 1, where a rank still was in it

    for text in across(hosts, work):
        assert "in step 1" in text and "in step 2" in text and "another collective" in text
        assert "rank 1" in text or "ranks [1]" in text or "ranks [0, 1]" in text


def test_words_that_differ_are_the_same_on_every_host() -> None:
    def work(group: HostsGroup) -> str:
        return failing(lambda: group.all_reduce(np.zeros(4), when=When(60, f"{group.rank // 2}")))

    texts = [text.partition("than the others: ")[2] for text in across([[0], [1], [2]], work)]
    assert len(set(texts)) == 1
    assert (
        "host 0 (ranks [0]) and host 1 (ranks [1]) came for all_reduce/sum (float64[4] 0)"
        in texts[0]
    )
    assert "host 2 (ranks [2]) came for all_reduce/sum (float64[4] 1)" in texts[0]


# -- abort and death ---------------------------------------------------------------------------------


@pytest.mark.parametrize("who", range(4))
def test_a_killed_rank_releases_all_at_once(who: int) -> None:
    def work(group: HostsGroup) -> Any:
        group.barrier()
        if group.rank == who:
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(CollectiveAborted) as caught:  # no deadline: they are released
            group.all_reduce(np.zeros(300_000), when=When(100))
        return str(caught.value)

    for text in surviving(TWO_OF_TWO, work, {who}).values():
        assert f"rank {who} has ended" in text or "is gone" in text


def surviving(
    hosts: Sequence[Sequence[int]], work: Callable[[HostsGroup], Any], dead: set[int]
) -> dict[int, Any]:
    """Run ``work`` where some ranks are killed; returns the results of the others."""
    results: Any = _context.SimpleQueue()

    def told(group: HostsGroup) -> Any:
        try:
            results.put((group.rank, work(group)))
        except Exception as error:
            results.put((group.rank, error))
        return None

    across(hosts, told, dead=dead)
    by_rank = {}
    while not results.empty():
        rank, result = results.get()
        by_rank[rank] = result
    assert sorted(by_rank) == sorted({r for members in hosts for r in members} - dead)
    return by_rank


def test_an_abort_reaches_ranks_that_wait_for_one_of_their_own_host() -> None:
    """Nobody of host 1 looks at a socket: its leader computes, the other waits for it."""
    released = _context.Semaphore(0)

    def work(group: HostsGroup) -> Any:
        group.barrier()
        if group.rank == 0:
            time.sleep(0.2)
            group.abort("label 12 is no class")
        elif group.rank == 2:
            assert all(released.acquire(timeout=240) for _ in range(2))
        else:
            text = failing(lambda: group.all_reduce(np.zeros(4), when=When(100)))
            released.release()
            return text

    texts = across(TWO_OF_TWO, work)
    for rank in (1, 3):
        assert "rank 0 failed: label 12 is no class" in texts[rank]


def test_a_frozen_host_is_named_at_the_deadline() -> None:
    def work(group: HostsGroup) -> Any:
        group.barrier()
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
            return None
        began = time.monotonic()
        text = failing(lambda: group.all_reduce(np.zeros(2_000_000), when=When(0.5)))
        return time.monotonic() - began, text

    waited, text = surviving([[0], [1]], work, {1})[0]
    assert 0.4 < waited < 60 and "host 1 (ranks [1]) are missing after 0.5 s" in text


def test_hosts_that_were_stopped_together_meet() -> None:
    goes_on = _context.Event()

    def work(group: HostsGroup) -> float:
        total = np.ones(1)
        if group.rank == 0:
            paused(goes_on.set)
        else:
            assert goes_on.wait(60)
        group.all_reduce(total, when=When(60))
        return float(total[0])

    assert across([[0], [1]], work) == [2.0, 2.0]


# -- votes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", range(4))
def test_once_a_vote_has_returned_everybody_has_the_results(who: int) -> None:
    """A rank is killed at a random moment of steps of all-reduce and vote."""
    for seed in range(4):
        delay = float(np.random.default_rng(100 * who + seed).uniform(0.0, 0.01))

        def work(group: HostsGroup, delay: float = delay) -> Any:
            array = group.buffer(400).view("f4")
            group.barrier()
            if group.rank == who:
                signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
                signal.setitimer(signal.ITIMER_REAL, delay + 1e-5)
            complete = voted = 0
            try:
                while True:
                    array[...] = 1
                    group.all_reduce(array, when=When(60))
                    assert np.all(array == 4)
                    complete += 1
                    group.vote(When(60))
                    voted += 1
            except CollectiveAborted:
                return complete, voted

        counts = surviving(TWO_OF_TWO, work, {who}).values()
        assert max(voted for _, voted in counts) <= min(complete for complete, _ in counts)


# -- what travels ------------------------------------------------------------------------------------


def test_parts_travel_to_their_roots_host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    class Counted(Stream):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            sent.append(sum(row.nbytes for row in args[3]))

    monkeypatch.setattr(links_module, "Stream", Counted)

    def work(group: HostsGroup) -> Any:
        array = np.full(12, 1.0 + group.rank, "f4")
        group.reduce_parts(array, [3, 4, 10, 12], [2, 0, 1, 2], when=When(60))
        return list(sent), array.tolist()

    results = across([[0], [1], [2]], work)
    assert [sizes for sizes, _ in results] == [[24, 20], [4, 20], [4, 24]]
    assert results[2][1] == [6.0] * 3 + [3.0] * 7 + [6.0] * 2


@pytest.mark.parametrize("hosts", [[[0], [1]], [[0], [1], [2]]], ids=str)
def test_rows_of_several_pieces_follow_each_other_whole(hosts: list[list[int]]) -> None:
    """Each row is longer than what is sent at once, and others stand behind it."""
    count = 1_500_000
    ends, roots = [count // 3, 2 * count // 3, count], [1, 0, 1]

    def work(group: HostsGroup) -> Any:
        own = np.arange(count, dtype="f4") % 1000 + group.rank
        everywhere, parts, copied = own.copy(), own.copy(), own.copy()
        group.all_reduce(everywhere)
        group.reduce_parts(parts, ends, roots)
        group.broadcast_parts(copied, ends, roots)
        return everywhere, parts, copied

    size = len(hosts)
    total = size * (np.arange(count) % 1000) + sum(range(size))
    owner = np.repeat(roots, count // 3)
    for rank, (everywhere, parts, copied) in enumerate(across(hosts, work)):
        np.testing.assert_array_equal(everywhere, total)
        np.testing.assert_array_equal(parts[owner == rank], total[owner == rank])
        np.testing.assert_array_equal(copied, np.arange(count) % 1000 + owner)


@pytest.mark.parametrize("hosts", [[[0], [1]], [[0, 1], [2]], [[0], [1], [2]]], ids=str)
@pytest.mark.parametrize("count", [5, 100_001])
def test_other_types(hosts: list[list[int]], count: int) -> None:
    def part(rank: int) -> np.ndarray:
        return bfloat16(np.random.default_rng(rank).standard_normal(count))

    def work(group: HostsGroup) -> Any:
        half = part(group.rank)
        group.all_reduce(half.view(BFLOAT16), "max")
        truth = np.arange(count) % 3 == group.rank
        group.all_reduce(truth, "max")
        small = np.full(count, 3, "u1")
        group.all_reduce(small, "product")
        mean = np.full(count, group.rank, "f8")
        group.reduce(mean, 1, "mean")
        return half, truth, small, mean

    results = across(hosts, work)
    size = len(results)
    wide = [(part(rank).astype("u4") << 16).view("f4") for rank in range(size)]
    for rank, (half, truth, small, mean) in enumerate(results):
        np.testing.assert_array_equal(half, bfloat16(np.maximum.reduce(wide)))
        np.testing.assert_array_equal(truth, np.arange(count) % 3 < size)
        assert np.all(small == 3**size)
        assert np.all(mean == ((size - 1) / 2 if rank == 1 else rank))


# -- a cable that is cut -----------------------------------------------------------------------------


@pytest.fixture
def cable() -> Iterator[tuple[str, str]]:
    """Two network namespaces joined by a virtual cable."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the ip command")
    tag = uuid.uuid4().hex[:5]
    spaces = (f"rlk-{tag}a", f"rlk-{tag}b")
    try:
        for space in spaces:
            if subprocess.run(["ip", "netns", "add", space], capture_output=True).returncode:
                pytest.skip("no network namespaces here")
        ends = f"link add r{tag}a netns {spaces[0]} type veth peer name r{tag}b netns {spaces[1]}"
        subprocess.run(["ip", *ends.split()], check=True)
        for number, space in enumerate(spaces):
            name = f"r{tag}{'ab'[number]}"
            for words in (f"addr add 10.77.9.{number + 1}/24 dev {name}", f"link set {name} up"):
                subprocess.run(["ip", "-n", space, *words.split()], check=True)
        yield spaces
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)


@pytest.mark.slow
def test_a_cut_cable_is_noticed_at_the_deadline_on_both_sides(cable: tuple[str, str]) -> None:
    results: Any = _context.SimpleQueue()
    tag, cut, through = cable[0][4:9], _context.Event(), _context.Barrier(2)

    def body(rank: int) -> None:
        space = os.open(f"/var/run/netns/{cable[rank]}", os.O_RDONLY)
        assert ctypes.CDLL(None).setns(space, 0) == 0
        listener = socket.create_server((f"10.77.9.{rank + 1}", 40123))
        addresses = [Address(f"10.77.9.{i + 1}", 40123, b"k" * SECRET_BYTES) for i in range(2)]
        group = HostsGroup(
            rank, [[0], [1]], None, InterHostTransport(rank, addresses, listener, 100)
        )
        array = np.ones(1_000_000, "f4")
        group.all_reduce(array, when=When(60))
        through.wait(60)  # else what the other one still has to read would be cut off, too
        if rank == 0:
            subprocess.run(["ip", "-n", cable[0], "link", "set", f"r{tag}a", "down"], check=True)
            cut.set()
        assert cut.wait(60)
        began = time.monotonic()
        text = failing(lambda: group.all_reduce(array, when=When(1.0)))
        results.put((time.monotonic() - began, text))
        group.close()

    processes = [_context.Process(target=body, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    for _ in processes:
        waited, text = results.get()
        assert 0.9 < waited < 60 and "missing after 1.0 s" in text
