"""A script for every role, as its author would write it: what it prints of its programs."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.programs import own_programs

SCRIPT = Path(__file__).parents[2] / "examples" / "programs" / "ctr_on_servers.py"


def test_programs_of_all_roles_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rowlock import alias

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    alias.install()
    monkeypatch.setattr(sys, "argv", ["ctr_on_servers.py", "--show"])
    before = set(sys.modules)
    with own_programs() as (main, _):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "paddle":
            del sys.modules[name]
    text = capsys.readouterr().out
    assert "127.0.0.1:6174  table.block1  table, rows 10000 to 19999, [10000, 8]" in text
    assert "distributed_lookup_table(C0, C1, C2, table)" in text
    assert text.count("adagrad(table.block") == 2
    kinds = [op.type for op in main.global_block().ops]
    assert "adagrad" not in kinds and kinds[-1] == "concat"
