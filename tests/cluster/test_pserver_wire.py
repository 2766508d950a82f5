"""How messages reach a parameter server: sockets between threads and processes, without Ray."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import queue
import re
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rowlock import fluid
from rowlock.cluster.channel.frame import head_of
from rowlock.cluster.primitives.doorway import SECRET_BYTES
from rowlock.cluster.primitives.shm import Segment
from rowlock.cluster.primitives.wire import STEP, frame_head
from rowlock.cluster.pserver.address import Address
from rowlock.cluster.pserver.codec import framed, record_of
from rowlock.cluster.pserver.connection import CALLS, open_socket
from rowlock.cluster.pserver.message_server import MessageServer
from rowlock.cluster.pserver.segments import BESIDE, publish
from rowlock.cluster.pserver.wire import Directory, SocketWire
from rowlock.executor.rpc.messages import (
    Arrays,
    Ask,
    Barrier,
    Goodbye,
    Hello,
    Lookup,
    Pull,
    Push,
    Save,
    Taken,
    Together,
    Welcome,
)
from rowlock.executor.servers.server import ParameterServer
from rowlock.strategies import log
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.endpoints import split_endpoint
from rowlock.strategies.errors import (
    InvalidState,
    InvalidType,
    InvalidValue,
    ProtocolError,
    ServerLost,
    StateMismatch,
)
from tests.programs import own_programs

from ..conftest import eventually, freeze
from .servers import Summing, expected, gradient, initial, size_of, step_of, train

END = "127.0.0.1:6174"
_fork = multiprocessing.get_context("fork")


class Known(Directory):
    """Servers of this process, by endpoint."""

    def __init__(self) -> None:
        self.addresses: dict[str, Address] = {}

    def find(self, endpoint: str, within: float) -> Address | None:
        return self.addresses.get(endpoint)

    def others(self) -> list[str]:
        return sorted(self.addresses)


class Servers:
    """Starts servers and wires, and ends them."""

    def __init__(self) -> None:
        self.directory = Known()
        self.running: dict[str, MessageServer] = {}
        self.wires: list[SocketWire] = []

    def serve(
        self,
        service: Any,
        endpoint: str = END,
        restores: bool = False,
        near: bool = True,
        **how: Any,
    ) -> MessageServer:
        before = self.directory.addresses.get(endpoint)
        generation = before.generation + 1 if before else 1
        secret = secrets.token_bytes(SECRET_BYTES)
        server = MessageServer(service, "127.0.0.1", secret, generation, **how)
        server.start()
        self.running[endpoint] = server
        self.directory.addresses[endpoint] = Address(
            host="127.0.0.1",
            port=server.port,
            local_name=server.local_name if near else "",
            secret=secret,
            generation=generation,
            restores=restores,
        )
        return server

    def wire(self) -> SocketWire:
        self.wires.append(SocketWire(self.directory))
        return self.wires[-1]


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    for wire in servers.wires:
        wire.close()
    for server in servers.running.values():
        server.close()


@pytest.mark.parametrize(
    "record",
    [
        Hello(1, 2, "d"),
        Welcome(3),
        Barrier(0, 4, "send"),
        Pull(1, 2, ("a", "b")),
        Save("/a", ("x",)),
        Goodbye(1),
        Ask(),
        Taken(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_travel_as_they_are(record: Any) -> None:
    assert record_of(framed(record)) == record


def test_arrays_travel_beside_the_head() -> None:
    rows = np.array([3, 1])
    values = np.ones((2, 4), "f4")
    push = record_of(framed(Together((Push(0, 1, "w", values, rows, 9), Barrier(0, 1, "send")))))
    assert isinstance(push, Together) and isinstance(push.messages[0], Push)
    assert push.messages[0].values is values and push.messages[0].rows is rows
    assert push.messages[0].height == 9 and push.messages[1] == Barrier(0, 1, "send")
    arrays = record_of(framed(Arrays({"a": values})))
    assert isinstance(arrays, Arrays) and arrays.by_name["a"] is values


@pytest.mark.parametrize(
    ("kind", "head", "arrays"),
    [
        ("Push", {"trainer": -1, "number": 1, "name": "w", "height": 0}, [np.zeros(1)]),
        ("Push", {"trainer": 0, "number": 1, "name": 7, "height": 0}, [np.zeros(1)]),
        ("Push", {"trainer": 0, "number": 1, "name": "w", "height": 0}, []),
        ("Push", {"trainer": 0, "number": 1, "name": "w", "height": 4}, [np.zeros(3), np.zeros(3)]),
        ("Lookup", {"trainer": 0, "number": 1, "table": "t"}, [np.zeros(3, "f4")]),
        ("Pull", {"trainer": 0, "number": 1, "names": "w"}, []),
        ("Hello", {"trainer": True, "trainers": 1, "digest": ""}, []),
        ("Hello", {}, []),
        ("Goodbye", {"trainer": 0}, [np.zeros(1)]),
        ("Together", {"parts": [["Together", {"parts": []}, 0]]}, []),
        ("Together", {"parts": []}, []),
        ("exec", {"text": "1"}, []),
    ],
)
def test_what_is_no_message_is_refused(kind: str, head: Any, arrays: Any) -> None:
    from rowlock.executor.replica.message import Message

    with pytest.raises(ProtocolError, match="no message between trainers and servers"):
        record_of(Message(kind, head, arrays))


def test_threads_train_on_two_servers(servers: Servers) -> None:
    parts = {END: ["w", "large"], "127.0.0.1:6175": ["b"]}
    services = {endpoint: Summing(2, initial(names)) for endpoint, names in parts.items()}
    for endpoint, service in services.items():
        servers.serve(service, endpoint)
    where = {name: endpoint for endpoint, names in parts.items() for name in names}
    results: dict[int, Any] = {}
    wire = servers.wire()  # one for both
    threads = [
        threading.Thread(target=lambda t=t: results.update({t: train(wire, where, t, 2, 5)}))
        for t in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for values in results.values():
        for name, value in expected(where, 2, 5).items():
            np.testing.assert_array_equal(values[name], value)
    assert all(service.wait(10) for service in services.values())


def _no_memory(*_: Any) -> int:
    raise OSError("no memory can be shared")


@pytest.mark.parametrize("way", ["shared memory", "no shared memory", "another host"])
def test_large_arrays_are_put_into_the_memory_that_the_service_names(
    servers: Servers, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Summing(1, initial(["large", "w"]))
    segment = publish(service.values, ["large"])
    servers.serve(service, near=way != "another host", published=segment)
    if way == "no shared memory":
        monkeypatch.setattr(os, "memfd_create", _no_memory)
    wire = servers.wire()
    wire.call(END, Hello(0, 1, "same"), 60)
    answer = wire.call(END, Pull(0, 0, ("large",)), 60)
    assert isinstance(answer, Arrays)
    service.values["large"][0] = 5.0
    assert answer.by_name["large"][0, 0] == (0.0 if way == "another host" else 5.0)
    assert answer.by_name["large"].flags.writeable == (way == "another host")
    service.values["large"][0] = 0.0
    for number in (1, 2):
        pushes = [Push(0, number, name, gradient(name, 0, number)) for name in ("large", "w")]
        wire.call(END, Together((*pushes, Barrier(0, number, "send"))), 60)
    assert service.direct == 4
    answer = wire.call(END, Pull(0, 2, ("large",)), 60)
    assert isinstance(answer, Arrays)
    np.testing.assert_array_equal(
        answer.by_name["large"], expected(["large"], 1, 2)["large"], strict=True
    )


def _descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_shared_memory_leaves_no_descriptor_open(servers: Servers) -> None:
    before = _descriptors()
    service = Summing(1, initial(["large", "large2"]))
    segment = publish(service.values, ["large"])
    assert segment is not None
    server = servers.serve(service, published=segment)
    wire = servers.wire()
    wire.call(END, Hello(0, 1, "same"), 60)
    for names in (["large"], ["large", "large2"]):  # the second does not fit where the first was
        pushes = [Push(0, 1, name, gradient(name, 0, 1)) for name in names]
        wire.call(END, Together(tuple(pushes)), 60)
        wire.call(END, Pull(0, 0, ("large",)), 60)
    wire.close()
    server.close()
    del servers.running[END], servers.wires[:], wire, server
    service.values.clear()
    service.places.clear()
    segment.close()
    assert eventually(lambda: _descriptors() <= before)


@pytest.mark.parametrize(
    "wrong", ["nothing", "a pipe", "memory that may get smaller", "a place behind its end", "odd"]
)
def test_who_tells_of_memory_that_is_not_there_is_hung_up_on(servers: Servers, wrong: str) -> None:
    service = Summing(1, initial(["large"]))
    servers.serve(service)
    sock = open_socket(servers.directory.addresses[END], 7, CALLS, 60)
    array = np.zeros(size_of("large"), "f4")
    text = head_of(framed(Push(0, 1, "large", array)), [array])
    place = {"a place behind its end": 1 << 17, "odd": 4}.get(wrong, 0)
    frame = frame_head(STEP, 1, text, BESIDE, 8) + place.to_bytes(8, "little")
    files: list[int] = []
    if wrong == "a pipe":
        files += os.pipe()
    elif wrong == "memory that may get smaller":
        files.append(os.memfd_create("open"))
        os.ftruncate(files[0], 1 << 18)
    elif wrong != "nothing":
        files.append(Segment.unnamed(1 << 18 if wrong == "odd" else 1 << 17).descriptor)
    socket.send_fds(sock, [frame], files[:1])
    for file in files:
        os.close(file)
    sock.settimeout(60)
    with contextlib.suppress(ConnectionError):
        assert sock.recv(1) == b""
    sock.close()
    assert servers.wire().call(END, Hello(0, 1, "same"), 60) == Welcome(0)
    assert not service.received


def test_rows(servers: Servers) -> None:
    servers.serve(Summing(1, initial(["large"])))
    wire = servers.wire()
    wire.call(END, Hello(0, 1, "same"), 60)
    rows = np.array([5, 7, 5])
    values = np.arange(300, dtype="f4").reshape(3, 100)
    wire.call(END, Push(0, 1, "large", values, rows, 300), 60)
    wire.call(END, Barrier(0, 1, "send"), 60)
    answer = wire.call(END, Lookup(0, 1, "large", np.array([5, 7, 8])), 60)
    assert isinstance(answer, Arrays)
    np.testing.assert_array_equal(
        answer.by_name["large"], [-values[0] - values[2], -values[1], np.zeros(100)]
    )


def test_an_error_of_the_server_is_raised_at_the_trainer(servers: Servers) -> None:
    servers.serve(Summing(1, {}))
    with pytest.raises(StateMismatch, match="another program"):
        servers.wire().call(END, Hello(0, 1, "other"), 60)
    servers.wires[0].call(END, Hello(0, 1, "same"), 60)
    with pytest.raises(Exception, match="the server failed: KeyError"):
        servers.wires[0].call(END, Pull(0, 0, ("nothing",)), 60)


def test_a_server_that_starts_late_is_waited_for(servers: Servers) -> None:
    wire = servers.wire()
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(wire.call(END, Hello(0, 1, "same"), 60))
    )
    asking.start()
    asking.join(0.3)
    assert asking.is_alive()
    servers.serve(Summing(1, {}))
    asking.join(60)
    assert answers == [Welcome(0)]


def test_one_that_never_comes_is_named(servers: Servers) -> None:
    servers.serve(Summing(1, {}), "10.0.0.9:1")
    with pytest.raises(ServerLost, match=r"no parameter server 127.0.0.1:6174 .*10.0.0.9:1"):
        servers.wire().call(END, Hello(0, 1, "same"), 0.2)


@pytest.mark.parametrize(
    ("endpoint", "error"),
    [
        ("127.0.0.1", InvalidValue),
        ("127.0.0.1:", InvalidValue),
        ("127.0.0.1:0", InvalidValue),
        ("127.0.0.1:65536", InvalidValue),
        ("127.0.0.1:6174,127.0.0.1:6175", InvalidValue),
        ("300.0.0.1:6174", InvalidValue),
        (":6174", InvalidValue),
        ("a b:1", InvalidValue),
        (6174, InvalidType),
    ],
)
def test_wrong_endpoints_are_refused(servers: Servers, endpoint: Any, error: Any) -> None:
    with pytest.raises(error, match="endpoint"):
        servers.wire().call(endpoint, Ask(), 60)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:6174", "host-1.example:80", "[::1]:6174"])
def test_endpoints(endpoint: str) -> None:
    host, port = split_endpoint(endpoint)
    assert f"{host}:{port}" == endpoint


def test_a_server_that_ended_without_snapshots_is_lost_at_once(servers: Servers) -> None:
    server = servers.serve(Summing(1, {}))
    wire = servers.wire()
    wire.call(END, Hello(0, 1, "same"), 60)
    server.close()
    del servers.directory.addresses[END]
    with pytest.raises(ServerLost, match=r"no snapshots were taken.*server_snapshot_folder"):
        wire.call(END, Barrier(0, 1, "send"), 600)


@pytest.mark.parametrize("joins", [False, True])
def test_what_a_restored_server_forgot_is_sent_again(servers: Servers, joins: bool) -> None:
    """The first that it hears may be the hello of the trainer's next program."""
    first = Summing(1, initial(["w", "large"]))
    where = dict.fromkeys(["w", "large"], END)
    server = servers.serve(first, restores=True)
    wire = servers.wire()
    wire.call(END, Hello(0, 1, "same"), 60)
    values: dict[str, np.ndarray] = {}
    for step in range(1, 6):
        if step == 3:
            snapshot = first.snapshot()  # of step 2
        step_of(wire, where, 0, step, values)
    server.close()
    second = Summing(1, {})
    second.restore(snapshot)
    servers.serve(second, restores=True)
    if joins:
        wire.call(END, Hello(0, 1, "same"), 60)
    for step in range(6, 8):
        step_of(wire, where, 0, step, values)
    for name, value in expected(where, 1, 7).items():
        np.testing.assert_array_equal(values[name], value)
    assert min(number for _, number, _ in second.received) == 3


