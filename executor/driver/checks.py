"""Before a step: check that persistables hold values, and write the scheduled learning rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...graph.ir.graph import STATE
from ...graph.ir.replica_program import ReplicaProgram
from ...graph.program.program import Program
from ...graph.program.where import warn_user
from ...strategies.errors import InvalidState, NotInitialized, first_of
from ...strategies.types import to_numpy
from ..device.tensor import Tensor
from ..feed.scope import Scope


def check_initialized(program: ReplicaProgram, scope: Scope) -> None:
    """Refuse to run while a persistable that the program reads has no value, or one of another type.

    Raises:
        NotInitialized: names the variables without a value.
        InvalidState: names a variable of another type than the program has it. But counts that were set to
            whole floats, such as zeros, are counts again.
    """
    tensors = {name: scope.find_tensor(name) for name in program.needed_names()}
    for tensor in tensors.values():
        if tensor is None or tensor.initialized:
            continue
        if tensor.newer_elsewhere or tensor.absence:
            tensor.memory()  # an earlier step was fed it, or computed it first; or it says why it has none
    missing = [name for name, tensor in tensors.items() if tensor is None or not tensor.initialized]
    if missing:
        cure = "Run the startup program first: exe.run(startup_program)."
        if len(missing) < len(tensors):
            cure = (
                "Others do: run the startup program once all of the program is built, for each layer and "
                "optimizer adds to it."
            )
        raise NotInitialized(
            f"{len(missing)} variable(s) hold no value in the scope: {first_of(map(repr, missing))}. {cure}"
        )
    for value in program.values:
        tensor = tensors.get(value.name)
        if value.kind == STATE and not value.version and tensor is not None:
            _warn_of_shape(value.name, value.spec.shape, tensor.memory(newest=False).shape)
            _check_type(value.name, tensor, to_numpy(value.spec.dtype))


def _check_type(name: str, tensor: Tensor, declared: np.dtype) -> None:
    """Refuse a value of another type than is declared; make counts of whole floats, such as zeros."""
    array = tensor.memory(newest=False)
    if array.dtype == declared:
        return
    counts = declared.kind == "i" and array.dtype.kind == "f" and np.isfinite(array).all()
    if counts and (array == np.trunc(array)).all():
        tensor.set(array.astype(declared))
        return
    cure = f"Write it as that: tensor.set(array.astype({declared.name!r}), place)."
    if "float16" in f"{array.dtype} {declared}":
        cure = (
            "After the startup program call amp_init(place) of the decorated optimizer, and give it the test "
            "program."
        )
    raise InvalidState(
        f"variable {name!r} holds {array.dtype}, but the program has it as {declared}. {cure}"
    )


def _warn_of_shape(name: str, declared: Sequence[int], actual: Sequence[int]) -> None:
    """Warn of a value that another program wrote under the same name; a smaller net may be meant, too."""
    fits = len(declared) == len(actual) and all(
        size in (-1, there) for size, there in zip(declared, actual, strict=True)
    )
    if not fits:
        warn_user(
            f"variable {name!r} has shape {list(actual)} in the scope, and the program declares "
            f"{list(declared)}. If another program of the same names wrote it, run this one's startup "
            f"program again, or give each a scope of its own (fluid.scope_guard(fluid.Scope()))."
        )


def set_scheduled_rate(program: Program, scope: Scope) -> None:
    """Write the learning rate that the program's Python scheduler gives now, if it changed."""
    scheduler, name = program.lr_scheduler
    tensor = scope.home(name).get_tensor()
    dtype = program.global_block().var(name).dtype
    assert dtype is not None
    rate = np.full((1,), scheduler(), to_numpy(dtype))
    if not tensor.initialized or not np.array_equal(tensor.memory(), rate):
        tensor.set(rate)
