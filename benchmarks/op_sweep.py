"""Every op that PyTorch has, too, beside PyTorch's: forward and gradient of a million elements on one core.

    python benchmarks/op_sweep.py --torch ~/torch/bin/python
    python benchmarks/op_sweep.py --torch ~/torch/bin/python --ops softplus grid_sampler
    python benchmarks/op_sweep.py --torch ~/torch/bin/python --draw 300 --seed 7

``--draw``: so many cases with shapes drawn at random instead (``op_draws.py``); of these, kernels are chosen as
in a program, by measurement, or with ``--by-rule`` by rule alone.

Each library is a process of its own, both are pinned to one core, and they take turns, some calls each. A time
is the calling thread's own, the lower quartile over all calls (median and upper quartile in brackets): whatever
else the machine does only adds to it. Ratios are ours to PyTorch's. Both write the same numbers: a digest of
results and gradients is compared, and a difference shown. Gradients that PyTorch returns as views (of stacks,
transposes, sums) are made contiguous, for ours are written, too: ``backward()`` does so for what an optimizer
reads (its layout contract for ``.grad``); without it the other time would be that of writing nothing.
"""

import argparse
import datetime
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contenders import WORKERS, Contender, keep
from benchmarks.op_cases import CASES
from benchmarks.op_draws import describe, named

NEAR = 2e-3  # of a digest, relative: it tells a wrong op, not a rounding


def differs(ours, theirs):
    """Tell whether digests are of different arrays."""
    if len(ours) != len(theirs):
        return True
    pairs = zip(ours, theirs, strict=True)
    return any(
        mine[0] != other[0] or not np.allclose(mine, other, rtol=NEAR, atol=NEAR * abs(other[1]))
        for mine, other in pairs
    )


def measure(name, contenders, rounds, seconds):
    """Return a case's row."""
    times, answers, counts = {}, {}, {}
    for contender in contenders:
        contender.ask(do="build", model=name)
        warm = contender.ask(do="run", steps=3)["seconds"]
        counts[contender.name] = max(2, min(200, int(seconds / min(warm))))
        times[contender.name] = []
    for _ in range(rounds):
        for contender in contenders:
            answer = contender.ask(do="run", steps=counts[contender.name])
            times[contender.name] += [1e3 * s for s in answer["seconds"]]
            answers[contender.name] = answer
    case = named(name)
    title = name if name in CASES else "{} {}".format(name, describe(case))
    row = {"case": title, "libraries": answers["rowlock"]["libraries"]}
    for contender in times:
        row[contender] = [float(q) for q in np.percentile(times[contender], [25, 50, 75])]
    row["ratio"] = row["rowlock"][0] / row["torch"][0]
    digests = (answers[n]["digest"] for n in ("rowlock", "torch"))
    row["differs"] = not case.chance and differs(*digests)
    return row


def text_of(row):
    """Return a row as text."""
    ours, theirs = ("{:8.3f} [{:.3f} .. {:.3f}]".format(*row[n]) for n in ("rowlock", "torch"))
    line = "{ratio:6.2f}  {0:30} {1:30} {libraries:14} {case}".format(ours, theirs, **row)
    return line + ("  OTHER NUMBERS" if row["differs"] else "")


def summary(rows):
    """Return what the whole comes to."""
    ratios = [row["ratio"] for row in rows]
    return "{} cases: median {:.2f}, {} above 2, {} above 1.3".format(
        len(rows), np.median(ratios), sum(r > 2 for r in ratios), sum(r > 1.3 for r in ratios)
    )


def run():
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("TORCH_PYTHON", "")
    parser.add_argument("--torch", default=default, metavar="INTERPRETER")
    parser.add_argument("--ops", nargs="+", default=[], help="cases, or ops (default: all)")
    parser.add_argument(
        "--draw", type=int, default=0, metavar="COUNT", help="cases drawn at random"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10000, help="of --draw")
    parser.add_argument("--by-rule", action="store_true", help="choose no kernel by measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each round and library")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--no-keep", action="store_true", help="print the table alone")
    parser.add_argument("--verbose", action="store_true", help="show what contenders print")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})  # and so the processes that this one starts
    unknown = [o for o in options.ops if o not in {*CASES, *(c.op for c in CASES.values())}]
    if unknown or not options.torch:
        parser.error("no such op: {}".format(unknown) if unknown else "no --torch")
    names = [n for n, case in CASES.items() if not options.ops or {n, case.op} & set(options.ops)]
    if options.draw:
        names = ["{}.{}".format(options.seed, i) for i in range(options.draw)]
        print("seed {}".format(options.seed))
    if options.by_rule:
        os.environ.update(FLAGS_measure_kernels="0")
    contenders = [
        Contender("rowlock", [sys.executable, str(WORKERS / "op_rowlock.py")]),
        Contender("torch", [options.torch, str(WORKERS / "op_torch.py")]),
    ]
    rows = []
    try:
        for contender in contenders:
            contender.quiet = not options.verbose
            if not contender.start():
                return
        about = {"versions": {c.name: c.about for c in contenders}}
        for name in names:
            try:
                rows.append(measure(name, contenders, options.rounds, options.seconds))
                print(text_of(rows[-1]), flush=True)
            except RuntimeError as error:
                print("{}: left out, {}".format(name, error), flush=True)
        if rows:
            rows.sort(key=lambda row: -row["ratio"])
            text = "\n".join([*map(text_of, rows), "", summary(rows)])
            print("\n" + text)
            if not options.no_keep:
                print(keep("op_sweep", datetime.datetime.now(), about, {"rows": rows}, text))
    finally:
        for contender in contenders:
            contender.close()


if __name__ == "__main__":
    run()
