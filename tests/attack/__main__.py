"""``python -m tests.attack --seed N --minutes M [--only kills,interrupts]``: attacks, as long as wanted."""

from __future__ import annotations

import argparse
import random
import time

import ray

from tests.conftest import start_ray

from . import caches, frames, interrupts, kills, strangers, threads
from .kills import Enough
from .report import Report

PARTS = {
    "kills": kills.attack,
    "interrupts": interrupts.attack,
    "threads": threads.attack,
    "strangers": strangers.attack,
    "caches": caches.attack,
    "frames": frames.attack,
}


def _over(seconds: float) -> Enough:
    """Return what tells when so many seconds have passed."""
    until = time.monotonic() + seconds
    return lambda count: time.monotonic() > until


def main() -> None:
    """Run the parts one after the other, and print what each found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default=",".join(PARTS))
    chosen = parser.parse_args()
    parts = chosen.only.split(",")
    print(f"seed {chosen.seed}", flush=True)
    start_ray()
    reports = []
    for part in parts:
        report = Report(part, chosen.seed)
        PARTS[part](report, _over(60 * chosen.minutes / len(parts)))
        reports.append(report)
    for report in reports:
        print(report)
    ray.shutdown()
    raise SystemExit(any(report.wrong for report in reports))


if __name__ == "__main__":
    main()
