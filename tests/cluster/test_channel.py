"""The step channel between a driver and replicas that are plain threads or processes: no Ray."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rowlock.cluster.channel import near as near_replicas
from rowlock.cluster.channel.channel import Channels
from rowlock.cluster.channel.connection import ReplicaConnection, ReplicaServer
from rowlock.cluster.channel.frame import Frame, Incoming, Outgoing, encode
from rowlock.cluster.channel.heartbeat import HeartbeatServer
from rowlock.cluster.channel.listener import STEPS, WATCH, Listener, connect
from rowlock.cluster.channel.waits import WaitChoice
from rowlock.cluster.primitives.doorway import Claim, Refused, introduce
from rowlock.cluster.primitives.processes import look_at
from rowlock.executor.cuda.transfers import Arriving
from rowlock.executor.gang.delivery import Outcome
from rowlock.executor.host import deadline
from rowlock.executor.replica.message import Message, Stacked, StackedMessages, StepHead
from rowlock.executor.replica.replica import Replica
from rowlock.strategies.errors import CollectiveError, InvalidType

from ..conftest import eventually, freeze
from ..pauses import Clock, paused

SECRET = bytes(range(32))
HOST = "127.0.0.1"
WITHIN_S = 60.0  # what takes milliseconds, unless others have the processor
FIRST = {"which": [0]}  # the head of posts that are all alike: the same object each time
_over = threading.Event()  # of what threads wait for


class Echo(Replica):
    """A replica that answers with what it got, and does what tests ask."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, None)
        self.counted = 0

    def handle(self, message: Message) -> Message:
        """Take heads as they are, also those of steps."""
        self._step, self._lasting = message.step, message.lasting
        answer: Message = getattr(self, f"on_{message.kind}")(message.head, message.arrays)
        return answer

    def on_echo(self, head: Any, arrays: Any) -> Message:
        return Message("echo", {"rank": self.rank, **head}, [a.copy() for a in arrays])

    def on_count(self, head: Any, arrays: Any) -> Message:
        self.counted += 1
        time.sleep(head.get("seconds", 0))
        return Message("count", {"counted": self.counted})

    def on_wait(self, head: Any, arrays: Any) -> Message:
        assert _over.wait(60)
        return Message("wait", {})

    def on_die(self, head: Any, arrays: Any) -> Message:
        os._exit(3)

    def on_step(self, head: Any, arrays: Any) -> Message:
        """Post the first array, return the others; tell whether they lie where they did before."""
        if head.get("die") == "first":
            os._exit(3)
        if "busy" in head:
            time.sleep(head["busy"])
            self.counted += 1
            assert self.post is not None
            self.post(Message("posted", {"which": [0]}, [np.array([self.counted, self._step])]))
            return Message("fetched", {}, [])
        again, self.before = self._lasting and arrays is self.before, arrays
        assert self.post is not None
        which = FIRST if "brief" in head else {"which": [0]}
        self.post(Message("posted", which, arrays[:1]))
        if head.get("die") == "then":
            os._exit(3)
        if "brief" in head:
            return Message("fetched", {}, [])
        if "fails" in head:
            return Message("error", {"text": "it failed"})
        reply = np.array([again, self._step])
        return Message("fetched", {}, [*(array.copy() for array in arrays[1:]), reply])

    before: Any = None

    def on_objects(self, head: Any, arrays: Any) -> Message:
        return Message("objects", {}, [np.array([None])])

    def on_broken(self, head: Any, arrays: Any) -> Message:
        return Message("fetched", {}, Arriving([np.zeros(1)], Failed()))


class Failed:
    """A point in a stream of a GPU whose work failed."""

    def done(self) -> bool:
        raise RuntimeError("cudaErrorIllegalAddress")

    def synchronize(self) -> None:
        self.done()


class Waits(WaitChoice):
    """One way to wait, whatever it takes."""

    def __init__(self, awake: bool) -> None:
        super().__init__()
        self.awake = awake

    def note(self, seconds: float) -> None:
        """Do not judge it."""


