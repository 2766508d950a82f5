"""A local Ray for processes that were started by hand: the first starts it, and it ends after the last.

Each holds a lock on a file for as long as it lives, however it ends. A keeper, a process of its own and no
child of any terminal, runs Ray until it gets that lock for itself: this module, run by ``python -m``.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import IO

from ...executor.host.deadline import Deadline
from ...strategies.errors import CollectiveError
from ...strategies.log import log

ROLES = ("PADDLE_TRAINING_ROLE", "TRAINING_ROLE")  # set where scripts are started by hand
_HOST = "127.0.0.1"
_START_S = 90.0
_END_S = 10.0
_LOOK_S = 0.05
_OBJECT_STORE_BYTES = 200_000_000
_LOG_CHARACTERS = 600
_MEMBERS, _STARTING, _HEAD, _TOKEN, _LOG = "members", "starting", "head.json", "token", "keeper.log"
_membership: list[IO[bytes]] = []  # the lock of this process


def shared_address() -> str:
    """Return the address of the Ray that this user's processes of this code share here, started if need be.

    This process is one of its users until it ends.

    Raises:
        CollectiveError: it cannot be started.
    """
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise CollectiveError(f"{folder} belongs to another user: name another folder in TMPDIR.")
    with open(folder / _STARTING, "wb") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if not _membership:
            members = open(folder / _MEMBERS, "ab")  # noqa: SIM115 - it is held until the process ends
            fcntl.flock(members, fcntl.LOCK_SH)  # waits for one that is just ending
            _membership.append(members)
        token = folder / _TOKEN
        address = _running(folder)
        if address is None:
            token.write_text(secrets.token_hex(32))
            token.chmod(0o600)
            address = _start(folder)
            log.info(
                "started a local Ray at %s, which ends with the last process that uses it", address
            )
        _authenticate(os.environ, token)
        return address


def _folder() -> Path:
    """Return where its users meet: those of the same code, Python and user alone."""
    which = f"{os.geteuid()} {sys.executable} {Path(__file__).resolve()}"
    digest = hashlib.sha256(which.encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"rowlock-{digest}"


def _running(folder: Path) -> str | None:
    """Return the address of the one that runs, None without one."""
    try:
        head = json.loads((folder / _HEAD).read_text())
        address: str = head["address"]
        command = Path(f"/proc/{head['keeper']}/cmdline").read_bytes()
    except (OSError, ValueError, KeyError):
        return None
    # A keeper that was killed leaves its file, and others may listen at that port or have that number since.
    is_kept = os.fsencode(folder) in command.split(b"\0")
    return address if is_kept and _answers(int(address.rpartition(":")[2])) else None


def _answers(port: int) -> bool:
    try:
        socket.create_connection((_HOST, port), timeout=_END_S).close()
    except OSError:
        return False
    return True


def _start(folder: Path) -> str:
    (folder / _HEAD).unlink(missing_ok=True)
    with open(folder / _LOG, "wb") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.shared_head", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=_environment(folder),
        )
    # Reap it: an ended child that is not waited for stays a zombie of this process.
    threading.Thread(target=keeper.wait, daemon=True).start()
    deadline = Deadline(_START_S)
    while (address := _running(folder)) is None:
        if keeper.poll() is not None or deadline.over:
            keeper.kill()
            log = (folder / _LOG).read_text(errors="replace").strip()[-_LOG_CHARACTERS:]
            raise CollectiveError(
                f"a local Ray for the processes of this training cannot be started: "
                f"{log or 'it says nothing'}. Start one (ray start --head), and name it in RAY_ADDRESS."
            )
        time.sleep(_LOOK_S)
    return address


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of Ray's workers: they find the package where this process has it."""
    root = Path(__file__).resolve().parents[2]
    home = root if (root / "rowlock").is_dir() else root.parent
    paths = [str(home), os.environ.get("PYTHONPATH", "")]
    own = {name: value for name, value in os.environ.items() if name not in ROLES}
    defaults = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    environment = {**defaults, **own, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    _authenticate(environment, folder / _TOKEN)
    return environment


def _authenticate(environment: MutableMapping[str, str], token: Path) -> None:
    # Imported where Ray is used: the keeper, whom all wait for, would take four times as long to start.
    from ..primitives.ray_private import authenticate

    authenticate(environment, str(token))


# -- the keeper --------------------------------------------------------------------------------------


def keep(folder: Path) -> None:
    """Run Ray until no member holds the members' lock."""
    # Sockets lie in it, whose paths may not be long.
    files = tempfile.mkdtemp(prefix="rlk", dir=os.environ.get("RAY_TMPDIR", "/tmp"))
    with socket.create_server(("", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *(f"--port={port}", f"--temp-dir={files}"),
        *("--include-dashboard=false", f"--object-store-memory={_OBJECT_STORE_BYTES}"),
        *("--disable-usage-stats", "--no-monitor"),  # of this host alone: nothing scales it
    ]
    ray = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        while not _answers(port):
            if ray.poll() is not None:
                raise SystemExit("Ray ended as it was started")
            time.sleep(_LOOK_S)
        beside = folder / f"{_HEAD}.new"
        beside.write_text(json.dumps({"address": f"{_HOST}:{port}", "keeper": os.getpid()}))
        beside.rename(folder / _HEAD)
        _until_all_left(folder, ray)
    finally:
        (folder / _HEAD).unlink(missing_ok=True)
        _end(ray, files)
        shutil.rmtree(files, ignore_errors=True)


def _until_all_left(folder: Path, ray: subprocess.Popen[bytes]) -> None:
    """Return when all members have left, or Ray has ended; no other can become a member from then on."""
    over = threading.Event()

    def wait_for_members() -> None:
        members = open(folder / _MEMBERS, "ab")  # noqa: SIM115 - it is held until the keeper ends
        _membership.append(members)
        fcntl.flock(members, fcntl.LOCK_EX)
        over.set()

    def wait_for_ray() -> None:
        ray.wait()
        over.set()

    for wait in (wait_for_members, wait_for_ray):
        threading.Thread(target=wait, daemon=True).start()
    over.wait()


def _end(ray: subprocess.Popen[bytes], files: str) -> None:
    """End Ray, and whatever of it does not end by itself."""
    ray.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        ray.wait(_END_S)
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if files.encode() in Path(path).read_bytes():
                os.kill(int(path.split("/")[2]), signal.SIGKILL)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
