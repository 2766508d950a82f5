"""Hosts on one machine: network namespaces joined by a switch, one Ray node in each, to cut, slow and kill.

Needs root and ``ip``. Namespaces are named after this process, so several users of the machine do not meet,
and what a killed test run left is cleared by the next.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PORT = 6390
DASHBOARD = "http://127.0.0.1:8265"  # as host 0 sees it
_COMMAND_S = 60.0
_START_S = 200.0
_END_S = 60.0
_PREFIX = "rowlock-test"
_FOLDER = "rl"  # Ray's sockets lie in it, and their paths may not be long
_counter = itertools.count()
# A killed node is known dead in about 1.5 s, one that is cut off only after 30 s: tests restore it before.
_HEALTH = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "3",
}


class CannotMakeHosts(Exception):
    """This machine or user cannot make network namespaces; the text says why."""


def ip(*arguments: str) -> str:
    """Run ``ip``, return what it prints; RuntimeError with its complaint if it fails."""
    return _command("ip", *arguments)


def _command(*command: str) -> str:
    process = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {process.stderr.strip()}")
    return process.stdout


class Driver:
    """A script that runs inside a host, talked to by lines.

    What it says is read from its standard output alone: Ray prints parts of lines to the other at any moment.
    ``others``: drivers that it may wait for, whose output is shown, too, where it does not say what it should.
    """

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str],
        name: str = "driver",
        others: Sequence[Driver] = (),
    ) -> None:
        self.name, self._others = name, others
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._output: list[str] = []
        for read in (self._read_lines, self._read_complaints):
            threading.Thread(target=read, daemon=True).start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._output.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def _read_complaints(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._output.append(line)

    @property
    def output(self) -> str:
        """All that it has printed so far."""
        return "".join(self._output)

    def until(self, start: str, seconds: float) -> str:
        """Return the rest of the first line that starts so; AssertionError with the output if none comes."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"no {start!r} within {seconds} s:\n{self._outputs()}"
                ) from None
            if line is None:
                raise AssertionError(f"ended without {start!r}:\n{self._outputs()}")
            if line.startswith(start):
                return line[len(start) :].strip()

    def _outputs(self) -> str:
        """Return the end of what it and the others printed."""
        others = [one for one in self._others if one is not self]
        return "\n".join(
            f"-- {one.name} ({one.state}):\n{one.output[-3000:]}" for one in (self, *others)
        )

    @property
    def state(self) -> str:
        """Whether it runs, or its exit status."""
        status = self._process.poll()
        return "running" if status is None else f"ended with {status}"

    def say(self, line: str) -> None:
        """Send a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def close_input(self) -> None:
        """Let it read that no more lines come."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self, seconds: float = _END_S) -> int:
        """Return its exit status; it is killed if it takes longer than this."""
        try:
            return self._process.wait(seconds)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Hosts:
    """``addresses[i]`` is the address of host i. Host 0 is the head of the Ray cluster."""

    def __init__(
        self,
        count: int,
        cpus: int,
        labels: Mapping[int, str],
        dashboard: bool,
        environment: Mapping[str, str],
    ) -> None:
        self.count, self.cpus, self.labels, self.dashboard = count, cpus, labels, dashboard
        self.addresses = [f"10.9.0.{i + 1}" for i in range(count)]
        own = f"{_PREFIX}-{os.getpid()}-{next(_counter)}"
        self._names = [f"{own}-h{i}" for i in range(count)]
        self._switch = f"{own}-switch"
        self._folder = tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir="/tmp")
        self._drivers: list[Driver] = []
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            **_HEALTH,
            "RAY_worker_niceness": "0",  # as in a Ray that Rowlock starts: at 15, busy hosts starve actors
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            **environment,
        }

    def wire(self) -> None:
        """Make the namespaces, and a cable from each host to the switch.

        Raises:
            CannotMakeHosts: the machine does not allow it.
        """
        try:
            ip("netns", "add", self._switch)
            ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
            ip("-n", self._switch, "link", "set", "br0", "up")
            for i, name in enumerate(self._names):
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
                to_switch = ["type", "veth", "peer", "name", f"p{i}", "netns", self._switch]
                ip("link", "add", "v0", "netns", name, *to_switch)
                ip("-n", self._switch, "link", "set", f"p{i}", "master", "br0", "up")
                ip("-n", name, "addr", "add", f"{self.addresses[i]}/24", "dev", "v0")
                ip("-n", name, "link", "set", "v0", "up")
        except RuntimeError as error:
            raise CannotMakeHosts(str(error)) from error

    def start_node(self, host: int) -> None:
        """Start the Ray node of a host; the head's first."""
        board = f"--include-dashboard={str(self.dashboard).lower()}"
        head = ["--head", f"--port={PORT}", board]
        joining = [f"--address={self.addresses[0]}:{PORT}"]
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start"),
            *(joining if host else head),
            f"--node-ip-address={self.addresses[host]}",
            # Of its own: a node that starts removes unpacked working folders, in which others work.
            f"--temp-dir={self._folder}/{host}",
            f"--num-cpus={self.cpus}",
            "--object-store-memory=80000000",
            "--disable-usage-stats",
            # Processes of no use to tests: what scales clusters, and what shows drivers the logs of workers.
            *("--no-monitor", "--include-log-monitor=false"),
            *([f"--labels={self.labels[host]}"] if host in self.labels else []),
        ]
        for tries_left in (2, 1, 0):
            with tempfile.TemporaryFile("w+") as log:  # daemons keep it open: a pipe would not end
                process = subprocess.run(
                    ["ip", "netns", "exec", self._names[host], *command],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=_START_S,
                )
                log.seek(0)
                output = log.read()
            # Ray gives a node half a minute to start, which may be too little on a busy host.
            late = process.returncode and "timed out during startup" in output
            if not (late and tries_left):
                break
            _kill_all(self._names[host])
        assert process.returncode == 0, f"host {host}: {output[-3000:]}"

    def driver(self, host: int, *arguments: str, **environment: str) -> Driver:
        """Start Python with these arguments inside a host, told where the Ray cluster is."""
        command = ["ip", "netns", "exec", self._names[host], sys.executable, "-u", *arguments]
        address = {"RAY_ADDRESS": f"{self.addresses[0]}:{PORT}"}
        own = {**self._environment, **address, **environment}
        name = f"driver {len(self._drivers)} on host {host}"
        self._drivers.append(Driver(command, own, name, self._drivers))
        return self._drivers[-1]

    def cut(self, host: int) -> None:
        """Unplug a host's cable at the switch: packets vanish, nobody is told."""
        ip("-n", self._switch, "link", "set", f"p{host}", "down")

    def restore(self, host: int) -> None:
        """Plug it in again."""
        ip("-n", self._switch, "link", "set", f"p{host}", "up")

    def slow(self, host: int, rate: str = "200mbit", delay: str = "1ms") -> bool:
        """Slow a host's cable down both ways; False if this kernel only limits the rate, without the delay."""
        ends = [(self._names[host], "v0"), (self._switch, f"p{host}")]
        for how in (["netem", "rate", rate, "delay", delay], _bucket(rate)):
            try:
                for name, device in ends:
                    shape = ["tc", "qdisc", "replace", "dev", device, "root", *how]
                    ip("netns", "exec", name, *shape)
                return how[0] == "netem"
            except RuntimeError as error:
                refused = error
        raise refused

    def full_speed(self, host: int) -> None:
        """Undo :meth:`slow`."""
        for name, device in [(self._names[host], "v0"), (self._switch, f"p{host}")]:
            ip("netns", "exec", name, "tc", "qdisc", "del", "dev", device, "root")

    def sent(self, host: int) -> int:
        """Return the bytes that a host has sent to the others so far."""
        (link,) = json.loads(ip("-n", self._names[host], "-s", "-j", "link", "show", "v0"))
        return int(link["stats64"]["tx"]["bytes"])

    @property
    def names(self) -> list[str]:
        """The namespaces: one a host, and the switch."""
        return [*self._names, self._switch]

    def processes(self, host: int) -> list[int]:
        """Return the ids of all processes of a host."""
        return [int(pid) for pid in ip("netns", "pids", self._names[host]).split()]

    def process(self, host: int, command: str) -> int:
        """Return the id of a host's process whose command line begins so."""
        (pid,) = (
            pid
            for pid in self.processes(host)
            if Path(f"/proc/{pid}/cmdline").read_text().startswith(command)
        )
        return pid

    def exists(self) -> bool:
        """Tell whether anything of it is there: a namespace, or its folder."""
        return bool(set(self.names) & set(namespaces())) or os.path.exists(self._folder)

    def kill_node(self, host: int) -> None:
        """SIGKILL every process of a host, drivers included, and wait until they are gone."""
        _kill_all(self._names[host])

    def close(self) -> None:
        """End everything; safe to call at any stage of the making."""
        for driver in self._drivers:
            driver.kill()
        _clear(self.names)
        shutil.rmtree(self._folder, ignore_errors=True)