def _serve(address: tuple[str, int], local_name: str, rank: int) -> None:
    replica = Echo(rank)
    steps, watch = (connect(*address, SECRET, rank, end, local_name) for end in (STEPS, WATCH))
    post = HeartbeatServer(watch, replica, lambda reason: None)
    post.start()
    with steps:
        ReplicaServer(steps, replica).serve()
    post.close()


def both(address: tuple[str, int], secret: bytes, rank: int) -> list[socket.socket]:
    """Open the two connections of a replica."""
    return [connect(*address, secret, rank, purpose) for purpose in (STEPS, WATCH)]


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

    def begin(
        size: int = 2, threads: bool = False, near: bool = False, awake: bool = False
    ) -> Channels:
        listener = Listener(HOST, SECRET, range(size))
        kind: Any = threading.Thread if threads else multiprocessing.get_context("fork").Process
        local_name = listener.local_name if near else ""
        for rank in range(size):
            arguments = listener.address, local_name, rank
            started.append(kind(target=_serve, args=arguments, daemon=True))
            started[-1].start()
        opened.append(Channels(lost, late))
        ends_by_rank = listener.accept_all(WITHIN_S, lambda: None)
        opened[-1].use(
            {rank: ReplicaConnection(ends.steps, near=near) for rank, ends in ends_by_rank.items()}
        )
        opened[-1]._near.waits = Waits(awake)
        watches.extend(ends.watch for ends in ends_by_rank.values())
        return opened[-1]

    watches: list[socket.socket] = []
    yield begin
    for channels in opened:
        channels.close()
    for watch in watches:
        watch.close()
    for one in started:
        one.join(WITHIN_S)
        assert not one.is_alive(), "a replica goes when its driver goes"


def exchange(channels: Channels, messages: Any, within: float) -> list[Message]:
    """Send a message to each replica and return the answers in rank order."""
    answers = channels.finish(channels.start(dict(enumerate(messages)), within), within)
    return [answers[rank] for rank in range(len(messages))]


def echo(i: int, *arrays: np.ndarray) -> Message:
    return Message("echo", {"i": i}, arrays)


def test_answers_come_in_rank_order(start: Start) -> None:
    channels = start(3)
    for i in range(50):
        answers = exchange(channels, [echo(i * 3 + r, np.full(r, i)) for r in range(3)], 60)
        assert [a.head for a in answers] == [{"rank": r, "i": i * 3 + r} for r in range(3)]
        assert [a.arrays[0].tolist() for a in answers] == [[i] * r for r in range(3)]


def test_a_driver_that_was_stopped_hears_answers_that_come_later(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "time", time)  # put back what paused() changes
    channels = start(1, threads=True)
    number = channels.start({0: Message("wait", {})}, 60)
    paused(_over.set)
    assert channels.finish(number, 60)[0].kind == "wait"
    _over.clear()


def test_large_messages_both_ways_do_not_wait_for_each_other(start: Start) -> None:
    channels = start(2)
    arrays = [np.random.default_rng(r).random(1_250_000) for r in range(2)]
    for _ in range(3):
        answers = exchange(channels, [echo(0, a, a[:1000]) for a in arrays], 30)
        for array, answer in zip(arrays, answers, strict=True):
            np.testing.assert_array_equal(answer.arrays[0], array)


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no more files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] + 32, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                files.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for file in files:
            os.close(file)


def test_large_messages_need_no_more_open_files(start: Start) -> None:
    channels = start(2)
    large = np.ones(1_250_000)
    with no_more_files():
        answers = exchange(channels, [echo(0, large), echo(0, large)], WITHIN_S)
    assert all(np.array_equal(answer.arrays[0], large) for answer in answers)


def test_a_driver_that_cannot_listen_says_so() -> None:
    with no_more_files(), pytest.raises(CollectiveError, match=r"Too many open files.*ulimit -n"):
        Listener(HOST, SECRET, [0])
    with pytest.raises(CollectiveError, match=r"listen for its replicas at 198\.51\.100\.7"):
        Listener("198.51.100.7", SECRET, [0])


def test_waiting_uses_no_processor(start: Start) -> None:
    channels = start(2)
    before = time.thread_time()
    exchange(channels, [Message("count", {"seconds": 0.6})] * 2, 60)
    assert time.thread_time() - before < 0.3  # of this process, whatever else the host does