def test_what_a_snapshot_has_is_kept_no_longer(servers: Servers) -> None:
    service = Summing(1, initial(["w"]))
    server = servers.serve(service, restores=True, answered=lambda record, answer: 4)
    wire = servers.wire()
    wire.call(END, Hello(0, 1, "same"), 60)
    values: dict[str, np.ndarray] = {}
    for step in range(1, 6):
        step_of(wire, {"w": END}, 0, step, values)
    server.close()
    again = Summing(1, initial(["w"]))  # from its beginning: further back than the trainer's memory
    servers.serve(again, restores=True)
    wire.call(END, Ask(), 60)
    with contextlib.suppress(ServerLost):
        wire.call(END, Push(0, 6, "w", gradient("w", 0, 6)), 5)
    assert min((number for _, number, _ in again.received), default=5) == 5


def test_a_closed_wire_says_so(servers: Servers) -> None:
    wire = servers.wire()
    wire.close()
    with pytest.raises(InvalidState, match="hung up"):
        wire.call(END, Ask(), 1)


def test_closing_ends_the_calls_that_wait(servers: Servers) -> None:
    service = Summing(2, initial(["w"]))
    servers.serve(service)
    wire, errors = servers.wire(), queue.Queue[BaseException]()

    def call(endpoint: str, message: Any) -> None:
        try:
            wire.call(endpoint, message, 300)
        except InvalidState as error:
            errors.put(error)

    wire.call(END, Hello(0, 2, "same"), 60)
    calls = [(END, Pull(0, 1, ("w",))), ("127.0.0.1:6175", Ask())]  # none comes; nobody is there
    threads = [threading.Thread(target=call, args=each, daemon=True) for each in calls]
    for thread in threads:
        thread.start()
    eventually(lambda: wire._links[END]._asking and len(wire._links) == 2)
    wire.close()
    assert all("closed meanwhile" in str(errors.get(timeout=60)) for _ in calls)
    service.lost(1, "the test is over")


