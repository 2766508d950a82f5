"""``fluid.install_check``: try the installation."""

import numpy as np

from ..executor.device.place import CPUPlace, cpu_places
from ..executor.feed.scope import Scope, scope_guard
from ..graph.layers.io import checked_data
from ..names import publish_definitions
from . import unique_name
from .compiler import CompiledProgram
from .executor import Executor
from .framework import Program, program_guard
from .layers import fc, reduce_sum
from .optimizer import SGD


def run_check() -> None:
    """Train a linear layer for a step on one place, then on two replicas, and print that both worked."""
    print("Training a linear layer on one place.")
    _train(places=0)
    places = cpu_places(2)
    print(f"Training it on {len(places)} replicas.")
    _train(places=len(places))
    print("Rowlock works on this machine, on one place and in parallel.")


def _train(places: int) -> None:
    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup), unique_name.guard(), scope_guard(scope):
        x = checked_data("x", [None, 2])
        loss = reduce_sum(fc(x, 3))
        SGD(learning_rate=0.01).minimize(loss)
        exe = Executor(CPUPlace())
        exe.run(startup)
        program = CompiledProgram(main)
        if places:
            program = program.with_data_parallel(loss.name, places=cpu_places(places))
        feed = {"x": np.ones((4, 2), "float32")}
        exe.run(program, feed=feed, fetch_list=[loss])
        exe.close()


publish_definitions(__name__)
