"""What must hold before a step begins: persistables hold values, and the learning rate is the scheduler's."""

from __future__ import annotations

import numpy as np

from ...graph.ir.graph import STATE
from ...graph.ir.replica_program import ReplicaProgram
from ...graph.program.program import Program
from ...strategies.errors import InvalidState, NotInitialized
from ...strategies.types import to_numpy
from ..feed.scope import Scope


def check_initialized(compiled: ReplicaProgram, scope: Scope) -> None:
    """Refuse to run while a persistable that the program reads holds nothing, or was not made low precision.

    Raises:
        NotInitialized: names the variables.
        InvalidState: a variable is in low precision in the program only, or in the scope only.
    """
    missing = []
    for name in compiled.needed_names():
        found = scope.find_var(name)
        if found is None or not found.get_tensor().initialized:
            missing.append(name)
    if missing:
        shown = ", ".join(repr(name) for name in missing[:5]) + (
            ", ..." if len(missing) > 5 else ""
        )
        raise NotInitialized(
            f"{len(missing)} variable(s) hold no value in the scope: {shown}. "
            f"Run the startup program first: exe.run(startup_program)."
        )
    for value in compiled.values:
        if value.kind == STATE and value.version == 0:
            wanted = to_numpy(value.spec.dtype)
            held = scope.find_var(value.name).get_tensor().memory(newest=False).dtype  # type: ignore[union-attr]
            if held != wanted and "float16" in f"{held} {wanted}":
                raise InvalidState(
                    f"variable {value.name!r} holds {held}, but the program has it as {wanted}. After the "
                    f"startup program call amp_init(place) of the decorated optimizer, and give it the test "
                    f"program."
                )


def set_scheduled_rate(program: Program, scope: Scope) -> None:
    """Write the learning rate that the program's Python scheduler gives now, if it changed."""
    scheduler, name = program.lr_scheduler
    tensor = scope.home(name).get_tensor()
    rate = np.full((1,), scheduler(), np.float32)
    if not tensor.initialized or not np.array_equal(tensor.memory(), rate):
        tensor.set(rate)