def test_who_waits_for_a_server_says_so(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log, "REPORT_S", 0.0)
    with caplog.at_level("WARNING", "rowlock"), pytest.raises(ServerLost):
        servers.wire().call(END, Ask(), 0.1)
    assert any(f"waiting for the parameter server {END}" in line for line in caplog.messages)


# -- trainers that die -------------------------------------------------------------------------------


def _trainer(directory: Known, ready: Any) -> None:
    wire = SocketWire(directory)
    wire.call(END, Hello(1, 2, "same"), 60)
    ready.set()
    signal.pause()


def _killed(servers: Servers, how: signal.Signals) -> Any:
    ready = _fork.Event()
    process = _fork.Process(target=_trainer, args=(servers.directory, ready), daemon=True)
    process.start()
    assert ready.wait(60) and process.pid
    os.kill(process.pid, how)
    return process


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_trainer_that_died_or_froze_is_lost(servers: Servers, how: signal.Signals) -> None:
    service = Summing(2, initial(["w"]))
    servers.serve(service, lost_after_s=4.0)
    process = _killed(servers, how)
    assert eventually(lambda: 1 in service.lost_trainers)
    said = r"ended without exe.close\(\)" if how is signal.SIGKILL else "frozen"
    assert re.search(said, service.lost_trainers[1])
    assert service.lost_trainers[1].endswith("(ClusterConfig.trainer_deadline_s).")  # a sentence
    process.kill()
    process.join(60)


