"""Modes of parameter servers on clicks: AUC on unseen rows and staleness, with two trainers and two servers.

``python benchmarks/ctr.py [--steps N] [--rows N] [--paces MS,MS] [--modes NAME,...]``. 26 fields with 1,000,000
ids in total, each field's by Zipf's law; a click follows from hidden weights of ids and of pairs of fields. All
roles are threads of one process. ``--paces``: milliseconds that each trainer sleeps before a step, so that one
lags behind. In geo-SGD a step of the servers is what a trainer changed in ten.
"""

from __future__ import annotations

import argparse
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import rowlock
from rowlock import fluid

FIELDS, IDS = 26, 1_000_000
TRAINERS, SERVERS = 2, 2
WIDTH, HIDDEN = 8, 64
RATE = 0.004
EVERY = 10  # steps of a trainer after which it sends what changed, in geo-SGD
ZIPF = 1.3  # the exponent of an id's frequency by rank
TEST_ROWS, TEST_BATCH = 40_000, 4_000
SEED = 20
MODES = ("sync", "async", "half-async", "geo")
_ports = itertools.count(24000)

Batch = dict[str, np.ndarray[Any, Any]]


class Clicks:
    """Rows of ids and clicks. ``best``: the AUC of the probabilities that clicks are drawn by."""

    def __init__(self) -> None:
        draw = np.random.default_rng(SEED)
        shares = np.geomspace(1, 20_000, FIELDS)
        heights = np.maximum(shares / shares.sum() * IDS, 4).astype(np.int64)
        heights[-1] += IDS - heights.sum()
        self.heights, self.first = heights, np.cumsum(heights) - heights
        self.weights = draw.normal(size=IDS) * 0.35
        self.factors = draw.normal(size=(IDS, 2)) * 0.25

    def rows(self, draw: np.random.Generator, count: int) -> tuple[Batch, np.ndarray[Any, Any]]:
        """Return ``count`` rows and the probabilities of their clicks."""
        tail = (self.heights + 1.0) ** (1 - ZIPF)
        ranks = (1 - (1 - tail) * draw.random((count, FIELDS))) ** (1 / (1 - ZIPF)) - 1
        ids = self.first + np.minimum(ranks.astype(np.int64), self.heights - 1)
        factors = self.factors[ids]
        pairs = (factors.sum(1) ** 2 - (factors**2).sum(1)).sum(1) / 2
        probability = 1 / (1 + np.exp(1.0 - self.weights[ids].sum(1) - pairs))
        clicks = (draw.random(count) < probability)[:, None]
        return {"ids": ids[:, :, None], "click": clicks.astype("float32")}, probability

    def batches(self, trainer: int, steps: int, rows: int) -> Iterator[Batch]:
        """Yield a trainer's batches, other than all others'."""
        draw = np.random.default_rng((SEED, trainer))
        for _ in range(steps):
            yield self.rows(draw, rows)[0]

    def test(self) -> tuple[Batch, np.ndarray[Any, Any]]:
        """Return the rows that no trainer sees, and the probabilities of their clicks."""
        return self.rows(np.random.default_rng((SEED, TRAINERS)), TEST_ROWS)


def net() -> tuple[Any, Any]:
    """Build a wide and deep net with a table of ``WIDTH + 1`` numbers an id; return loss and probability."""
    ids, click = fluid.data("ids", [None, FIELDS, 1], "int64"), fluid.data("click", [None, 1])
    flat = fluid.initializer.Uniform(-0.01, 0.01)
    attr = fluid.ParamAttr("table", initializer=flat)
    rows = fluid.layers.embedding(ids, [IDS, WIDTH + 1], is_sparse=True, param_attr=attr)
    wide = fluid.layers.reduce_sum(fluid.layers.slice(rows, [2], [0], [1]), 1)
    deep = fluid.layers.reshape(rows, [-1, FIELDS * (WIDTH + 1)])
    deep = fluid.layers.fc(fluid.layers.fc(deep, HIDDEN, act="relu"), 1)
    logit = wide + deep
    loss = fluid.layers.mean(fluid.layers.sigmoid_cross_entropy_with_logits(logit, click))
    return loss, fluid.layers.sigmoid(logit)


