"""One GPU: Rowlock beside PyTorch (eager, compiled, with CUDA graphs) and JAX, on the same training steps.

    python benchmarks/gpu.py --torch ~/torch/bin/python --jax ~/jax/bin/python

Interpreters may also come from TORCH_PYTHON and JAX_PYTHON; a rival without one is left out. Every contender
is a process of its own; they take turns, and numbers are medians over rounds. ResNet-50 (256 images of
224 x 224) and GPT-2 (16 x 1,024 words) begin with the same weights and are fed the same batches from the host,
so their first losses stand side by side and must agree, and so must what updates do to them. Rates are
shares of what the GPU can do: arithmetic of ``--peak``, and what a plain product of the same run reaches.

``--parts`` chooses among these: ``steps`` (times with quartiles, host time, seconds of the first step, memory
as planned and as taken, what libraries declined), ``losses`` (50 of them in float32 beside PyTorch's),
``replays`` (1,000 with Python's garbage collector on: times, and memory before and behind), ``kernels``
(``benchmarks/gpu_kernels.py``: GB/s and TFLOP/s by op), ``sanitizer`` (memcheck and racecheck of some tests).
Each answer is appended to ``--results`` as soon as it is there; a contender that fails, or takes longer than
``--limit``, is left out of a model; ``--without`` leaves rivals out of all. ``--simulated`` tries the script
with tiny sizes: Rowlock on a simulated GPU, rivals on the CPU.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contenders import WORKERS, Contender, keep
from benchmarks.models import MODELS
from benchmarks.sizes import SIZES, TINY
from tests.gpu.results import FILE, PART, append
from tests.gpu.run import CHECKERS, MISSED, Part

RIVALS = ("PyTorch", "PyTorch, compiled", "PyTorch, graphs", "JAX")
LARGE = ("resnet50/bfloat16", "resnet50/tf32", "gpt2/bfloat16", "gpt2/tf32")
SMALL = ("fit", "mlp", "lenet", "resnet18", "gpt")
STEPS = {"resnet50": 20, "gpt2": 20}
SMALL_STEPS = 200
WARM_UP = 4
LOSSES = 50
REPLAYS = 1000
PARTS = ("steps", "losses", "replays", "kernels", "sanitizer")
WATCHED = ("reductions", "norms", "optimizers")  # of tests/ops/test_cuda_*.py
WATCHED_S = 600.0  # for each of the sanitizer's tools
KERNELS_S = 600.0
PEAK = {"bfloat16": 989e12, "tf32": 494e12, "float32": 67e12}  # H200, dense
# Before the first update, relative to the loss: rounding alone, averaged over rows.
AGREE = {"bfloat16": 2e-3, "tf32": 1e-3, "float32": 1e-4}
# How updates move it, relative to the largest move: without its gradients a contender's stays.
MOVE = {"bfloat16": 0.05, "tf32": 0.03, "float32": 0.01}


def contenders(options):
    """Return the processes to start: ours, and the rivals whose interpreters were given."""
    device = "cpu" if options.simulated else "gpu"

    def made(name, python, script, how="", device=device):
        settings = json.dumps({"tiny": options.simulated, "device": device, "how": how})
        command, quiet = [python, str(WORKERS / script), settings], not options.verbose
        return Contender(name, command, quiet=quiet, limit=options.limit)

    everyone = [made("Rowlock", sys.executable, "gpu_rowlock.py", device="gpu")]
    if options.torch:
        everyone.append(made("PyTorch", options.torch, "gpu_torch.py"))
        everyone.append(made("PyTorch, compiled", options.torch, "gpu_torch.py", "compiled"))
        everyone.append(made("PyTorch, graphs", options.torch, "gpu_torch.py", "graphs"))
    if options.jax:
        everyone.append(made("JAX", options.jax, "gpu_jax.py"))
    return [contender for contender in everyone if contender.name not in options.without]


def starts(contender, options):
    """Start a contender; return whether it can run here, and append why not."""
    if contender.start():
        return True
    append(options.results, left_out=contender.name, why=contender.failure)
    return False


def unbroken(name, options, part, *args):
    """Return what a part returns; one that breaks is told and appended, and leaves the others."""
    try:
        return part(*args)
    except Exception as error:
        traceback.print_exc()
        append(options.results, broke=name, why=repr(error))
        return "{} broke: {!r}".format(name, error)


def answer_of(contender, options, of, **order):
    """Return a contender's answer, which is appended; None if it fails: it begins afresh if it is gone."""
    try:
        answer = contender.ask(**order)
    except RuntimeError as error:
        print("{}: {} left out, {}".format(of, contender.name, error), flush=True)
        append(options.results, left_out=contender.name, of=of, order=order, why=str(error))
        if contender.process.poll() is not None:
            contender.start()
        return None
    append(options.results, contender=contender.name, of=of, order=order, answer=answer)
    return answer