def test_a_trainer_that_comes_again_in_time_is_not_lost(servers: Servers) -> None:
    service = Summing(2, initial(["w"]))
    server = servers.serve(service, lost_after_s=600.0)
    process = _killed(servers, signal.SIGKILL)
    process.join(60)
    servers.wire().call(END, Hello(1, 2, "same"), 60)  # a process of the same number
    assert sorted(map(len, (one.trainers for one in server._callers.values()))) == [0, 1]
    for caller in server._callers.values():  # as if the deadline of the old one were over
        caller.heard -= 0.0 if caller.trainers else 601.0
    assert eventually(lambda: len(server._callers) == 1)
    assert not service.lost_trainers


def test_a_second_process_with_the_number_of_one_that_lives_is_refused(servers: Servers) -> None:
    """Its gradients would be taken for repeated ones, and left out."""
    servers.serve(Summing(2, initial(["w"])))
    first, second = servers.wire(), servers.wire()
    second._caller ^= 1 << 20  # as of another process
    first.call(END, Hello(0, 2, "same"), 60)
    with pytest.raises(InvalidValue, match=r"two processes are trainer 0.*PADDLE_TRAINER_ID"):
        second.call(END, Hello(0, 2, "same"), 60)
    assert isinstance(second.call(END, Hello(1, 2, "same"), 60), Welcome)
    servers.wire().call(END, Hello(0, 2, "same"), 60)  # of the same process
    first.close()
    servers.wires[-1].close()
    third = servers.wire()
    third._caller ^= 1 << 20
    assert isinstance(third.call(END, Hello(0, 2, "same"), 60), Welcome)


