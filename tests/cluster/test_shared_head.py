"""The local Ray that processes started by hand share: which address is one."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from rowlock.cluster.ray import shared_head


def test_a_head_whose_keeper_is_gone_is_no_address(tmp_path: Path) -> None:
    """Another process may have its number since, or listen at its port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        head = {"address": f"127.0.0.1:{other.getsockname()[1]}", "keeper": os.getpid()}
        (tmp_path / "head.json").write_text(json.dumps(head))
        assert shared_head._running(tmp_path) is None
