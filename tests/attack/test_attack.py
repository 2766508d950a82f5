"""Each attack, at the size that CI has time for; ``python -m tests.attack`` goes on for as long as wanted."""

from __future__ import annotations

import random

import pytest

from .__main__ import PARTS
from .report import Report

# Kills, interrupts, steps, groups formed, caches, frames: what each part counts.
AMOUNTS = {
    "kills": 200,
    "interrupts": 2000,
    "threads": 1,
    "strangers": 1,
    "caches": 1,
    "frames": 20_000,
}


@pytest.mark.attack
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", PARTS)
def test_attack(part: str, ray_cluster: None) -> None:
    seed = random.randrange(10**6)
    print(f"python -m tests.attack --only {part} --seed {seed}")
    report = Report(part, seed)
    PARTS[part](report, lambda count: count >= AMOUNTS[part])
    report.verdict()