def test_a_process_takes_the_place_of_one_that_froze(servers: Servers) -> None:
    servers.serve(Summing(2, initial(["w"])), lost_after_s=600.0)
    process = _killed(servers, signal.SIGSTOP)
    assert isinstance(servers.wire().call(END, Hello(1, 2, "same"), 60), Welcome)
    process.kill()
    process.join(60)


def test_one_that_said_goodbye_is_not_lost(servers: Servers) -> None:
    service = Summing(2, initial(["w"]))
    server = servers.serve(service, lost_after_s=600.0)
    wire = servers.wire()
    wire.call(END, Hello(0, 2, "same"), 60)
    wire.call(END, Goodbye(0), 60)
    wire.close()
    for caller in server._callers.values():  # as if the deadline were over
        caller.heard -= 601.0
    assert eventually(lambda: not server._callers)
    assert not service.lost_trainers


def _served(endpoint: str) -> ParameterServer:
    scope = fluid.Scope()
    with own_programs() as (main, startup):
        top = fluid.layers.fc(fluid.data("x", [None, 200]), 200, bias_attr=False)
        fluid.optimizer.SGD(1.0).minimize(fluid.layers.mean(top))
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, main, endpoint, 2, startup_program=startup)
    program, initial = transpiler.get_pserver_programs(endpoint)
    fluid.Executor().run(initial, scope=scope)
    return ParameterServer(program, scope, ClusterConfig(lost_trainer="continue"))


