"""``rowlock demo``: handwritten digits on two Ray replicas, tested on held-out images while training."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import rowlock.fluid as fluid
from rowlock.cluster.launch import cluster

HELD_OUT, TRAINED_ON = 360, 1437  # images
LEARNING_RATE = 0.05


@dataclass
class Digits:
    """1,797 images of 8x8 pixels in [0, 1], and their digits, shuffled and split."""

    train_images: np.ndarray  # float32 [1437, 1, 8, 8]
    train_labels: np.ndarray  # int64 [1437, 1]
    test_images: np.ndarray  # float32 [360, 1, 8, 8]
    test_labels: np.ndarray  # int64 [360, 1]


@dataclass
class History:
    """The record of a run: loss after each step, and held-out accuracy after each epoch."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    samples: int = 0


def load_digits(seed: int = 0) -> Digits:
    """Return the digits that ship with scikit-learn."""
    from sklearn.datasets import load_digits as bundled

    images, labels = bundled(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images = (images[order] / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = labels[order].astype(np.int64).reshape(-1, 1)
    return Digits(images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT])


def conv_bn(x: fluid.Variable, filters: int) -> fluid.Variable:
    """3x3 convolution, batch norm, ReLU."""
    conv = fluid.layers.conv2d(x, filters, filter_size=3, padding=1, bias_attr=False)
    return fluid.layers.batch_norm(conv, act="relu")


def build(seed: int) -> tuple[fluid.Program, fluid.Program, fluid.Program, Any, Any]:
    """Return main, startup and test programs, the loss and the accuracy."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.data("image", [None, 1, 8, 8])
        label = fluid.data("label", [None, 1], dtype="int64")
        x = fluid.layers.pool2d(conv_bn(image, 16), pool_size=2, pool_stride=2)
        x = fluid.layers.pool2d(conv_bn(x, 32), pool_size=2, pool_stride=2)
        logits = fluid.layers.fc(x, 10)
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, label))
        accuracy = fluid.layers.accuracy(fluid.layers.softmax(logits), label)
        test = main.clone(for_test=True)
        fluid.optimizer.Momentum(LEARNING_RATE, 0.9).minimize(loss)
    return main, startup, test, loss, accuracy


def batches(digits: Digits, size: int, rng: np.random.Generator) -> Iterator[dict[str, np.ndarray]]:
    """Yield one epoch of shuffled batches of ``size`` (the rest of the epoch is left out)."""
    order = rng.permutation(len(digits.train_images))
    for start in range(0, len(order) - size + 1, size):
        rows = order[start : start + size]
        yield {"image": digits.train_images[rows], "label": digits.train_labels[rows]}


def train(seed: int, epochs: int, batch: int, out: Path, replicas: int = 2) -> History:
    """Train on ``replicas`` CPU places, write pictures to ``out``, and return the history."""
    digits = load_digits()
    main, startup, test, loss, accuracy = build(seed)
    places = fluid.cpu_places(replicas)
    history = History()
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        train_prog = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=loss.name, places=places
        )
        test_prog = fluid.CompiledProgram(test).with_data_parallel(
            share_vars_from=train_prog, places=places
        )
        held_out = {"image": digits.test_images, "label": digits.test_labels}
        rng = np.random.default_rng(seed)
        first = next(batches(digits, batch, rng))
        exe.run(train_prog, feed=first, fetch_list=[loss])  # compiles, and starts the replicas
        with _progress(epochs * (len(digits.train_images) // batch)) as bar:
            for _ in range(epochs):
                start = time.perf_counter()
                for feed in batches(digits, batch, rng):
                    (value,) = exe.run(train_prog, feed=feed, fetch_list=[loss])
                    history.losses.append(float(value.mean()))
                    history.samples += batch
                    bar.step(history, start)
                history.seconds += time.perf_counter() - start
                (right,) = exe.run(test_prog, feed=held_out, fetch_list=[accuracy])
                history.accuracies.append(float(right.mean()))  # places hold equally many images
        write_pictures(train_prog.explain(), history, out)
    return history


class _progress:
    """A progress bar with loss and samples/s; one plain line per epoch where there is no terminal."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.bar: Any = None

    def __enter__(self) -> _progress:
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=self.total, unit="step")
        self.since, self.samples = time.perf_counter(), 0
        return self

    def step(self, history: History, epoch_started: float) -> None:
        now = time.perf_counter()
        rate = history.samples / max(history.seconds + now - epoch_started, 1e-9)
        text = f"loss {history.losses[-1]:.4f}, {rate:,.0f} samples/s"
        if self.bar is not None:
            self.bar.set_postfix_str(text, refresh=False)
            self.bar.update(1)
        elif now - self.since > 2.0:
            print(f"step {len(history.losses)}/{self.total}: {text}", flush=True)
            self.since = now

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.close()


def write_pictures(report: Any, history: History, out: Path) -> None:
    """Write the loss/accuracy picture, and the compiled graph as .dot and .svg."""
    from matplotlib.figure import Figure

    from rowlock.graph.report.report import to_dot, to_svg

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(history.losses)
    left.set(title="training loss", xlabel="step", yscale="log")
    right.plot(range(1, len(history.accuracies) + 1), history.accuracies, marker="o")
    right.set(title="accuracy on held-out images", xlabel="epoch")
    figure.savefig(out / "training.png", dpi=110)
    (out / "graph.dot").write_text(to_dot(report.graph))
    (out / "graph.svg").write_text(to_svg(report.graph))


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on is needed, got {text!r}")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo from the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="rowlock demo", description=__doc__)
    parser.add_argument(
        "--seeds", type=_positive, nargs="+", default=[1], help="one training run per seed"
    )
    parser.add_argument("--epochs", type=_positive, default=12, help="passes over the images")
    parser.add_argument(
        "--batch", type=_positive, default=64, help="images per step, over all replicas"
    )
    parser.add_argument("--replicas", type=_positive, default=2, help="CPU places")
    parser.add_argument(
        "--launcher", choices=["ray", "threads"], default="ray", help="what replicas are"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/demo"), help="a folder for pictures and the graph"
    )
    args = parser.parse_args(argv)
    if not args.replicas <= args.batch <= TRAINED_ON:
        parser.error(
            f"--batch must be at least --replicas ({args.replicas}) and at most {TRAINED_ON} images, "
            f"got {args.batch}"
        )
    try:
        args.out.mkdir(parents=True, exist_ok=True)  # not first when everything is trained
    except OSError as error:
        parser.error(f"--out {args.out}: no folder can be made there ({error.strerror})")
    finals = []
    with cluster(launcher=args.launcher):
        for seed in args.seeds:
            history = train(seed, args.epochs, args.batch, args.out, args.replicas)
            finals.append(history.accuracies[-1])
            print(
                f"seed {seed}: accuracy {finals[-1]:.2%} on {HELD_OUT} held-out images, loss "
                f"{history.losses[-1]:.4f}, {history.samples / history.seconds:,.0f} samples/s on "
                f"{args.replicas} {args.launcher} replicas ({history.seconds:.1f} s of training)"
            )
    if len(finals) > 1:
        print(f"median accuracy over {len(finals)} seeds: {float(np.median(finals)):.2%}")
    print(f"Pictures and the compiled graph are in {args.out}/: training.png, graph.dot, graph.svg")
    return 0
