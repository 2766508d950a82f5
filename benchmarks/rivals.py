"""Rowlock beside what a user would pick instead: the same training steps, two replicas of one core each.

    python benchmarks/rivals.py --torch ~/torch/bin/python --jax ~/jax/bin/python --paddle ~/paddle/bin/python

Interpreters may also come from TORCH_PYTHON, JAX_PYTHON and PADDLE_PYTHON; a rival without one is left out.
Every contender is a process of its own, and they take turns, a few steps each, so that a noisy neighbour
disturbs all of them alike. A time is from the call to that step's own loss on the host; beside it stands what
all processes of a contender spend on processors for a step, which a busy machine changes less. Tables show
medians with quartiles, and are kept under ``benchmarks/results``. Ratios are medians over rounds.
"""

import argparse
import datetime
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contenders import keep, rivals, rowlock
from benchmarks.models import EVERY

STEPS = {
    "fit": 200, "mlp": 40, "lenet": 10, "resnet18": 2, "gpt": 3, "mobilenet": 3, "encoder": 8,
    "text_cnn": 10, "vgg": 3, "densenet": 5, "mixer": 5, "wide_deep": 40, "unet": 4, "convnext": 4,
    "signals": 5, "text_cnn_sparse": 16, "stacked_lstm": 8, "click_through": 16, "translator": 16,
}  # fmt: skip
WARM_UP = {"fit": 50, "mlp": 20, "stacked_lstm": 24, "translator": 24}
FASTER = (  # the switches that trade no time for memory
    "fuse_elewise_add_act_ops", "fuse_bn_act_ops", "fuse_bn_add_act_ops", "fuse_relu_depthwise_conv",
    "fuse_gemm_epilogue", "enable_auto_fusion", "fuse_all_optimizer_ops",
)  # fmt: skip


def measure(name, contenders, rounds, steps):
    """Return what each round took, by contender that can run the model: two dicts of milliseconds.

    The first has a list for each round with a number for each step, the second processor time of a step for
    each round.
    """
    ready, processor_ms, weights = {}, {}, {}
    for contender in contenders:
        try:
            weights[contender.name] = contender.ask(do="build", model=name)["weights"]
            contender.ask(do="run", steps=WARM_UP.get(name, 5))
            ready[contender.name], processor_ms[contender.name] = [], []
        except RuntimeError as error:
            print("{}: {} left out, {}".format(name, contender.name, error), flush=True)
    assert len(set(weights.values())) <= 1, (name, "weights by contender", weights)
    for _ in range(rounds):
        for contender in contenders:
            if contender.name in ready:
                before = contender.processor_seconds()
                answer = contender.ask(do="run", steps=steps)
                seconds = contender.processor_seconds() - before
                processor_ms[contender.name].append(1e3 * seconds / steps)
                assert np.isfinite(answer["loss"]), (name, contender.name, answer["loss"])
                ready[contender.name].append([1e3 * s for s in answer["seconds"]])
    return ready, processor_ms


def row(contender, times, processor_ms, ours):
    """Return one line's numbers: quartiles in milliseconds, and the median over rounds of ratios to us."""
    low, median, high = np.percentile(np.concatenate(times), [25, 50, 75])
    outcome = {
        "contender": contender,
        "median": median,
        "quartiles": [low, high],
        "processor": float(np.median(processor_ms)),
    }
    if ours is not None:
        pairs = zip(times, ours, strict=True)
        outcome["ratio"] = float(
            np.median([np.median(theirs) / np.median(own) for theirs, own in pairs])
        )
    return outcome


def table(name, times, processor_ms, own):
    """Return a model's rows, and its ratios: ours to the fastest rival and to the thriftiest, DDP to ours."""
    best = min(
        (n for n in times if n in own),
        key=lambda n: np.median(np.concatenate(times[n])),
        default=None,
    )
    rows = [row(n, t, processor_ms[n], times.get(best)) for n, t in times.items()]
    outcome = {"model": name, "about": EVERY[name].__doc__, "rows": rows}
    by_name = {r["contender"]: r for r in rows}
    theirs = [r for r in rows if r["contender"] not in own]
    if best and theirs:
        fastest = min(theirs, key=lambda r: r["median"])
        outcome["fastest rival"] = fastest["contender"]
        outcome["ours / fastest rival"] = 1 / fastest["ratio"]
        least = min(theirs, key=lambda r: r["processor"])["contender"]
        outcome["least processor"] = least
        pairs = zip(processor_ms[best], processor_ms[least], strict=True)
        outcome["ours / least processor"] = float(np.median([own / other for own, other in pairs]))
    if best and "torch DDP" in by_name:
        outcome["DDP / ours"] = by_name["torch DDP"]["ratio"]
    return outcome


def text_of(outcome):
    """Return a model's table as text."""
    lines = ["{model}: {about}".format(**outcome)]
    for each in outcome["rows"]:
        low, high = each["quartiles"]
        lines.append(
            "  {:24} {:9.3f} ms   [{:.3f} .. {:.3f}]   {:6.2f} x ours   processors {:.1f} ms".format(
                each["contender"],
                each["median"],
                low,
                high,
                each.get("ratio", float("nan")),
                each["processor"],
            )
        )
    if "fastest rival" in outcome:
        lines.append(
            "  ours / fastest rival ({fastest rival}): {ours / fastest rival:.2f}; of processors "
            "({least processor}): {ours / least processor:.2f}".format(**outcome)
        )
    if "DDP / ours" in outcome:
        lines.append("  DDP / ours: {DDP / ours:.2f}".format(**outcome))
    return "\n".join(lines)


def run():
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for rival in ("torch", "jax", "paddle"):
        interpreter = os.environ.get("{}_PYTHON".format(rival.upper()), "")
        parser.add_argument("--" + rival, default=interpreter, metavar="INTERPRETER")
    parser.add_argument("--models", nargs="+", default=list(EVERY), choices=list(EVERY))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=0, help="of each round (default: by model)")
    parser.add_argument("--no-switches", action="store_true", help="only Rowlock's defaults")
    parser.add_argument("--verbose", action="store_true", help="show what contenders print")
    options = parser.parse_args()
    ours = [rowlock("rowlock")]
    if not options.no_switches:
        ours.append(rowlock("rowlock, switches", dict.fromkeys(FASTER, True)))
    everyone = [*ours, *rivals(options.torch, options.jax, options.paddle)]
    for contender in everyone:
        contender.quiet = not options.verbose
    try:
        contenders = [contender for contender in everyone if contender.start()]
        tables, raw, processor_ms, now = [], {}, {}, datetime.datetime.now()
        for name in options.models:
            steps = options.steps or STEPS[name]
            raw[name], processor_ms[name] = measure(name, contenders, options.rounds, steps)
            tables.append(table(name, raw[name], processor_ms[name], {c.name for c in ours}))
            print(text_of(tables[-1]) + "\n", flush=True)
            about = {"versions": {c.name: c.about for c in contenders}, "rounds": options.rounds}
            figures = {"milliseconds": raw, "processor milliseconds": processor_ms}
            text = "\n\n".join(map(text_of, tables))
            line = keep("rivals", now, about, {"tables": tables, **figures}, text)
        print(line)
    finally:
        for contender in everyone:
            contender.close()


if __name__ == "__main__":
    run()
