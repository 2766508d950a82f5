"""Write down what is compiled of the benchmark models, and the bits they compute: before and after a change.

    python -m benchmarks.compiled before     # then change the compiler, and
    python -m benchmarks.compiled after && diff -r before after

For each model, plain and with the fusions, on one place and on two (threads): what ``explain()`` says, the
programs that replicas get, their plans, and the bits of three losses. Kernels are chosen by rule.
"""

from __future__ import annotations

import argparse
import gc
import re
from pathlib import Path
from typing import Any

import numpy as np

import rowlock
import rowlock.fluid as fluid
from benchmarks import models
from rowlock.executor.plan.plan import Plan
from rowlock.graph.ir.replica_program import ReplicaProgram

FUSIONS = (
    "fuse_elewise_add_act_ops",
    "fuse_bn_act_ops",
    "fuse_all_optimizer_ops",
    "enable_auto_fusion",
    "fuse_gemm_epilogue",
    "fused_attention",
    "fused_feedforward",
)
TIMES = re.compile(r"[\d.]+ (s|ms|us)\b")


def text_of(name: str, places: int, fused: bool) -> str:
    """Return what is compiled of a model, as text."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    execution.num_threads = 1
    build.measure_kernels = False  # times differ from run to run
    for switch in FUSIONS:
        setattr(build, switch, fused)
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
        rowlock.cluster(launcher="threads"),
    ):
        loss, optimizer, feed = models.MODELS[name](fluid, np.random.RandomState(0))
        optimizer.minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        gc.collect()
        compiled = fluid.CompiledProgram(main).with_data_parallel(
            loss_name=loss.name,
            build_strategy=build,
            exec_strategy=execution,
            places=fluid.cpu_places(places),
        )
        losses = [exe.run(compiled, feed=feed, fetch_list=[loss])[0] for _ in range(3)]
        report = TIMES.sub("TIME", str(compiled.explain()))
        parts = [report, *_living(ReplicaProgram), *_living(Plan)]
    bits = [value.tobytes().hex() for value in losses]
    return "\n\n".join([*parts, *bits, ""]).replace(str(Path.cwd()), "ROOT")


def _living(kind: type) -> list[str]:
    """Return the distinct texts of all objects of a kind, in order."""
    objects: list[Any] = [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
    return sorted(
        {o.schedule + "\n" + o.to_json() if kind is ReplicaProgram else str(o) for o in objects}
    )


def main() -> None:
    """Write a file for each model and way to run it into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in models.MODELS:
        for places in (1, 2):
            for fused in (False, True):
                file = f"{name}.{places}.{'fused' if fused else 'plain'}"
                (folder / file).write_text(text_of(name, places, fused))
                print(file, flush=True)


if __name__ == "__main__":
    main()
