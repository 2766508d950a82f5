"""What each switch of BuildStrategy does: a program on which it does something, with the switch on and off.

    OMP_NUM_THREADS=1 python benchmarks/switches.py --switches fuse_bn_act_ops fused_attention

Two Ray replicas of one core each. Both variants take turns, so that a noisy neighbour disturbs both. Bytes
are the temporaries of one replica. "loss" is the largest relative difference between the losses of the
first steps: a switch keeps results, but for rounding, unless its row says that it changes them.
"""

import argparse
import datetime
import os
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_worker_niceness", "0")

import rowlock
import rowlock.fluid as fluid
from benchmarks import models
from benchmarks.contenders import keep

COMPARED = 3  # steps
SAME = 1e-3  # of a loss: rounding, after a few steps of training


def chain(fluid, rng):
    """Activations, sums and products one after the other, on 2 x 256 rows of 1024, SGD."""
    layers = fluid.layers
    x, y = layers.data("x", [1024]), layers.data("y", [1])
    hidden = layers.fc(x, 1024)
    for _ in range(4):
        hidden = layers.elementwise_mul(layers.sigmoid(hidden), layers.tanh(hidden))
        hidden = layers.elementwise_add(layers.scale(hidden, 1.5, bias=0.1), x)
    loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 1), y))
    feed = {"x": rng.randn(512, 1024).astype("float32"), "y": rng.randn(512, 1).astype("float32")}
    return loss, fluid.optimizer.SGD(1e-3), feed


def many_parameters(fluid, rng):
    """Sixty layers of width 32, so that there are many small gradients and updates; 2 x 8 rows, Adam."""
    layers = fluid.layers
    x, y = layers.data("x", [32]), layers.data("y", [1])
    hidden = x
    for _ in range(60):
        hidden = layers.elementwise_add(layers.fc(hidden, 32, act="tanh"), hidden)
    loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 1), y))
    feed = {"x": rng.randn(16, 32).astype("float32"), "y": rng.randn(16, 1).astype("float32")}
    return loss, fluid.optimizer.Adam(1e-3), feed


def decayed(fluid, rng):
    """The same with AdamW, which decays weights beside the gradient."""
    loss, _, feed = many_parameters(fluid, rng)
    return loss, rowlock.optimizer.AdamW(1e-3, weight_decay=0.01), feed


def long_attention(fluid, rng):
    """One attention over 1024 positions, four heads of 32, 2 x 1 rows, SGD."""
    size = {"width": 128, "heads": 4, "length": 1024}
    x, y = fluid.layers.data("x", [1024, 128]), fluid.layers.data("y", [1024, 128])
    out = models.attention(fluid, models.normed(fluid, x), size)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
    feed = {name: rng.randn(2, 1024, 128).astype("float32") for name in ("x", "y")}
    return loss, fluid.optimizer.SGD(1e-3), feed


models.EVERY.update(
    {made.__name__: made for made in (chain, many_parameters, decayed, long_attention)}
)
REDUCE = {"reduce_strategy": fluid.BuildStrategy.ReduceStrategy.Reduce}
Row = namedtuple("Row", "switch model also changes")
ROWS = [
    Row("fuse_elewise_add_act_ops", "mlp", {}, False),
    Row("fuse_bn_act_ops", "mobilenet", {}, False),
    Row("fuse_bn_add_act_ops", "resnet18", {}, False),
    Row("fuse_relu_depthwise_conv", "mobilenet", {}, False),
    Row("fuse_gemm_epilogue", "encoder", {}, False),
    Row("fused_attention", "long_attention", {}, False),
    Row("fused_attention", "gpt", {}, False),
    Row("fused_feedforward", "gpt", {}, False),
    Row("enable_auto_fusion", "chain", {}, False),
    Row("fuse_all_optimizer_ops", "many_parameters", {}, False),
    Row("fuse_adamw", "decayed", {}, False),
    Row("fuse_all_reduce_ops", "many_parameters", {}, False),
    Row("fuse_broadcast_ops", "many_parameters", REDUCE, False),
    Row("enable_inplace", "resnet18", {}, False),
    Row("memory_optimize", "resnet18", {}, False),
    Row("enable_addto", "gpt", {}, False),
    Row("build_cinn_pass", "mlp", {}, False),
    Row("build_cinn_pass", "resnet18", {}, False),
    Row("build_cinn_pass", "gpt", {}, False),
    Row("sync_batch_norm", "mobilenet", {}, True),
    Row("enable_sequential_execution", "mlp", {}, False),
]


