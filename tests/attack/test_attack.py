"""Each attack, at the size that CI has time for; ``python -m tests.attack`` goes on for as long as wanted."""

from __future__ import annotations

import random
import time

import pytest

from .__main__ import PARTS
from .report import Report

# What each part counts (kills, interrupts, steps, groups formed, caches, frames), and the seconds after
# which it begins no more.
SIZES = {
    "kills": (200, 20),
    "interrupts": (2000, 10),
    "threads": (1, 10),
    "strangers": (1, 5),
    "caches": (1, 5),
    "frames": (10_000, 5),
}


@pytest.mark.attack
@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", PARTS)
def test_attack(part: str, ray_cluster: None) -> None:
    seed = random.randrange(10**6)
    print(f"python -m tests.attack --only {part} --seed {seed}")
    report = Report(part, seed)
    amount, seconds = SIZES[part]
    until = time.monotonic() + seconds
    PARTS[part](report, lambda count: count >= amount or time.monotonic() > until)
    report.verdict()