def transpiled(mode: str, trainer: int, endpoints: list[str]) -> tuple[Any, ...]:
    """Return transpiler, programs (to train, to test, to begin), loss and probability of a trainer."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = SEED
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, probability = net()
        fluid.optimizer.Adam(RATE, lazy_mode=True).minimize(loss)
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode = mode == "sync"
    config.half_async = mode == "half-async"
    config.geo_sgd_mode, config.geo_sgd_need_push_nums = mode == "geo", EVERY
    transpiler = fluid.DistributeTranspiler(config)
    transpiler.transpile(
        trainer,
        program=main,
        pservers=",".join(endpoints),
        trainers=TRAINERS,
        sync_mode=config.sync_mode,
        startup_program=startup,
    )
    for endpoint in endpoints:
        transpiler.get_pserver_programs(endpoint)
    main = transpiler.get_trainer_program(wait_port=False)
    return transpiler, main, main.clone(for_test=True), startup, loss, probability


class Training:
    """One training in a mode. ``auc``: of the servers' parameters when all trainers are done."""

    def __init__(
        self, mode: str, clicks: Clicks, steps: int, rows: int, paces: list[float]
    ) -> None:
        self.clicks, self.steps, self.rows, self.paces = clicks, steps, rows, paces
        self.endpoints = [f"127.0.0.1:{next(_ports)}" for _ in range(SERVERS)]
        self.trainers = [transpiled(mode, i, self.endpoints) for i in range(TRAINERS)]
        self.done = threading.Barrier(TRAINERS)
        self.auc, self.staleness = 0.0, dict[int, Any]()
        self.errors: list[BaseException] = []

    def run(self) -> float:
        """Train; return the processor's seconds."""
        calls: list[tuple[Any, Any]] = [(self.serve, endpoint) for endpoint in self.endpoints]
        calls += [(self.train, number) for number in range(TRAINERS)]
        threads = [threading.Thread(target=self.attempt, args=call) for call in calls]
        began = time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        return time.process_time() - began

    def attempt(self, role: Any, argument: Any) -> None:
        """Play a role; keep what it raises."""
        try:
            role(argument)
        except BaseException as error:
            self.errors.append(error)
            self.done.abort()

    def serve(self, endpoint: str) -> None:
        """Be a server until the trainers are done."""
        program, startup = self.trainers[0][0].get_pserver_programs(endpoint)
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        exe.run(startup, scope=scope)
        exe.run(program, scope=scope)

    def train(self, number: int) -> None:
        """Be a trainer; the first one tests in the end."""
        _, main, test, startup, loss, probability = self.trainers[number]
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        try:
            exe.run(startup, scope=scope)
            for feed in self.clicks.batches(number, self.steps, self.rows):
                time.sleep(self.paces[number])
                exe.run(main, feed, [loss], scope=scope)
            self.done.wait()
            if not number:
                for session in exe._trainer_runs.sessions:
                    self.staleness = session.reports()[0].facts["trainers"]
                exe.run(startup, scope=scope)  # receives what all trainers' last steps made
                self.auc = self.tested(exe, test, probability, scope)
            self.done.wait()
        finally:
            exe.close()

    def tested(self, exe: Any, test: Any, probability: Any, scope: Any) -> float:
        """Return the AUC on the rows that were held back."""
        rows, _ = self.clicks.test()
        measure = fluid.metrics.Auc("auc", num_thresholds=(1 << 16) - 1)
        for first in range(0, TEST_ROWS, TEST_BATCH):
            feed = {name: array[first : first + TEST_BATCH] for name, array in rows.items()}
            (clicked,) = exe.run(test, feed, [probability.name], scope=scope)
            measure.update(np.hstack([1 - clicked, clicked]), feed["click"].astype("int64"))
        return float(measure.eval())


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__)
    line.add_argument("--steps", type=int, default=500, help="of each trainer")
    line.add_argument("--rows", type=int, default=256, help="of a batch")
    line.add_argument("--paces", default="0,0", help="milliseconds that each trainer sleeps a step")
    line.add_argument("--modes", default=",".join(MODES))
    arguments = line.parse_args()
    paces = [float(each) / 1e3 for each in arguments.paces.split(",")]
    clicks = Clicks()
    rows, probabilities = clicks.test()
    print(
        f"{FIELDS} fields, {IDS:,} ids, {arguments.steps} steps of {arguments.rows} rows by each of "
        f"{TRAINERS} trainers, {SERVERS} servers, paces {arguments.paces} ms; "
        f"{rows['click'].mean():.0%} clicked"
    )
    measure = fluid.metrics.Auc("auc", num_thresholds=(1 << 16) - 1)
    measure.update(np.stack([1 - probabilities, probabilities], 1), rows["click"].astype("int64"))
    print(f"AUC of the probabilities themselves: {measure.eval():.4f}")
    print(f"{'mode':12}{'AUC':>8}{'staleness: mean':>18}{'max':>6}{'steps':>8}{'processor s':>14}")
    with rowlock.cluster(launcher="threads", step_deadline_s=120):
        for mode in arguments.modes.split(","):
            training = Training(mode, clicks, arguments.steps, arguments.rows, paces)
            seconds = training.run()
            facts = [one["staleness"] for one in training.staleness.values()]
            mean, most = np.mean([f["mean"] for f in facts]), max(f["max"] for f in facts)
            steps = facts[0]["steps"]
            print(
                f"{mode:12}{training.auc:8.4f}{mean:18.2f}{most:6}{steps:8}{seconds:14.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