def test_who_does_not_answer_in_time_is_named(start: Start) -> None:
    channels = start(3, threads=True)
    slow = Message("wait", {})
    _over.clear()
    number = channels.start({0: slow, 1: echo(1), 2: slow}, WITHIN_S)
    assert eventually(
        lambda: not channels.poll(number) and channels.outcome(number, 1).answer is not None
    )
    with pytest.raises(CollectiveError, match=r"late \[0, 2\] 0.1"):
        channels.finish(number, 0.1)
    _over.set()
    # The answers that come too late are not taken for those of the next exchange.
    assert [a.head["i"] for a in exchange(channels, [echo(9)] * 3, 60)] == [9, 9, 9]


def test_a_deadline_holds_for_sending_too() -> None:
    listener = Listener(HOST, SECRET, [0])
    peers: list[socket.socket] = []  # they never read
    calling = threading.Thread(target=lambda: peers.extend(both(listener.address, SECRET, 0)))
    calling.start()
    (ends,) = listener.accept_all(WITHIN_S, lambda: None).values()
    calling.join()
    channels = Channels(lost, late)
    channels.use({0: ReplicaConnection(ends.steps, near=False)})
    with pytest.raises(CollectiveError, match=r"late \[0\]"):
        exchange(channels, [echo(1, np.zeros(5_000_000))], 0.2)
    channels.close()
    for one in (*peers, ends.watch):
        one.close()


def test_a_replica_that_ends_is_told(start: Start) -> None:
    channels = start(2)
    with pytest.raises(CollectiveError, match="lost 1"):
        exchange(channels, [Message("count", {"seconds": 1}), Message("die", {})], 60)


def test_an_answer_that_cannot_be_sent_is_an_error_answer(start: Start) -> None:
    channels = start(2)
    answers = exchange(channels, [Message("objects", {}), echo(1)], 60)
    assert answers[0].kind == "error" and "cannot be sent" in answers[0].head["text"]
    assert exchange(channels, [echo(2)] * 2, 60)[0].head["i"] == 2


def test_work_of_a_gpu_that_fails_behind_the_step_is_an_error_answer(start: Start) -> None:
    channels = start(1)
    (answer,) = exchange(channels, [Message("broken", {})], 60)
    assert answer.kind == "error" and "cudaErrorIllegalAddress" in answer.head["text"]


def test_a_question_that_cannot_be_sent_reaches_nobody(start: Start) -> None:
    channels = start(2)
    with pytest.raises(TypeError):
        exchange(channels, [Message("count", {}), Message("count", {"x": object()})], 60)
    answers = exchange(channels, [Message("count", {})] * 2, 60)
    assert [a.head["counted"] for a in answers] == [1, 1]


# -- memory shared with near replicas ---------------------------------------------------------------


def step(number: int, *arrays: np.ndarray, **head: Any) -> Message:
    return Message("step", head, arrays, number)


def stepped(channels: Channels, number: int, *arrays: np.ndarray) -> bool:
    """Send a step to two replicas, check what comes back; tell whether they used the same places again."""
    again = []
    for rank, answer in enumerate(
        exchange(channels, [step(number, *(a + r for a in arrays)) for r in range(2)], WITHIN_S)
    ):
        assert len(answer.arrays) == len(arrays) + 1
        for received, array in zip(answer.arrays, arrays, strict=False):
            np.testing.assert_array_equal(received, array + rank)
        same, last = answer.arrays[-1].tolist()
        assert last == number
        again.append(bool(same))
    return all(again)


@pytest.mark.parametrize("near", [False, True])
def test_feeds_are_used_where_they_were_written(start: Start, near: bool) -> None:
    channels = start(2, near=near)
    small, large = np.arange(6.0).reshape(2, 3), np.arange(300_000, dtype="float32")
    again = [stepped(channels, i, small) for i in range(5)]
    assert again[3:] == [near, near], "the first step tells how much room is needed"
    again = [stepped(channels, i, large, small) for i in range(5)]
    assert again[3:] == [near, near]
    assert stepped(channels, 9, small) in (True, False)
    assert not stepped(channels, 9, small.astype("int64")), "others have places of their own"


