"""What saving and loading parameters costs beside writing and reading as many bytes.

    python -m benchmarks.save_load [--gib 1.0] [--variables 40] [--folder .] [--rounds 5]

One combined file, variables of one size. Each round times the four in turn, so that each pair sees the same
state of the disk and its cache; reading finds the file in the cache, and both ways of writing force it to the
disk. Loading writes over the memory that the variables have, as a program that resumes does, and so does plain
reading. Both ways of writing end with a new file where an old one of the same size was.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable

import numpy as np

import rowlock.fluid as fluid


def build(variables: int, nbytes: int) -> fluid.Program:
    """Return a program with that many parameters, their values in the global scope."""
    main = fluid.Program()
    rows = nbytes // variables // 4096
    with fluid.program_guard(main, fluid.Program()):
        for number in range(variables):
            main.global_block().create_parameter(
                shape=[rows, 1024], dtype="float32", name=f"w_{number:04d}"
            )
            value = np.full((rows, 1024), number + 0.5, np.float32)
            fluid.global_scope().var(f"w_{number:04d}").get_tensor().set(value)
    return main


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def plain_write(path: str, data: memoryview) -> None:
    """Write bytes and force them to the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def plain_read(path: str, data: memoryview) -> None:
    """Read a file into memory that is there."""
    with open(path, "rb", buffering=0) as file:
        while data:
            data = data[file.readinto(data) :]


def main() -> None:
    """Print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--variables", type=int, default=40)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    program = build(options.variables, int(options.gib * (1 << 30)))
    exe = fluid.Executor(fluid.CPUPlace())
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        plain, ours = os.path.join(folder, "plain"), os.path.join(folder, "ours")
        fluid.io.save_persistables(exe, folder, program, "ours")
        data = np.ones(os.path.getsize(ours), np.uint8)
        plain_write(plain, memoryview(data))
        calls = {
            "plain write": lambda: plain_write(plain, memoryview(data)),
            "save": lambda: fluid.io.save_persistables(exe, folder, program, "ours"),
            "plain read": lambda: plain_read(ours, memoryview(data)),
            "load": lambda: fluid.io.load_persistables(exe, folder, program, "ours"),
        }
        rounds = []
        for number in range(options.rounds):  # in turn, and backwards every other time
            order = list(calls.items())[:: 1 if number % 2 else -1]
            rounds.append({name: seconds(call) for name, call in order})
    print(f"{len(data):,} bytes in {options.variables} variables")
    for name in calls:
        times = [r[name] for r in rounds]
        median = statistics.median(times)
        rate = len(data) / median / 1e9
        print(f"{name:12} {median:7.3f} s ({min(times):.3f} to {max(times):.3f})  {rate:6.2f} GB/s")
    for ours_name, plain_name in (("save", "plain write"), ("load", "plain read")):
        ratio = statistics.median(r[ours_name] / r[plain_name] for r in rounds)
        print(f"{ours_name} / {plain_name}: {ratio:.2f}")


if __name__ == "__main__":
    main()
