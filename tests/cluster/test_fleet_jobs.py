"""Fleets as jobs of processes: scripts of Paddle, unchanged, that the launchers start on a Ray of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import one_in

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "fleet_scripts"
WITHIN_S = 400
pytestmark = [pytest.mark.slow, pytest.mark.ray]


def launched(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a job as ``python -m paddle.distributed...`` would where Paddle is installed."""
    skipped = ("PADDLE_", "TRAINING_", "RAY_ADDRESS")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(skipped)}
    environment["PYTHONPATH"] = str(ROOT)
    line = ["-m", "rowlock.alias", "-m", module, "--print_config", "0", "--log_dir", "logs"]
    return subprocess.run(
        [sys.executable, *line, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )


def write_clicks(folder: Path) -> None:
    """Write four files of 250 lines whose labels follow from ids and numbers."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(1000)
    folder.mkdir()
    for part in range(4):
        lines = []
        for _ in range(250):
            ids, numbers = rng.integers(0, 1000, 3), rng.standard_normal(4)
            chance = 1 / (1 + np.exp(-2 * (weights[ids].sum() + numbers.sum())))
            words = ",".join(f"{n:.3f}" for n in numbers), ",".join(map(str, ids))
            lines.append(f"{int(rng.random() < chance)}\t{words[0]}\t{words[1]}\n")
        (folder / f"part-{part}").write_text("".join(lines))


def check_click_model(mode: str, tmp_path: Path) -> None:
    """Servers and workers of 1.x train, and save what they learned."""
    command = f"{sys.executable} -m rowlock.alias {SCRIPTS / 'ctr_samples.py'}"
    port = {"sync": 6370, "async": 6380, "geo": 6390}[mode]
    process = launched(
        tmp_path, "paddle.distributed.launch_ps", "--start_port", str(port),
        str(SCRIPTS / "ctr.py"), mode, command,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    for number in range(2):
        text = (tmp_path / f"logs/workerlog.{number}").read_text()
        assert "samples 500 1000\n" in text and text.count("auc\t") == 3
        assert "served" in (tmp_path / f"logs/serverlog.{number}").read_text()
    parameters = {"fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0", "table"}
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names >= parameters | {f"{name}_moment2_0" for name in parameters}
    assert {path.name for path in (tmp_path / "inference").iterdir()} == {*parameters, "__model__"}


def check_digits(tmp_path: Path) -> None:
    """Workers of 1.x learn together what one learns alone."""
    outcomes = []
    for count in (1, 2):
        process = launched(
            tmp_path, "paddle.distributed.launch", "--nproc_per_node", str(count), str(SCRIPTS / "digits.py")
        )  # fmt: skip
        assert process.returncode == 0, process.stdout + process.stderr
        logs = [(tmp_path / f"logs/workerlog.{i}").read_text() for i in range(count)]
        last = [text.strip().splitlines()[-1].rpartition(" ") for text in logs]
        outcomes.append([(json.loads(losses), float(total)) for losses, _, total in last])
    (alone,), together = outcomes
    np.testing.assert_allclose(np.mean([losses for losses, _ in together], 0), alone[0], atol=2e-5)
    np.testing.assert_allclose([total for _, total in together], alone[1], rtol=1e-6)


def check_resnet_2x(tmp_path: Path) -> None:
    """Workers of 2.x do, with mixed precision, recomputation and batch norms of the whole batch."""
    outcomes = []
    for count in (1, 2):
        process = launched(
            tmp_path, "paddle.distributed.launch", "--worker_num", str(count),
            str(SCRIPTS / "resnet_2x.py"), f"model{count}",
        )  # fmt: skip
        assert process.returncode == 0, process.stdout + process.stderr
        logs = [(tmp_path / f"logs/workerlog.{i}").read_text() for i in range(count)]
        last = [text.strip().splitlines()[-1].rpartition(" ") for text in logs]
        outcomes.append([(json.loads(losses), float(tested)) for losses, _, tested in last])
    (alone,), together = outcomes
    # float16 rounds activations of other halves of a batch: by 1 in 1000 of a loss near 1
    np.testing.assert_allclose(np.mean([losses for losses, _ in together], 0), alone[0], atol=3e-3)
    np.testing.assert_allclose([tested for _, tested in together], alone[1], atol=2e-2)
    assert alone[0][-1] < alone[0][0]
    assert (tmp_path / "model2" / "fc_0.w_0").exists()


def check_wide_and_deep_2x(mode: str, tmp_path: Path) -> None:
    """Servers and workers of 2.x train, and save what they learned."""
    command = f"{sys.executable} -m rowlock.alias {SCRIPTS / 'ctr_samples.py'}"
    process = launched(
        tmp_path, "paddle.distributed.launch", "--server_num", "2", "--worker_num", "2",
        str(SCRIPTS / "wide_deep_2x.py"), mode, command,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    for number in range(2):
        text = (tmp_path / f"logs/workerlog.{number}").read_text()
        assert text.count("auc\t") == 6
        assert "served" in (tmp_path / f"logs/serverlog.{number}").read_text()
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names >= {"table", "table_moment1_0", "fc_0.w_0", "fc_3.w_0"}
    assert "__model__" in {path.name for path in (tmp_path / "inference").iterdir()}


@pytest.mark.parametrize("check", one_in(2, [check_digits, check_resnet_2x], more=0))
def test_workers_follow_one_worker(check: Callable[[Path], None], tmp_path: Path) -> None:
    check(tmp_path)


WITH_SERVERS = [(check_click_model, mode) for mode in ("sync", "async", "geo")]
WITH_SERVERS += [(check_wide_and_deep_2x, mode) for mode in ("sync", "async")]


@pytest.mark.parametrize(("check", "mode"), one_in(5, WITH_SERVERS, more=0))
def test_workers_train_with_servers(
    check: Callable[[str, Path], None], mode: str, tmp_path: Path
) -> None:
    write_clicks(tmp_path / "data")
    check(mode, tmp_path)