@pytest.mark.parametrize("near", [False, True])
def test_exchanges_under_way_do_not_disturb_each_other(start: Start, near: bool) -> None:
    channels = start(2, near=near)
    pending: list[tuple[int, int]] = []
    for i in range(40):
        array = np.full(1000, float(i))
        messages = {rank: step(i, array, array + rank) for rank in range(2)}
        pending.append((i, channels.start(messages, WITHIN_S)))
        if len(pending) == 3:
            number, ticket = pending.pop(0)
            for rank, answer in channels.finish(ticket, WITHIN_S).items():
                assert answer.arrays[0][0] == number and answer.arrays[1][0] == number + rank
    for _, ticket in reversed(pending):
        channels.finish(ticket, WITHIN_S)


@pytest.mark.parametrize("near", [False, True])
def test_what_was_posted_outlives_the_replica(start: Start, near: bool) -> None:
    channels = start(2, near=near)
    array = np.arange(5.0)
    for i in range(3):
        stepped(channels, i, array)
    dying = {0: step(3, array), 1: step(3, array + 1, die="then")}
    number = channels.start(dying, WITHIN_S)
    with pytest.raises(CollectiveError, match="lost 1"):
        channels.finish(number, WITHIN_S)
    posted, answer, _ = channels.outcome(number, 1)
    assert answer is None and posted is not None
    np.testing.assert_array_equal(posted.arrays[0], array + 1)
    channels.drain({0}, WITHIN_S)
    posted, answer, _ = channels.outcome(number, 0)
    assert posted is not None and answer is not None


