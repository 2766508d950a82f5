"""A contender of the fluid API: ``fluid_steps.py rowlock.fluid|paddle.fluid [build strategy as JSON]``.

Two places of a core each. Rowlock's are two Ray replicas, unless ``LAUNCHER`` says ``threads``.
"""

import importlib
import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np

os.environ.setdefault("CPU_NUM", "2")
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models import build as build_model
from benchmarks.workers.serve import serve

NAME = sys.argv[1] if len(sys.argv) > 1 else "rowlock.fluid"
SWITCHES = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
fluid = importlib.import_module(NAME)


def about():
    """Return versions, and the switches in use."""
    package = importlib.import_module(NAME.split(".")[0])
    versions = {"python": sys.version.split()[0], "numpy": np.__version__}
    versions[NAME.split(".")[0]] = str(getattr(package, "__version__", "?"))
    if NAME == "rowlock.fluid":
        from rowlock.executor.kernels.capabilities import installed

        versions.update(installed())
    return versions


def build(model):
    """Return a step of the model on two places."""
    main, startup, loss, feed = build_model(fluid, model)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    strategy, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    for name, value in SWITCHES.items():
        setattr(strategy, name, value)
    if NAME == "paddle.fluid":
        execution.num_threads = 2  # one for each place; its default is more
    with fluid.scope_guard(scope):
        exe.run(startup)
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        loss_name=loss.name,
        build_strategy=strategy,
        exec_strategy=execution,
        places=fluid.cpu_places(2),
    )

    feeds = itertools.cycle(feed if isinstance(feed, list) else [feed])

    def step():
        (losses,) = exe.run(compiled, feed=next(feeds), fetch_list=[loss], scope=scope)
        return np.mean(losses)

    trained = [p for p in main.all_parameters() if p.trainable]
    step.weights = sum(int(np.prod(parameter.shape)) for parameter in trained)
    return step


def run():
    """Serve, with replicas as the environment says."""
    if NAME == "rowlock.fluid" and os.environ.get("LAUNCHER"):
        import rowlock

        with rowlock.cluster(launcher=os.environ["LAUNCHER"]):
            serve(about, build)
    else:
        serve(about, build)


if __name__ == "__main__":
    run()
