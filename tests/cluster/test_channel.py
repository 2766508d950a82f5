"""The step channel between a driver and replicas that are plain threads or processes: no Ray."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rowlock.cluster.channel import Channels, Listener, connect
from rowlock.cluster.replica import answer_all
from rowlock.executor.replica import Message, Replica
from rowlock.strategies.errors import CollectiveError

SECRET = bytes(range(32))
HOST = "127.0.0.1"


class Echo(Replica):
    """A replica that answers with what it got, and does what tests ask."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, None)
        self.counted = 0

    def on_echo(self, head: Any, arrays: Any) -> Message:
        return Message("echo", {"rank": self.rank, **head}, [a.copy() for a in arrays])

    def on_count(self, head: Any, arrays: Any) -> Message:
        self.counted += 1
        time.sleep(head.get("seconds", 0))
        return Message("count", {"counted": self.counted})

    def on_die(self, head: Any, arrays: Any) -> Message:
        os._exit(3)

    def on_objects(self, head: Any, arrays: Any) -> Message:
        return Message("objects", {}, [np.array([None])])


def _serve(address: tuple[str, int], rank: int) -> None:
    with connect(*address, SECRET, rank) as connection:
        answer_all(connection, Echo(rank))


def lost(rank: int) -> CollectiveError:
    return CollectiveError(f"lost {rank}")


def late(ranks: list[int], within: float) -> CollectiveError:
    return CollectiveError(f"late {ranks} {within:g}")


Start = Callable[..., Channels]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts replicas (processes, or threads) and returns the channels to them."""
    started: list[Any] = []
    opened: list[Channels] = []

    def begin(size: int = 2, threads: bool = False) -> Channels:
        listener = Listener(HOST, SECRET, size)
        kind: Any = threading.Thread if threads else multiprocessing.get_context("fork").Process
        for rank in range(size):
            started.append(kind(target=_serve, args=(listener.address, rank), daemon=True))
            started[-1].start()
        opened.append(Channels(listener.accept_all(10, lambda: None), lost, late))
        return opened[0]

    yield begin
    for channels in opened:
        channels.close()
    for one in started:
        one.join(10)
        assert not one.is_alive(), "a replica goes when its driver goes"


def echo(i: int, *arrays: np.ndarray) -> Message:
    return Message("echo", {"i": i}, arrays)


def test_answers_come_in_rank_order(start: Start) -> None:
    channels = start(3)
    for i in range(50):
        answers = channels.exchange([echo(i * 3 + r, np.full(r, i)) for r in range(3)], 5)
        assert [a.head for a in answers] == [{"rank": r, "i": i * 3 + r} for r in range(3)]
        assert [a.arrays[0].tolist() for a in answers] == [[i] * r for r in range(3)]


def test_large_messages_both_ways_do_not_wait_for_each_other(start: Start) -> None:
    channels = start(2)
    arrays = [np.random.default_rng(r).random(1_250_000) for r in range(2)]
    for _ in range(3):
        answers = channels.exchange([echo(0, a, a[:1000]) for a in arrays], 30)
        for array, answer in zip(arrays, answers, strict=True):
            np.testing.assert_array_equal(answer.arrays[0], array)


def test_waiting_uses_no_processor(start: Start) -> None:
    channels = start(2)
    before = time.process_time()
    channels.exchange([Message("count", {"seconds": 0.6})] * 2, 5)
    assert time.process_time() - before < 0.1


def test_who_does_not_answer_in_time_is_named(start: Start) -> None:
    channels = start(3, threads=True)
    slow = Message("count", {"seconds": 0.5})
    began = time.monotonic()
    with pytest.raises(CollectiveError, match=r"late \[0, 2\] 0.1"):
        channels.exchange([slow, echo(1), slow], 0.1)
    assert time.monotonic() - began < 0.4
    # The answers that come too late are not taken for those of the next exchange.
    assert [a.head["i"] for a in channels.exchange([echo(9)] * 3, 5)] == [9, 9, 9]


def test_a_deadline_holds_for_sending_too() -> None:
    listener = Listener(HOST, SECRET, 1)
    peer = connect(*listener.address, SECRET, 0)  # it never reads
    channels = Channels(listener.accept_all(5, lambda: None), lost, late)
    with pytest.raises(CollectiveError, match=r"late \[0\]"):
        channels.exchange([echo(1, np.zeros(5_000_000))], 0.2)
    channels.close()
    peer.close()


def test_a_replica_that_ends_is_told(start: Start) -> None:
    channels = start(2)
    with pytest.raises(CollectiveError, match="lost 1"):
        channels.exchange([Message("count", {"seconds": 1}), Message("die", {})], 5)


def test_an_answer_that_cannot_be_sent_is_an_error_answer(start: Start) -> None:
    channels = start(2)
    answers = channels.exchange([Message("objects", {}), echo(1)], 5)
    assert answers[0].kind == "error" and "cannot be sent" in answers[0].head["text"]
    assert channels.exchange([echo(2)] * 2, 5)[0].head["i"] == 2


def test_a_question_that_cannot_be_sent_reaches_nobody(start: Start) -> None:
    channels = start(2)
    with pytest.raises(TypeError):
        channels.exchange([Message("count", {}), Message("count", {"x": object()})], 5)
    answers = channels.exchange([Message("count", {})] * 2, 5)
    assert [a.head["counted"] for a in answers] == [1, 1]


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt."""


