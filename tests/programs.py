"""Short forms of what most tests do to a program: build it, and compile it for several places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

import rowlock
import rowlock.fluid as fluid
from tests.reference import models


@contextmanager
def own_programs(seed: int = 0) -> Iterator[tuple[fluid.Program, fluid.Program]]:
    """Build into programs of the block's own, with names of their own; yield main and startup program."""
    main, startup = fluid.Program(), fluid.Program()
    if seed:
        main.random_seed = startup.random_seed = seed
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        yield main, startup


def on_places(
    program: Any,
    places: Any,
    loss: Any = None,
    build: Any = None,
    execution: Any = None,
    share_vars_from: Any = None,
) -> fluid.CompiledProgram:
    """Compile a program for so many CPU places, or for those that are given.

    ``loss``: what it trains by, a variable or a name; ``build``, ``execution``: strategies, or their fields.
    """
    return fluid.CompiledProgram(program).with_data_parallel(
        loss_name=getattr(loss, "name", loss),
        build_strategy=fluid.BuildStrategy(**build) if isinstance(build, Mapping) else build,
        exec_strategy=(
            fluid.ExecutionStrategy(**execution) if isinstance(execution, Mapping) else execution
        ),
        share_vars_from=share_vars_from,
        places=fluid.cpu_places(places) if isinstance(places, int) else places,
    )


def executor_after(
    startup: fluid.Program | None = None, scope: fluid.Scope | None = None
) -> fluid.Executor:
    """Return an executor for CPUs that has run a startup program (None: the default one)."""
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program() if startup is None else startup, scope=scope)
    return exe


def trained(
    name: str, places: int, steps: int, build: Any = None, execution: Any = None, **cluster: Any
) -> tuple[dict[str, np.ndarray], list[list[Any]], fluid.CompiledProgram]:
    """Train a model of ``tests/reference/models.py`` on places that are threads.

    Returns every persistable, what each step fetches, and the program. ``cluster``: settings of it.
    """
    model = models.build(name, fluid)
    model.main.random_seed = 7
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope), rowlock.cluster(launcher="threads", **cluster):
        exe.run(model.startup)
        models.set_initial_values(model.main, scope, fluid.CPUPlace())
        program = on_places(model.main, places, model.loss, build, execution)
        fetches = [model.loss, *model.fetches.values()]
        fetched = [exe.run(program, models.feed(name, step), fetches) for step in range(steps)]
        names = [v.name for v in model.main.list_vars() if v.persistable]
        values = {n: np.array(scope.find_var(n).get_tensor()) for n in names}
    return values, fetched, program