class Variant:
    """A model of its own with one switch set."""

    def __init__(self, row, on):
        main, startup, self.loss, self.feed = models.build(fluid, row.model)
        self.exe, self.scope = fluid.Executor(), fluid.Scope()
        self.exe.run(startup, scope=self.scope)
        build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
        for name, value in {**row.also, row.switch: on}.items():
            setattr(build, name, value)
        # until it is asked how many bytes are alive
        execution.num_iteration_per_drop_scope = 1 << 20
        self.program = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=self.loss.name,
            build_strategy=build,
            exec_strategy=execution,
            places=fluid.cpu_places(2),
        )
        self.losses = [float(np.mean(self.step())) for _ in range(COMPARED)]
        self.times = []

    def step(self):
        """Run one step and return its losses."""
        return self.exe.run(self.program, self.feed, [self.loss], scope=self.scope)[0]

    def timed(self, steps):
        """Keep the milliseconds of some steps."""
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            self.times.append(1e3 * (time.perf_counter() - start))

    def nbytes(self):
        """Return the bytes of temporaries on one replica."""
        self.exe.run(self.program, self.feed, [], scope=self.scope)
        return self.program.temporaries()[1] // 2

    def notes(self, switch):
        """Return what the compiler says about the switch."""
        lines = str(self.program.explain()).splitlines()
        return [line.strip() for line in lines if line.strip().startswith(switch)]


def measure(row, rounds, steps):
    """Return the numbers of one row of the table."""
    variants = {"off": Variant(row, False), "on": Variant(row, True)}
    for variant in variants.values():
        variant.timed(3)
        variant.times.clear()
    for _ in range(rounds):
        for variant in variants.values():
            variant.timed(steps)
    on, off = variants["on"], variants["off"]
    apart = max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(on.losses, off.losses, strict=True))
    result = {"switch": row.switch, "model": row.model, "loss": apart, "changes": row.changes}
    for name, variant in variants.items():
        result[name] = {"ms": float(np.median(variant.times)), "bytes": variant.nbytes()}
        result[name]["quartiles"] = np.percentile(variant.times, [25, 75]).tolist()
    return {**result, "notes": on.notes(row.switch)}


def line_of(result):
    """Return a row as text."""
    on, off = result["on"], result["off"]
    verdict = (
        "same"
        if result["loss"] <= SAME
        else "changed, as asked"
        if result["changes"]
        else "DIFFERS"
    )
    return "{:28} {:16} {:9.2f} {:9.2f} {:6.2f} {:10.2f} {:10.2f}   {:.0e} {}".format(
        result["switch"], result["model"], off["ms"], on["ms"], on["ms"] / off["ms"],
        off["bytes"] / 2**20, on["bytes"] / 2**20, result["loss"], verdict,
    )  # fmt: skip


HEAD = "{:28} {:16} {:>9} {:>9} {:>6} {:>10} {:>10}   {}".format(
    "switch", "model", "off ms", "on ms", "on/off", "off MiB", "on MiB", "loss"
)


def run():
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(row.switch for row in ROWS))
    parser.add_argument("--switches", nargs="+", default=names, choices=names)
    parser.add_argument("--models", nargs="+", help="only rows with these")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="of each round")
    parser.add_argument("--launcher", default="ray", choices=("ray", "threads"))
    options = parser.parse_args()
    rows = [row for row in ROWS if row.switch in options.switches]
    rows = [row for row in rows if not options.models or row.model in options.models]
    table = []
    print(HEAD, flush=True)
    for row in rows:
        with rowlock.cluster(launcher=options.launcher):
            try:
                table.append(measure(row, options.rounds, options.steps))
            except Exception as error:  # the other rows are still worth having
                print(
                    "{:28} {:16} {}: {}".format(row.switch, row.model, type(error).__name__, error)
                )
                continue
        print(line_of(table[-1]), flush=True)
        for note in table[-1]["notes"]:
            print("    " + note)
    text = "\n".join([HEAD, *map(line_of, table)])
    about = {"rounds": options.rounds}
    print(keep("switches", datetime.datetime.now(), about, {"rows": table}, text))


if __name__ == "__main__":
    run()