def ready(contender, options, model):
    """Have a contender build a model and warm up; return what it says of its first steps, None if it fails."""
    if answer_of(contender, options, model, do="build", model=model) is None:
        return None
    return answer_of(contender, options, model, do="run", steps=WARM_UP)


def measure(model, contenders, options):
    """Return the answers of all rounds, by contender that can run the model."""
    steps = 2 if options.simulated else STEPS.get(model.partition("/")[0], SMALL_STEPS)
    taking_part = [contender for contender in contenders if ready(contender, options, model)]
    rounds = {contender.name: [] for contender in taking_part}
    for _ in range(options.rounds):
        for contender in list(taking_part):
            answer = answer_of(contender, options, model, do="run", steps=steps)
            if answer is None:
                taking_part.remove(contender)
            else:
                rounds[contender.name].append(answer)
    return {name: answers for name, answers in rounds.items() if answers}


def rates(model, seconds, options):
    """Return what a step's time means: images or words a second, and shares of the peak and of a product."""
    name, _, precision = model.partition("/")
    if name not in SIZES:
        return {}
    size = (TINY if options.simulated else SIZES)[name]
    units = size.rows * getattr(size, "length", 1)
    reached = size.operations() / seconds
    result = {"words/s" if name == "gpt2" else "images/s": units / seconds}
    result["MFU %"] = 100 * reached / PEAK[precision]
    if options.product.get(precision):
        result["of a product %"] = 100 * reached / options.product[precision]
    return result


def differ(model, rows):
    """Return a sentence if the contenders' first losses do not agree, else ""."""
    name, _, precision = model.partition("/")
    if name not in SIZES or len(rows) < 2:
        return ""
    losses = np.array([row["losses"] for row in rows])
    if not np.isfinite(losses).all():
        return "losses are not finite"
    first, moves = losses[:, 0], losses[:, 1:] - losses[:, :1]
    apart = float(np.ptp(first) / np.abs(first).max())
    if apart > AGREE[precision]:
        return "first losses differ by {:.2g}, more than {}".format(apart, AGREE[precision])
    largest = float(np.abs(moves).max(initial=0))
    apart = float(np.ptp(moves, axis=0).max(initial=0)) / largest if largest else 0.0
    if apart > MOVE[precision]:
        text = "losses move apart by {:.2g} of the largest move, more than {}"
        return text.format(apart, MOVE[precision])
    return ""


def table(model, answers, options):
    """Return a model's rows, and what is wrong with them."""
    rows = []
    for name, rounds in answers.items():
        seconds = [answer["seconds"][0] for answer in rounds]
        middle = float(np.median(seconds))
        row = {"contender": name, "ms": 1e3 * middle}
        row["quartiles"] = [1e3 * float(q) for q in np.percentile(seconds, [25, 75])]
        row["host us"] = 1e6 * float(np.median([answer["host"] for answer in rounds]))
        row["first s"] = rounds[-1]["first"]
        row.update(rates(model, middle, options))
        row.update({key: rounds[-1][key] for key in ("losses", "memory", "declined")})
        rows.append(row)
    return {"model": model, "rows": rows, "wrong": differ(model, rows) or without_ours(rows)}


def without_ours(rows):
    """Return a sentence if there are no figures of ours, else ""."""
    return "" if any(row["contender"] == "Rowlock" for row in rows) else "Rowlock has no figures"


