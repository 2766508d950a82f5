"""The rules of the house: which room may import which, which fields act, and what a wheel holds."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from rowlock.strategies.base import Strategy
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.execution import ExecutionStrategy
from rowlock.strategies.fleet import DistributedStrategy

from .source import imports, nodes, tree

ROOT = Path(__file__).parents[2]
ROOMS = ["strategies", "graph", "executor", "cluster"]  # each may import those before it
FILES = [p for room in [*ROOMS, "rowlock"] for p in (ROOT / room).rglob("*.py")]
FILES = sorted({p.resolve() for p in FILES})


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_rooms(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the rooms that a file imports, relative imports resolved."""
    package = ["rowlock", *path.relative_to(ROOT).parts[:-1]]
    if package[1:2] == ["rowlock"]:
        package = package[1:]
    for node in imports(path):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            parts = [*base, *(node.module or "").split(".")]
            if parts[0] == "rowlock":
                yield (parts[1] if len(parts) > 1 and parts[1] else "rowlock"), node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("rowlock"):
                    yield [*alias.name.split("."), "rowlock"][1], node.lineno


def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        room = path.relative_to(ROOT).parts[0]
        if room == "rowlock":
            continue
        allowed = ROOMS[: ROOMS.index(room) + 1]
        for imported, line in imported_rooms(path):
            if imported not in allowed:
                wrong.append(f"{name(path)}:{line} imports {imported} against the stream")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "kind", [BuildStrategy, ExecutionStrategy, ClusterConfig, DistributedStrategy]
)
def test_code_reads_every_field_that_is_neither_a_hint_nor_refused(kind: type[Strategy]) -> None:
    attributes = {node.attr for path in FILES for node in nodes(path) if is_read(node)}
    fields = kind.model_fields.items()
    acting = {name for name, field in fields if field.json_schema_extra == {"built": "all"}}
    assert acting and acting <= attributes, acting - attributes


def is_read(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)


def test_only_the_cluster_room_imports_ray() -> None:
    for path in FILES:
        text = path.read_text()
        if path.relative_to(ROOT).parts[0] != "cluster":
            assert "import ray" not in text and "from ray" not in text, name(path)


def test_every_file_has_a_docstring() -> None:
    assert [name(p) for p in FILES if not ast.get_docstring(tree(p))] == []


def test_top_level_folders() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a checkout")
    folders = {line.split("/")[0] for line in tracked.stdout.splitlines() if "/" in line}
    allowed = {*ROOMS, "rowlock", "tests", "notebooks", "benchmarks", "examples", "docs", ".ci"}
    assert folders <= allowed
    files = {line for line in tracked.stdout.splitlines() if "/" not in line}
    pages = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE"}
    assert files <= {*pages, "Makefile", "pyproject.toml", ".gitignore", ".pre-commit-config.yaml"}


def test_a_wheel_holds_real_files_and_imports(tmp_path: Path) -> None:
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(ROOT),
    ]
    # In the checkout setuptools would find what it built before, of modules that are gone.
    settings = tmp_path / "setup.cfg"
    settings.write_text(f"[build]\nbuild_base = {tmp_path / 'build'}\n")
    environment = {**os.environ, "DIST_EXTRA_CONFIG": str(settings)}
    process = subprocess.run(build, capture_output=True, text=True, timeout=240, env=environment)
    assert process.returncode == 0, process.stdout + process.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    tops = {n.split("/")[0] for n in names}
    assert tops == {"rowlock", f"{wheel.name.rsplit('-py3', 1)[0]}.dist-info"}
    for room in ROOMS:
        assert f"rowlock/{room}/__init__.py" in names
    code = (
        "import rowlock.fluid, rowlock; assert 'site' in rowlock.__file__; rowlock.fluid.layers.fc"
    )
    check = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert check.returncode == 0, check.stderr