@pytest.mark.parametrize("awake", [False, True])
def test_steps_and_answers_in_the_memory_wake_who_sleeps(start: Start, awake: bool) -> None:
    """Both ends pause at random, for less and for more than they wait awake; none is slept through."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    channels = start(2, near=True, awake=awake)
    array, pauses = np.zeros(3), [0.0, 1e-4, 3e-4, 6e-4]
    for number in range(600):
        busy = [draw.choice(pauses), draw.choice(pauses)]
        messages = [step(number, array, busy=one) for one in busy]
        answers = exchange(channels, messages, WITHIN_S)
        assert [a.arrays[0].tolist() for a in answers] == [[number + 1, number]] * 2
        if number % 50 == 0:  # what goes by the socket keeps its place among them
            assert [a.head["i"] for a in exchange(channels, [echo(9)] * 2, WITHIN_S)] == [9, 9]
        time.sleep(draw.choice(pauses))


def test_a_replica_that_shares_memory_hears_what_its_socket_brings_in_parts(start: Start) -> None:
    """Between steps in the memory, messages come in pieces, and several at once."""
    channels = start(2, near=True)
    line, heard = channels.lines[0], list[Frame]()
    for number in range(3):
        stepped(channels, number, np.arange(5.0))
        numbers = [900 + 3 * number + k for k in range(3)]
        text = b"".join(bytes(piece) for i in numbers for piece in encode(i, echo(i)))
        for piece in (text[:20], text[20:-7], text[-7:]):
            line.connection.sendall(piece)
            time.sleep(0.05)
        until = time.monotonic() + WITHIN_S
        while len(heard) < len(numbers) and time.monotonic() < until:
            line.pull(heard.append)
        assert [frame.message.head["i"] for frame in heard] == numbers
        heard.clear()


def test_an_error_beside_answers_in_the_memory_is_heard_at_once(start: Start) -> None:
    channels = start(3, near=True)
    array, brief = np.arange(3.0), {"brief": True}
    for number in range(5):
        exchange(channels, [step(number, array, **brief) for _ in range(3)], WITHIN_S)
    for failing in range(3):
        messages = [
            step(9, array, **({"fails": True} if r == failing else brief)) for r in range(3)
        ]
        answers = exchange(channels, messages, WITHIN_S)
        kinds = ["error" if rank == failing else "fetched" for rank in range(3)]
        assert [answer.kind for answer in answers] == kinds
        answers = exchange(channels, [step(10, array + r, **brief) for r in range(3)], WITHIN_S)
        assert [answer.arrays[0].tolist() for answer in answers] == [
            (array + rank).tolist() for rank in range(3)
        ]


def stacked(heads: list[StepHead], number: int) -> StackedMessages:
    feed = np.arange(len(heads) * 6.0).reshape(-1, 2, 3) + number
    return StackedMessages("step", heads, Stacked([feed, np.ones((1, 2))], len(heads)), number)


def at_rest(channels: Channels, number: int) -> bool:
    """Tell whether all replicas have answered a message in shared memory, and sleep."""
    area = channels._near.area
    assert area is not None
    return area.bell.all_answered(number) and all(area.bell._columns.sleeps)


def calls_of_a_round(channels: Channels, heads: list[StepHead]) -> int:
    """Return how many functions the driver calls from a step to its answers, one look at each."""
    calls = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        calls[0] += event in ("call", "c_call")

    messages = stacked(heads, 7)
    number = channels.start(messages, WITHIN_S, channels.reserve())
    assert eventually(lambda: at_rest(channels, number))
    channels.finish(number, WITHIN_S)
    channels.give_up(number)
    sys.setprofile(count)
    try:
        number = channels.start(messages, WITHIN_S, channels.reserve())
    finally:
        sys.setprofile(None)
    assert eventually(lambda: at_rest(channels, number))
    sys.setprofile(count)
    try:
        answers = channels.finish(number, WITHIN_S)
    finally:
        sys.setprofile(None)
    channels.give_up(number)
    for rank, answer in answers.items():
        np.testing.assert_array_equal(answer.arrays[0], messages[rank].arrays[0])
    return calls[0]


def test_a_round_costs_the_driver_as_many_calls_for_many_replicas(start: Start) -> None:
    calls = []
    for size in (2, 12):
        channels = start(size, near=True)
        heads = [StepHead({"brief": rank}) for rank in range(size)]
        for number in range(4):
            answers = channels.finish(channels.start(stacked(heads, number), WITHIN_S), WITHIN_S)
            for rank, answer in answers.items():
                np.testing.assert_array_equal(
                    answer.arrays[0], stacked(heads, number)[rank].arrays[0]
                )
        # The least: whether replicas wait awake or asleep is measured, and changes now and then.
        calls.append(min(calls_of_a_round(channels, heads) for _ in range(4)))
    assert calls[1] <= calls[0], "by number of replicas"


def test_what_was_posted_before_is_not_taken_for_it(start: Start) -> None:
    channels = start(2, near=True)
    for i in range(3):
        stepped(channels, i, np.arange(5.0))
    number = channels.start({0: step(3, np.ones(5)), 1: step(3, np.ones(5), die="first")}, WITHIN_S)
    with pytest.raises(CollectiveError, match="lost 1"):
        channels.finish(number, WITHIN_S)
    assert channels.outcome(number, 1) == Outcome()


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt."""


@pytest.mark.parametrize(("count", "near"), [(1, False), (400_000, False), (1, True)])
def test_an_interrupt_leaves_every_replica_the_same_steps(
    start: Start, count: int, near: bool
) -> None:
    """Signals strike at random moments of an exchange; the next one gets its own answers."""
    channels = start(2, near=near, awake=near)
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
    counted = Message("count", {}, [array])
    if near:
        counted = step(0, array, busy=0)
        exchange(channels, [counted] * 2, WITHIN_S)
    try:
        for number in range(2000):
            if number >= 150 and struck[0] > 10:
                break
            delay = random.random() * (3e-3 if count > 1 else 3e-4)
            timer = threading.Timer(delay, signal.pthread_kill, (main, signal.SIGUSR1))
            timer.start()
            try:
                armed[0] = True
                exchange(channels, [counted._replace() for _ in range(2)], WITHIN_S)
                armed[0] = False
            except Interrupted:
                pass
            timer.join()
            answers = exchange(channels, [Message("count", {})] * 2, WITHIN_S)
            assert answers[0].head == answers[1].head
            assert [a.head["i"] for a in exchange(channels, [echo(5)] * 2, WITHIN_S)] == [5, 5]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert struck[0] > 10


