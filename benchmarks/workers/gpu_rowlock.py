"""A contender of ``benchmarks/gpu.py``: Rowlock on one place, with the switches that cost no memory."""

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

import rowlock
import rowlock.fluid as fluid
from benchmarks import large_models
from benchmarks.models import MODELS
from benchmarks.models import build as build_small
from benchmarks.rivals import FASTER
from benchmarks.workers.gpu_serve import Settings, Steps, parted, serve_steps
from rowlock.executor.device.gpus import open_gpu
from rowlock.executor.kernels.capabilities import installed

TOLD = Settings()
PLACE = fluid.CUDAPlace(0) if TOLD.on_gpu else fluid.CPUPlace()


class Declined(logging.Handler):
    """Keeps what the libraries' sides say of plans that they leave out, each once."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.lines = {}
        logger = logging.getLogger("rowlock")
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)

    def emit(self, record):
        """Keep a line."""
        if Path(record.pathname).parent.name == "cuda":
            self.lines[record.getMessage()] = None


DECLINED = Declined()


def about():
    """Return versions, and which GPU."""
    runtime = open_gpu(0) if TOLD.on_gpu else None
    versions = {"python": sys.version.split()[0], "numpy": np.__version__, **installed(runtime)}
    if runtime is not None:
        versions["GPU"] = "{0.name}, {0.memory:,} bytes".format(runtime.properties)
    return versions


def small(name):
    """Return a small net's program, loss, batches for one of its two places, startup and switches."""
    main, startup, loss, feed = build_small(fluid, name)
    half = {key: array[: len(array) // 2] for key, array in feed.items()}
    return main, startup, loss, [half], dict.fromkeys(FASTER, True)


def memory(compiled):
    """Return the bytes of a step and of persistables as planned, and what was taken of the device."""
    planned = compiled.explain().memory
    sizes = {"planned": planned.total} if planned is not None else {}
    if TOLD.on_gpu and "cupy" in sys.modules:
        sizes["peak"] = sys.modules["cupy"].get_default_memory_pool().total_bytes()
    return sizes


def build(model):
    """Return the steps of a model."""
    name, precision = parted(model)
    DECLINED.lines.clear()
    optimizer = None
    if name in MODELS:
        main, startup, loss, batches, switches = small(name)
    else:
        kind = "bfloat16" if precision == "bfloat16" else "float32"
        net = large_models.build(name, TOLD.size(name), kind)
        main, startup, loss = net.main, net.startup, net.loss
        batches, switches = TOLD.batches(name), dict(large_models.SWITCHES[name])
        optimizer = net.optimizer if kind == "bfloat16" else None
    if precision == "tf32":
        switches["gpu_math"] = "tf32"
    strategy = fluid.BuildStrategy()
    for switch, value in switches.items():
        setattr(strategy, switch, value)
    exe, scope = fluid.Executor(PLACE), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        if optimizer is not None:
            optimizer.amp_init(PLACE)
    compiled = fluid.CompiledProgram(main).with_data_parallel(
        loss_name=loss.name, build_strategy=strategy, places=[PLACE]
    )
    turn = iter(range(sys.maxsize))

    def begin():
        batch = batches[next(turn) % len(batches)]
        return exe.run_async(compiled, feed=batch, fetch_list=[loss], scope=scope)

    def loss_of(future):
        return float(np.mean(np.asarray(future.result()[0], "float64")))

    return Steps(begin, loss_of, lambda: memory(compiled), lambda: list(DECLINED.lines))


if __name__ == "__main__":
    with rowlock.cluster(launcher="threads"):
        serve_steps(about, build)