def _bucket(rate: str) -> list[str]:
    return ["tbf", "rate", rate, "burst", "64kb", "latency", "50ms"]


def _kill_all(name: str) -> None:
    deadline = time.monotonic() + _END_S
    while pids := ip("netns", "pids", name).split():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        assert time.monotonic() < deadline, f"{name}: processes {pids} do not end"
        time.sleep(0.02)


def _clear(names: list[str]) -> None:
    there = namespaces()
    for name in names:
        if name in there:
            try:
                _kill_all(name)
                ip("netns", "del", name)  # its cables go with it
            except RuntimeError:  # another test process clears the same leftovers
                if name in namespaces():
                    raise


def namespaces() -> list[str]:
    """Return the names of all network namespaces of the machine."""
    return [line.split()[0] for line in ip("netns", "list").splitlines() if line.strip()]


def _clear_leftovers() -> None:
    """Remove what test runs that were killed have left, told by the process it is named after."""
    mine = [name for name in namespaces() if name.startswith(f"{_PREFIX}-")]
    _clear([name for name in mine if _gone(name.split("-")[2])])
    for folder in Path("/tmp").glob(f"{_FOLDER}[0-9]*-*"):
        if _gone(folder.name[len(_FOLDER) :].split("-")[0]):
            shutil.rmtree(folder, ignore_errors=True)


def _gone(pid: str) -> bool:
    return pid.isdecimal() and not os.path.exists(f"/proc/{pid}")


@contextlib.contextmanager
def hosts(
    count: int = 2,
    cpus: int = 1,
    labels: Mapping[int, str] | None = None,
    ray: bool = True,
    dashboard: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Hosts]:
    """Make hosts, by default with a Ray node of ``cpus`` CPUs each, and take all away at the end.

    ``labels``: Ray labels ("rack=b") by host. ``ray``: False for the network alone. ``dashboard``: with the
    job server, which needs ray[default]. ``environment``: variables that nodes and drivers get, too.

    Raises:
        CannotMakeHosts: not root, no ``ip`` here, or the kernel refuses; the text says which.
    """
    if os.geteuid() != 0:
        raise CannotMakeHosts("network namespaces need root")
    if shutil.which("ip") is None:
        raise CannotMakeHosts("there is no ip command (iproute2)")
    _clear_leftovers()
    network = Hosts(count, cpus, labels or {}, dashboard, environment or {})
    try:
        network.wire()
        for host in range(count if ray else 0):
            network.start_node(host)
        yield network
    finally:
        network.close()
