"""Functions of the host that ops declare (``Op.host``): there the sizes of their results are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from ....graph.ops.registry import OPS
from ..registry import each_step


def _writing(compute: Callable[[Any], Mapping[str, Any]]) -> Callable[[Any], None]:
    @wraps(compute)
    def write(a: Any) -> None:
        arrays = vars(a)
        for name, value in compute(a).items():
            if arrays.get(name) is not None:
                arrays[name][...] = value

    return write


for _op in OPS.values():
    if _op.host is not None:
        each_step(_op.type, on=("numpy",))(_writing(_op.host))