SPINS = "import threading\nthreading.Thread(target=lambda: sum(iter(int, 1))).start()\n"


@pytest.mark.kills
def test_a_process_that_waits_for_a_processor_is_told_from_one_that_sleeps() -> None:
    """Its main thread sleeps in both: whether another one is ready tells."""
    asleep = "import time\ntime.sleep(60)\n"
    commands = [[sys.executable, "-S", "-c", text] for text in (SPINS, asleep)]
    processes = [subprocess.Popen(command) for command in commands]
    spinning, sleeping = (process.pid for process in processes)
    try:
        assert eventually(lambda: look_at(spinning)[0] == "R")
        assert eventually(lambda: look_at(sleeping) == ("S", 0))
        freeze(spinning)
        assert look_at(spinning) == ("T", 0)
    finally:
        for process in processes:
            process.kill()
    assert eventually(lambda: look_at(spinning, 0.0)[0] == "Z")
    for process in processes:
        process.wait()
    assert look_at(spinning, 0.0) == ("", 0)


# -- who may connect ------------------------------------------------------------------------------


def accept(size: int, within: float = WITHIN_S, check: Callable[[], None] = lambda: None) -> Any:
    """Begin to listen; returns the listener and a function that waits for the outcome."""
    listener, outcome = Listener(HOST, SECRET, range(size)), []

    def body() -> None:
        try:
            outcome.append(listener.accept_all(within, check))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=body)
    thread.start()

    def result() -> Any:
        thread.join(2 * WITHIN_S)
        if isinstance(outcome[0], dict):
            for ends in outcome[0].values():
                ends.steps.close()
                ends.watch.close()
        return outcome[0]

    return listener, result


def ended(connection: socket.socket) -> bool:
    connection.settimeout(WITHIN_S)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_strangers_are_dropped_and_hold_up_nobody() -> None:
    listener, result = accept(2)
    silent = [socket.create_connection(listener.address) for _ in range(6)]
    caller = socket.create_connection(listener.address)
    caller.sendall(b"RLK4")
    caller.close()
    talker = socket.create_connection(listener.address)
    talker.sendall(b"GET / HTTP/1.1\r\nHost: driver\r\nAccept: text/html\r\n\r\n")
    assert ended(talker)
    with pytest.raises(Refused, match="does not know the secret"):
        connect(*listener.address, bytes(32), 0)
    first = both(listener.address, SECRET, 0)
    # Out of range, once more, for nothing:
    for claim in (Claim(2, STEPS), Claim(0, STEPS), Claim(1, 7)):
        with socket.create_connection(listener.address) as other, pytest.raises(ConnectionError):
            introduce(other, SECRET, claim, WITHIN_S)
    last = both(listener.address, SECRET, 1)
    assert len(result()) == 2
    assert all(map(ended, silent))
    for one in (*silent, talker, *first, *last):
        one.close()


def drained(connection: socket.socket) -> bytes:
    """Return what comes until the other end hangs up."""
    connection.settimeout(WITHIN_S)
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(100):
            data += part
    return data


def test_the_secret_does_not_travel_and_what_was_heard_is_of_no_use() -> None:
    """Between a replica and its driver a third hears all; it can be neither of them afterwards."""
    listener, result = accept(1)
    heard: list[bytes] = []
    all_heard = threading.Event()

    def between(caller: socket.socket) -> None:
        with socket.create_connection(listener.address) as called:
            for count, caller_speaks in ((52, True), (64, False), (32, True)):
                source, target = (caller, called) if caller_speaks else (called, caller)
                heard.append(source.recv(count, socket.MSG_WAITALL))
                target.sendall(heard[-1])
            all_heard.set()
            called.recv(1)

    near, far = socket.socketpair()
    thread = threading.Thread(target=between, args=(far,))
    thread.start()
    introduce(near, SECRET, Claim(0, STEPS), WITHIN_S)
    assert all_heard.wait(WITHIN_S)
    hello, challenge, proof = heard
    assert SECRET not in b"".join(heard)
    with socket.create_connection(listener.address) as again:
        again.sendall(hello + proof)
        assert drained(again) != challenge  # nothing, or another one
    other = Claim(0, WATCH)
    with socket.create_connection(listener.address) as forger:
        forger.sendall(hello[:4] + other.packed() + hello[20:])
        # the driver's own proof, sent back
        forger.sendall(forger.recv(64, socket.MSG_WAITALL)[32:])
        assert drained(forger) == b""
    here, there = socket.socketpair()
    there.sendall(challenge)
    with here, there, pytest.raises(Refused):  # nor can it be the driver for another replica
        introduce(here, SECRET, other, WITHIN_S)
    with connect(*listener.address, SECRET, 0, WATCH):
        assert len(result()) == 1
    near.close()
    far.close()
    thread.join()


