"""Starting a job's processes: their environments, logs, failures, and ends. Scripts here need no Rowlock."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHIN_S = 120
TELL = """
import json, os, sys
names = [n for n in os.environ if n.startswith(("PADDLE_", "TRAINING_", "POD_", "FLAGS_sel"))]
print(json.dumps([{n: os.environ[n] for n in names}, sys.argv[1:]]))
"""


def command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", *module.split(), "--print_config", "0", *arguments]


def environment() -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PADDLE_", "TRAINING_"))}
    return {**own, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": "nowhere:1"}  # no Ray is needed


def run(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(module, *arguments),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )


def reports(folder: Path, logs: str) -> list[list[object]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "logs").glob(logs))]


@pytest.mark.parametrize(
    "module", ["rowlock.distributed.launch", "rowlock.alias -m paddle.distributed.launch"]
)
def test_workers_get_their_environment(tmp_path: Path, module: str) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    process = run(
        tmp_path, module, "--nproc_per_node", "2", "--started_port", "7000", "--log_dir", "logs",
        "--cluster_node_ips", "10.0.0.1,10.0.0.2", "--node_ip", "10.0.0.2", "tell.py", "--lr", "0.1",
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    first, second = reports(tmp_path, "workerlog.*")
    endpoints = "10.0.0.1:7000,10.0.0.1:7001,10.0.0.2:7000,10.0.0.2:7001"
    assert first == [
        {
            "TRAINING_ROLE": "TRAINER",
            "PADDLE_TRAINER_ID": "2",
            "PADDLE_CURRENT_ENDPOINT": "10.0.0.2:7000",
            "PADDLE_TRAINERS_NUM": "4",
            "PADDLE_TRAINER_ENDPOINTS": endpoints,
        },
        ["--lr", "0.1"],
    ]
    assert isinstance(second[0], dict) and second[0]["PADDLE_CURRENT_ENDPOINT"] == "10.0.0.2:7001"


def test_servers_and_workers_get_their_environment(tmp_path: Path) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    process = run(tmp_path, "rowlock.distributed.launch_ps", "--worker_num", "1", "tell.py")
    assert process.returncode == 0, process.stderr
    shared = {
        "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:6170,127.0.0.1:6171",
        "PADDLE_TRAINERS_NUM": "1",
    }
    trainer = {**shared, "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "0"}
    assert reports(tmp_path, "workerlog.*") == [[trainer, []]]
    server = {**shared, "TRAINING_ROLE": "PSERVER", "POD_IP": "127.0.0.1"}
    assert reports(tmp_path, "serverlog.*") == [
        [{**server, "PADDLE_PORT": str(6170 + i), "PADDLE_PSERVER_ID": str(i)}, []]
        for i in range(2)
    ]


FAIL = """
import os, pathlib, sys, time
if os.environ["PADDLE_TRAINER_ID"] == "1":
    sys.exit("no such data set")