def text_of(table):
    """Return a model's table as text."""
    lines = [table["model"]]
    ours = next((row["ms"] for row in table["rows"] if row["contender"] == "Rowlock"), None)
    for row in table["rows"]:
        low, high = row["quartiles"]
        line = "  {:18} {:9.3f} ms [{:.3f} .. {:.3f}]".format(
            row["contender"], row["ms"], low, high
        )
        if ours is not None:
            line += " {:5.2f} x ours".format(row["ms"] / ours)
        line += ", host {:.0f} us, first {:.1f} s".format(row["host us"], row["first s"])
        for key in ("images/s", "words/s", "MFU %", "of a product %"):
            if key in row:
                line += ", {} {:,.4g}".format(key, row[key])
        for key, value in row["memory"].items():
            line += ", {} {:,.0f} MB".format(key, value / 1e6)
        lines.append(line)
    for row in table["rows"]:
        losses = " ".join("{:.4f}".format(loss) for loss in row["losses"])
        lines.append("  {:18} losses {}".format(row["contender"], losses))
        lines += ["  {:18} {}".format(row["contender"], text) for text in row["declined"]]
    if table["wrong"]:
        lines.append("  WRONG: " + table["wrong"])
    return "\n".join(lines)


PRODUCT = """
import json, sys, torch, time
torch.backends.cuda.matmul.allow_tf32 = True
found = {}
for name, kind in (("bfloat16", torch.bfloat16), ("tf32", torch.float32)):
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=kind) for _ in range(2))
    for count in (5, 50):
        torch.cuda.synchronize(); began = time.perf_counter()
        for _ in range(count): a @ b
        torch.cuda.synchronize()
        found[name] = count * 2 * 8192**3 / (time.perf_counter() - began)
print(json.dumps(found))
"""


def products(options):
    """Return the operations a second of a plain product by PyTorch, by precision; nothing without a GPU."""
    if not options.torch or options.simulated:
        return {}
    command = ["timeout", "--signal=KILL", str(options.limit), options.torch, "-c", PRODUCT]
    process = subprocess.run(command, capture_output=True, text=True)
    by_precision = json.loads(process.stdout) if process.returncode == 0 else {}
    append(options.results, product=by_precision, why=process.stderr[-2000:])
    return by_precision


def keep_tables(tables, contenders, options):
    """Write everything to a dated pair of files."""
    versions = {c.name: c.about for c in contenders}
    about = {"versions": versions, "rounds": options.rounds, "product": options.product}
    text = "\n\n".join(map(text_of, tables))
    print(keep("gpu", datetime.datetime.now(), about, {"tables": tables}, text))


def time_steps(model, contenders, options):
    """Time a model's steps; print, append and return the table."""
    times = table(model, measure(model, contenders, options), options)
    print(text_of(times) + "\n", flush=True)
    append(options.results, **times)  # a run that is killed has these
    return times


def compare_losses(contenders, options):
    """Train in float32 beside PyTorch, print and append both's losses; return what is wrong."""
    wrong = []
    both = [c for c in contenders if c.name in ("Rowlock", "PyTorch")]
    for name in SIZES:
        model, rows = name + "/float32", []
        if model not in options.models and not any(m.startswith(name) for m in options.models):
            continue
        for contender in both:
            answer = answer_of(contender, options, model, do="build", model=model)
            losses = []
            while answer is not None and len(losses) < LOSSES:
                answer = answer_of(contender, options, model, do="run", steps=1)
                if answer is not None:
                    losses += [answer["loss"]] if losses else [*answer["losses"], answer["loss"]]
            if len(losses) == LOSSES:
                rows.append({"contender": contender.name, "losses": losses})
        if not rows:
            wrong.append(without_ours(rows))
            continue
        apart = np.ptp([row["losses"] for row in rows], axis=0)
        # Rounding grows from step to step, so that only the first say whether both do the same.
        first = [{**row, "losses": row["losses"][:6]} for row in rows]
        wrong.append(differ(model, first) or without_ours(rows))
        append(options.results, losses=model, rows=rows, apart=apart.tolist(), wrong=wrong[-1])
        text = "{}: {} losses, apart by {:.2g} in the first step, {:.2g} at most {}"
        print(text.format(model, LOSSES, apart[0], apart.max(), wrong[-1]), flush=True)
    return "; ".join(filter(None, wrong))