def test_many_strangers_do_not_pile_up() -> None:
    listener, result = accept(1)
    strangers = []
    for _ in range(80):
        strangers.append(socket.create_connection(listener.address))
    assert ended(strangers[0])
    mine = both(listener.address, SECRET, 0)
    assert len(result()) == 1
    for one in (*strangers, *mine):
        one.close()


def test_missing_replicas_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()  # it is never late by itself
    monkeypatch.setattr(deadline, "time", clock)
    listener, result = accept(3, within=5.0)
    ends = both(listener.address, SECRET, 1)
    assert eventually(lambda: len(listener._connections) == 2)
    clock.goes = True
    error = result()
    assert isinstance(error, CollectiveError)
    assert "replicas [0, 2] did not connect within 5 s" in str(error)
    for one in ends:
        assert ended(one)
        one.close()


def test_a_replica_that_cannot_come_ends_the_wait() -> None:
    def check() -> None:
        raise CollectiveError("replica 0 fell over")

    _, result = accept(2, within=30, check=check)
    assert "fell over" in str(result())


@pytest.mark.parametrize("lacking", ["create", "populate"])  # a segment, a slot of it
def test_without_room_in_shared_memory_the_socket_does_it(
    start: Start, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise CollectiveError("/dev/shm has no room")

    channels = start(2, near=True)
    monkeypatch.setattr(f"rowlock.cluster.channel.feed_buffer.Segment.{lacking}", full)
    assert not any([stepped(channels, i, np.arange(9.0)) for i in range(4)])


def test_an_interrupt_while_messages_are_sent_leaves_no_replica_without_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recovery that is begun again forgets what is under way: half of a group would wait for the others."""
    pairs = [socket.socketpair() for _ in range(3)]
    channels = Channels(
        lambda rank: CollectiveError(f"{rank}"), lambda ranks, s: CollectiveError("late")
    )
    channels.use(
        {rank: ReplicaConnection(ours, near=False) for rank, (ours, _) in enumerate(pairs)}
    )
    push, calls = Outgoing.push, []

    def interrupted(outgoing: Outgoing, sock: socket.socket) -> bool:
        calls.append(sock)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return push(outgoing, sock)

    monkeypatch.setattr(Outgoing, "push", interrupted)
    with pytest.raises(KeyboardInterrupt):
        channels.start({rank: Message("regroup", {}) for rank in range(3)}, WITHIN_S)
    for ours, theirs in pairs:
        theirs.settimeout(WITHIN_S)
        assert Incoming().pull(theirs) is not None
        ours.close(), theirs.close()


def test_large_feeds_are_written_by_several_threads(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_replicas, "_MUCH", 0)
    monkeypatch.setattr(near_replicas, "_CORES", 1)
    channels = start(2, near=True)
    thread_names: set[str] = set()
    copyto = np.copyto

    def noted(place: np.ndarray, array: np.ndarray) -> None:
        thread_names.add(threading.current_thread().name)
        copyto(place, array)

    monkeypatch.setattr("numpy.copyto", noted)
    feed = np.arange(300_000, dtype="float32")
    assert [stepped(channels, i, feed) for i in range(5)][3:] == [True, True]
    assert all(name.startswith("rowlock-feeds") for name in thread_names) and thread_names
    with pytest.raises(InvalidType, match="cannot be sent"):
        exchange(channels, [step(7, feed), step(7, np.array([object()]))], WITHIN_S)
    assert stepped(channels, 8, feed)
