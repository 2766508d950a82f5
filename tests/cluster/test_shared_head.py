"""The local Ray that processes started by hand share: who finds it, and with which token."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rowlock.cluster.ray import shared_head
from tests.conftest import eventually

ROOT = Path(__file__).parents[2]
JOIN = (
    "import ray\n"
    "from ray._raylet import AuthenticationTokenLoader\n"
    "from rowlock.cluster.ray.session import join_ray\n"
    "from rowlock.strategies.cluster import ClusterConfig\n"
    "AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)\n"
    "join_ray(ClusterConfig(), shared=True)\n"
    "print(ray.get_runtime_context().gcs_address, flush=True)\n"
    "input()\n"
)


@pytest.mark.ray
@pytest.mark.slow
def test_processes_of_whom_one_used_another_ray_share_one() -> None:
    """Ray leaves RAY_AUTH_MODE=token in a process that started one, and its token in the home directory."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with TemporaryDirectory(prefix="rl", dir="/tmp") as folder:  # a short path, as sockets need
        home = Path(folder) / ".ray"
        home.mkdir()
        (home / "auth_token").write_text(secrets.token_hex(32))
        own = {"TMPDIR": folder, "RAY_TMPDIR": folder, "HOME": folder, "PYTHONPATH": str(ROOT)}
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", JOIN],
                env={**inherited, **own, **mode},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for mode in ({"RAY_AUTH_MODE": "token"}, {})
        ]
        try:
            addresses = [p.stdout.readline() for p in processes if p.stdout is not None]
        finally:
            for process in processes:
                process.communicate("\n")
        assert addresses[0] == addresses[1] != ""
        assert eventually(lambda: not list(Path(folder).glob("rlk*")))  # the keeper's last deed


def test_a_head_whose_keeper_is_gone_is_no_address(tmp_path: Path) -> None:
    """Another process may have its number since, or listen at its port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        head = {"address": f"127.0.0.1:{other.getsockname()[1]}", "keeper": os.getpid()}
        (tmp_path / "head.json").write_text(json.dumps(head))
        assert shared_head._running(tmp_path) is None