pathlib.Path("part").write_text(str(os.getpid()))
os.rename("part", "process")
time.sleep(600)
"""


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_failure_ends_the_others_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "fail.py").write_text(FAIL)
    process = run(
        tmp_path,
        "rowlock.distributed.launch",
        "--nproc_per_node",
        "2",
        "--log_dir",
        "logs",
        "fail.py",
    )
    assert process.returncode == 1
    assert "trainer 1 (127.0.0.1:" in process.stderr and "ended with status 1" in process.stderr
    assert "no such data set" in process.stderr  # the end of its log
    assert "trainer 0 (127.0.0.1:" in process.stderr and "ended for it" in process.stderr
    written = tmp_path / "process"
    assert not written.exists() or not is_alive(int(written.read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all(tmp_path: Path, number: int) -> None:
    wait = 'import os, time, pathlib\npathlib.Path("part").write_text(str(os.getpid()))\n'
    wait += 'os.rename("part", "process")\ntime.sleep(600)\n'
    (tmp_path / "wait.py").write_text(wait)
    launcher = subprocess.Popen(
        command("rowlock.distributed.launch", "wait.py"), cwd=tmp_path, env=environment()
    )
    deadline = time.monotonic() + WITHIN_S
    while not (tmp_path / "process").exists():
        assert launcher.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    launcher.send_signal(number)
    assert launcher.wait(WITHIN_S) == 130
    assert not is_alive(int((tmp_path / "process").read_text()))


HOSTS = ["--cluster_node_ips", "10.0.0.1,10.0.0.2"]


@pytest.mark.parametrize(
    ("module", "arguments", "text"),
    [
        ("launch", ["nothing.py"], "there is no script 'nothing.py'"),
        ("launch", ["--node_ip", "10.0.0.9", "tell.py"], "is not among --cluster_node_ips"),
        ("launch", [*HOSTS, "tell.py"], "--node_ip 127.0.0.1 is not among --cluster_node_ips"),
        ("launch", ["--cluster_node_ips", "a b", "--node_ip", "a b", "tell.py"], "_ips must be"),
        ("launch", ["--cluster_node_ips", "a,a", "--node_ip", "a", "tell.py"], "twice"),
        ("launch", ["--nproc_per_node", "0", "tell.py"], "--nproc_per_node is 0: give 1 or more"),
        ("launch", ["--started_port", "70000", "tell.py"], "--started_port must be a port"),
        ("launch", ["--selected_gpus", "77", "tell.py"], "--selected_gpus has '77'"),
        ("launch", ["--use_paddlecloud", "tell.py"], "PADDLE_PORT must be a port"),
        ("launch_ps", ["nothing.py"], "there is no script 'nothing.py'"),
        ("launch_ps", [*HOSTS, "tell.py"], "names several hosts; launch_ps starts all"),
        ("launch_ps", ["--worker_num", "0", "tell.py"], "--worker_num must be above 0, got 0"),
        ("launch_ps", ["--server_num", "0", "tell.py"], "--server_num) must be endpoints"),
        ("launch_ps", ["--start_port", "65535", "tell.py"], "and has '127.0.0.1:65536'"),
        ("launch_ps", ["--endpoints", "here", "tell.py"], "and has 'here'"),
        ("launch_ps", ["--endpoints", "a:1,a:1", "tell.py"], "'a:1' twice"),
        (
            "launch_ps",
            ["--endpoints", "a:1,b:1", "--server_num", "3", "tell.py"],
            "--server_num is 3, and --endpoints lists 2",
        ),
        ("launch", ["--log_dir", "tell.py/logs", "tell.py"], "--log_dir 'tell.py/logs': no files"),
    ],
)
def test_command_lines_that_cannot_be(
    module: str,
    arguments: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDLE_PORT", "x")
    monkeypatch.delenv("POD_IP", raising=False)
    line = importlib.import_module(f"rowlock.distributed.{module}")
    assert line.main(["--print_config", "0", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"rowlock.distributed.{module}: ") and text in said


def test_several_hosts_need_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    line = command(
        "rowlock.distributed.launch", "--cluster_node_ips", "127.0.0.1,10.0.0.2", "tell.py"
    )
    without = {name: value for name, value in environment().items() if name != "RAY_ADDRESS"}
    process = subprocess.run(
        line, cwd=tmp_path, env=without, capture_output=True, text=True, timeout=WITHIN_S
    )
    assert process.returncode == 2 and "RAY_ADDRESS names none" in process.stderr


def test_switches_are_true_or_false(capsys: pytest.CaptureFixture[str]) -> None:
    line = importlib.import_module("rowlock.distributed.launch").parser()
    for word, meant in (("True", True), ("true", True), ("0", False), ("false", False)):
        assert line.parse_args(["--print_config", word, "tell.py"]).print_config is meant
    with pytest.raises(SystemExit):
        line.parse_args(["--print_config", "maybe", "tell.py"])
    assert "--print_config: must be True or False, got 'maybe'" in capsys.readouterr().err