def replay(ours, options):
    """Time many replays with the garbage collector on; print and append them; return what is wrong."""
    model, steps = options.models[0], 10 if options.simulated else REPLAYS
    first = ready(ours, options, model)
    answer = first and answer_of(ours, options, model, do="run", steps=steps)
    if answer is None:
        return "{} was not replayed".format(model)
    entry = {key: answer[key] for key in ("seconds", "host", "longest", "memory")}
    append(options.results, replays=model, before=first["memory"], **entry)
    text = "{}: {:.3f} ms a replay, host {:.0f} us, longest {:.0f} us, memory {} then {}"
    times = 1e3 * answer["seconds"][0], 1e6 * answer["host"], 1e6 * answer["longest"]
    print(text.format(model, *times, first["memory"], answer["memory"]), flush=True)
    return ""


def watch(options):
    """Run some tests of kernels under compute-sanitizer; return whether it found something."""
    sanitizer, failed = shutil.which("compute-sanitizer"), False
    if sanitizer is None or options.simulated:
        append(options.results, sanitizer="left out", why="not installed, or no GPU")
        print("sanitizer: left out, it is not installed, or there is no GPU")
        return False
    files = ["tests/ops/test_cuda_{}.py".format(name) for name in WATCHED]
    for tool in CHECKERS:
        before = (sanitizer, "--tool", tool, "--error-exitcode", str(MISSED))
        plugins = ("-p", "tests.gpu.no_pool", "-p", "tests.gpu.results")
        settings = {FILE: str(options.results), PART: tool}  # test by test
        part = Part(tool, files, settings, before=before, options=plugins, limit=WATCHED_S)
        part.run()
        failed = failed or bool(part.status)
        append(options.results, sanitizer=tool, counts=part.counts, ended=part.status)
        print(part, flush=True)
    return failed


def kernels(options):
    """Measure instructions by themselves, and append each line at once; return whether that failed."""
    models = [model for model in options.models if model in LARGE] or list(LARGE[:1])
    command = ["timeout", "--signal=KILL", str(KERNELS_S), sys.executable, "-u"]
    command += [str(Path(__file__).with_name("gpu_kernels.py")), "--models", *models]
    command += ["--simulated"] * options.simulated
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        print(line, end="", flush=True)
        append(options.results, kernels=line.rstrip("\n"))
    return process.wait() != 0


def run():
    """Measure as the command line says; end with 1 if losses disagree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for rival in ("torch", "jax"):
        interpreter = os.environ.get("{}_PYTHON".format(rival.upper()), "")
        parser.add_argument("--" + rival, default=interpreter, metavar="INTERPRETER")
    every = [*LARGE, *(name + "/float32" for name in SIZES), *MODELS]
    parser.add_argument("--models", nargs="+", default=[*LARGE, *SMALL], choices=every)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--peak", type=float, help="bfloat16 operations a second (default: an H200's)"
    )
    parser.add_argument("--without", nargs="+", default=[], choices=RIVALS, help="leave rivals out")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--limit", type=float, default=300, help="seconds for a contender's answer")
    default = Path("runs") / "gpu_figures.jsonl"
    parser.add_argument("--results", type=Path, default=default, help="appended to at once")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="show what contenders print")
    options = parser.parse_args()
    if options.peak:
        PEAK.update({key: value * options.peak / PEAK["bfloat16"] for key, value in PEAK.items()})
    if options.simulated:
        os.environ["ROWLOCK_SIMULATED_GPUS"] = "1"
    options.results = options.results.absolute()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.product = products(options)
    everyone, tables, wrong = contenders(options), [], []
    try:
        running = [contender for contender in everyone if starts(contender, options)]
        if everyone[0] not in running:
            wrong.append("Rowlock did not start")
        for model in options.models if "steps" in options.parts else ():
            times = unbroken(model, options, time_steps, model, running, options)
            (wrong if isinstance(times, str) else tables).append(times)
        if tables and not options.simulated:
            wrong.append(unbroken("files", options, keep_tables, tables, running, options))
        if "losses" in options.parts:
            wrong.append(unbroken("losses", options, compare_losses, running, options))
        if "replays" in options.parts and everyone[0] in running:
            wrong.append(unbroken("replays", options, replay, everyone[0], options))
    finally:
        for contender in everyone:
            contender.close()
    wrong += [one["wrong"] for one in tables]
    for name, part in (("kernels", kernels), ("sanitizer", watch)):
        if name in options.parts:
            wrong.append(unbroken(name, options, part, options))
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(run())
