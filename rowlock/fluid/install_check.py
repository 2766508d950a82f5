"""``fluid.install_check``: try the installation."""

import numpy as np

from ..names import listing, missing

__all__ = ["run_check"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)


def run_check() -> None:
    """Train a linear layer for a step on one place, then on two replicas, and print that both worked."""
    from .. import fluid

    print("Training a linear layer on one place.")
    _train(places=0)
    places = fluid.cpu_places(2)
    print(f"Training it on {len(places)} replicas.")
    _train(places=len(places))
    print("Rowlock works on this machine, on one place and in parallel.")


def _train(places: int) -> None:
    from .. import fluid

    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with (
        fluid.program_guard(main, startup),
        fluid.unique_name.guard(),
        fluid.scope_guard(scope),
    ):
        x = fluid.data("x", [None, 2])
        loss = fluid.layers.reduce_sum(fluid.layers.fc(x, 3))
        fluid.optimizer.SGD(learning_rate=0.01).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        program = fluid.CompiledProgram(main)
        if places:
            program = program.with_data_parallel(loss.name, places=fluid.cpu_places(places))
        feed = {"x": np.ones((4, 2), "float32")}
        exe.run(program, feed=feed, fetch_list=[loss])
        exe.close()
