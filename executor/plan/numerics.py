"""Find the first operator of a step that makes a value which is not finite (``rowlock.check_numerics``).

While it is on, a program is compiled so that every operator looks at what it made, and nothing that lasts is
written before all replicas have looked: a step that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...strategies.errors import InvalidType
from ...strategies.flags import flag_value, set_flags
from ...strategies.types import is_float
from ..cuda.runtime import Reading

FLAG = "FLAGS_check_nan_inf"


class check_numerics:
    """Let every step name the first operator that makes NaN or infinity, until it is switched off.

    ``rowlock.check_numerics()`` does so from now on, ``rowlock.check_numerics(False)`` ends it, and
    ``with rowlock.check_numerics():`` is for the length of a block. It is the flag ``FLAGS_check_nan_inf``.
    Gradients of a program that scales its loss may overflow, and are not looked at.

    Raises:
        InvalidType: ``on`` is no bool.
    """

    def __init__(self, on: bool = True) -> None:
        if not isinstance(on, bool):
            raise InvalidType(f"check_numerics takes True or False, got {on!r}.")
        self._before = checking()
        set_flags({FLAG: on})

    def __enter__(self) -> check_numerics:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        set_flags({FLAG: self._before})


def checking() -> bool:
    """Tell whether steps look for values that are not finite."""
    return bool(flag_value(FLAG))


def looks(
    program: ReplicaProgram, number: int, node: NodeRecord, arrays: Mapping[int, Any], xp: Any
) -> list[Callable[[], Any]]:
    """Return the calls that look at what node ``number`` made: none, unless the program asks for it."""
    if number not in program.checked:
        return []
    outputs = _named(program, arrays, node.outputs)
    addresses = {id(array) for array in outputs.values()}
    inputs = {
        name: array
        for name, array in _named(program, arrays, node.inputs).items()
        if id(array) not in addresses
    }
    return [Reading(_look, outputs, inputs, xp)] if outputs else []


def _named(
    program: ReplicaProgram, arrays: Mapping[int, Any], slots: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Return the floating-point arrays of an operator by name."""
    return {
        program.values[i].name: arrays[i]
        for positions in slots.values()
        for i in positions
        if i >= 0 and arrays[i] is not None and is_float(np.dtype(arrays[i].dtype))
    }


def _look(outputs: Mapping[str, Any], inputs: Mapping[str, Any], xp: Any) -> None:
    for name, array in outputs.items():
        values = _on_host(array, xp)
        if np.isfinite(values).all():
            continue
        bad = [key for key, other in inputs.items() if not np.isfinite(_on_host(other, xp)).all()]
        cause = f"{', '.join(bad)} held such values before" if bad else "all it read is finite"
        raise FloatingPointError(f"it made {name!r}, which holds {_describe(values)}; {cause}")


def _on_host(array: Any, xp: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else np.asarray(xp.asnumpy(array))


def _describe(values: np.ndarray) -> str:
    """Say how many elements are not finite, and where the first is."""
    nans = int(np.isnan(values).sum())
    others = int(np.isinf(values).sum())
    parts = [f"{count} {what}" for count, what in ((nans, "NaN"), (others, "inf")) if count]
    first = np.argwhere(~np.isfinite(values))[0].tolist()
    return f"{' and '.join(parts)} of {values.size} elements (first at {first})"


__all__ = ["FLAG", "check_numerics", "checking", "looks"]