def _pushing(directory: Known, message: Together) -> None:
    wire = SocketWire(directory)
    wire.call(END, Hello(0, 2, ""), 60)
    wire.call(END, message, 60)


def test_what_a_trainer_pushed_outlives_it(servers: Servers) -> None:
    service = _served(END)
    servers.serve(service)
    (gradient,) = service.state.parts.gradients.values()
    before = service.state.updates.memory(gradient.param).copy()
    steps = [
        Together(
            (
                Push(trainer, 1, name, np.full(before.shape, value, "f4")),
                Barrier(trainer, 1, "send"),
                Pull(trainer, 1, (gradient.param,)),
            )
        )
        for trainer, (name, value) in enumerate(zip(gradient.names, (1.0, 3.0), strict=True))
    ]
    process = _fork.Process(target=_pushing, args=(servers.directory, steps[0]), daemon=True)
    process.start()
    assert eventually(lambda: service.state.by_id[0].arrived)
    process.kill()
    process.join(60)
    wire = servers.wire()
    wire.call(END, Hello(1, 2, ""), 60)
    answer = wire.call(END, steps[1], 60)
    assert isinstance(answer, Arrays)
    np.testing.assert_allclose(answer.by_name[gradient.param], before - 2.0, 1e-5, 1e-5)


# -- servers that do not answer ----------------------------------------------------------------------


def test_a_server_that_waits_for_others_is_told_from_a_frozen_one(servers: Servers) -> None:
    servers.serve(Summing(2, initial(["w"])))
    wire = servers.wire()
    wire.call(END, Hello(0, 2, "same"), 60)
    with pytest.raises(ServerLost, match="is alive, but did not answer within 1 s"):
        wire.call(END, Pull(0, 1, ("w",)), 1.0)


def _frozen(directory: Known, pipe: Any) -> None:
    servers = Servers()
    servers.serve(Summing(2, initial(["w"])))
    pipe.send(servers.directory.addresses[END])
    signal.pause()


def test_a_frozen_server_is_named_at_the_deadline(servers: Servers) -> None:
    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=_frozen, args=(servers.directory, theirs), daemon=True)
    process.start()
    servers.directory.addresses[END] = ours.recv()
    wire = servers.wire()
    wire.call(END, Hello(0, 2, "same"), 60)
    assert process.pid
    freeze(process.pid)
    with pytest.raises(ServerLost, match=f"{END} did not answer within 2 s.*frozen, or cut off"):
        wire.call(END, Barrier(0, 1, "send"), 2.0)
    process.kill()
    process.join(60)


# -- strangers ---------------------------------------------------------------------------------------


def test_strangers_get_no_answer(servers: Servers) -> None:
    server = servers.serve(Summing(1, {}))
    with socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.settimeout(60)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(200))
        with contextlib.suppress(ConnectionError):
            assert stranger.recv(100) == b""
    known = servers.directory.addresses[END]
    wrong = known._replace(secret=bytes(SECRET_BYTES))
    servers.directory.addresses["1.1.1.1:1"] = wrong
    with pytest.raises(ServerLost):
        servers.wire().call("1.1.1.1:1", Hello(0, 1, "same"), 0.5)