@pytest.mark.parametrize("count", [1, 400_000])
def test_an_interrupt_leaves_every_replica_the_same_steps(start: Start, count: int) -> None:
    """Signals strike at random moments of an exchange; the next one gets its own answers."""
    channels = start(2)
    armed, struck = [False], [0]

    def strike(*_: Any) -> None:
        if armed[0]:
            armed[0] = False
            struck[0] += 1
            raise Interrupted

    before = signal.signal(signal.SIGUSR1, strike)
    main = threading.main_thread().ident
    assert main is not None
    array = np.zeros(count)
    try:
        for _ in range(150):
            delay = random.random() * (3e-3 if count > 1 else 3e-4)
            timer = threading.Timer(delay, signal.pthread_kill, (main, signal.SIGUSR1))
            timer.start()
            try:
                armed[0] = True
                channels.exchange([Message("count", {}, [array])] * 2, 20)
                armed[0] = False
            except Interrupted:
                pass
            timer.join()
            answers = channels.exchange([Message("count", {})] * 2, 20)
            assert answers[0].head == answers[1].head
            assert [a.head["i"] for a in channels.exchange([echo(5)] * 2, 20)] == [5, 5]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert struck[0] > 10


# -- who may connect ------------------------------------------------------------------------------


def accept(size: int, within: float = 5, check: Callable[[], None] = lambda: None) -> Any:
    """Begin to listen; returns the listener and a function that waits for the outcome."""
    listener, outcome = Listener(HOST, SECRET, size), []

    def body() -> None:
        try:
            outcome.append(listener.accept_all(within, check))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=body)
    thread.start()

    def result() -> Any:
        thread.join(10)
        if isinstance(outcome[0], list):
            for connection in outcome[0]:
                connection.close()
        return outcome[0]

    return listener, result


def ended(connection: socket.socket) -> bool:
    connection.settimeout(5)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_strangers_are_dropped_and_hold_up_nobody() -> None:
    listener, result = accept(2)
    silent = socket.create_connection(listener.address)
    gone = socket.create_connection(listener.address)
    gone.sendall(SECRET[:5])
    gone.close()
    wrong = connect(*listener.address, bytes(32), 0)
    assert ended(wrong)
    out_of_range = connect(*listener.address, SECRET, 2)
    assert ended(out_of_range)
    first = connect(*listener.address, SECRET, 0)
    second_of_the_same = connect(*listener.address, SECRET, 0)
    assert ended(second_of_the_same)
    other = connect(*listener.address, SECRET, 1)
    assert len(result()) == 2
    assert ended(silent)
    for one in (silent, wrong, out_of_range, first, second_of_the_same, other):
        one.close()


def test_many_strangers_do_not_pile_up() -> None:
    listener, result = accept(1)
    strangers = []
    for _ in range(80):
        strangers.append(socket.create_connection(listener.address))
    assert ended(strangers[0])
    mine = connect(*listener.address, SECRET, 0)
    assert len(result()) == 1
    for one in (*strangers, mine):
        one.close()


def test_missing_replicas_are_named() -> None:
    listener, result = accept(3, within=0.5)
    one = connect(*listener.address, SECRET, 1)
    error = result()
    assert isinstance(error, CollectiveError)
    assert "replicas [0, 2] did not connect within 0.5 s" in str(error)
    assert ended(one)
    one.close()


def test_a_replica_that_cannot_come_ends_the_wait() -> None:
    def check() -> None:
        raise CollectiveError("replica 0 fell over")

    _, result = accept(2, within=30, check=check)
    assert "fell over" in str(result())
