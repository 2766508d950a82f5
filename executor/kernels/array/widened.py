"""Kernels on float16 and bfloat16: operands are widened, the work is done in float32, results are rounded once.

Numbers that are not low-precision floats are given to the kernel as they are. Results are written behind all
reads, so an output may lie where an operand does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ....strategies.types import BFLOAT16, LOW_DTYPES, is_low
from ...device.device import Device

Step = Callable[[], Any]
Arrays = Mapping[str, Any]  # by parameter: an array, a list of them, or None


def has_low(arrays: Arrays) -> bool:
    """Tell whether any of the arrays holds low-precision floats."""
    for operand in arrays.values():
        if isinstance(operand, list):
            if any(array is not None and array.dtype in LOW_DTYPES for array in operand):
                return True
        elif operand is not None and operand.dtype in LOW_DTYPES:
            return True
    return False


def widened(
    dev: Device,
    arrays: Arrays,
    written: Iterable[str],
    bind: Callable[[Arrays], Iterable[Step]],
    factors: Iterable[str] = (),
) -> list[Step]:
    """Return the calls of a kernel, bound to float32 in the place of low-precision arrays.

    ``written`` are the parameters that stand for outputs; ``bind`` binds the kernel, which takes ``factors`` in
    bfloat16 as they are where products are computed so. Other factors that were bfloat16 may be read as
    bfloat16 again, where the device has faster instructions for that.
    """
    outcome = frozenset(written)
    math = _math(dev, _low(arrays.values()))
    outputs = {id(a): a for a in _low(arrays[name] for name in arrays if name in outcome)}
    narrow = frozenset(factors) if math == "bfloat16" else frozenset()
    read = arrays.keys() - outcome - narrow
    inputs = {id(a): a for a in _low(arrays[name] for name in arrays if name in read)}
    wide = {i: dev.scratch_like(a, np.float32) for i, a in {**inputs, **outputs}.items()}
    copy = dev.xp.copyto

    def swapped(operand: Any) -> Any:
        if isinstance(operand, list):
            return [swapped(array) for array in operand]
        return wide.get(id(operand), operand)

    exact, dev.math = dev.math, math
    try:
        # By name: a factor may lie where a result will, whose scratch has no elements of it.
        steps = bind({n: a if n in narrow else swapped(a) for n, a in arrays.items()})
    finally:
        dev.math = exact
    return [
        *(partial(copy, wide[i], a) for i, a in inputs.items()),
        *steps,
        *(partial(copy, a, wide[i], casting="unsafe") for i, a in outputs.items()),
    ]


def _math(dev: Device, low: Iterable[Any]) -> str:
    """Return how exact products need be: oneDNN multiplies bfloat16 about twice as fast."""
    # Not above: kernels of oneDNN register themselves in the table, which needs this module.
    from ..onednn.library import library

    dnnl = library()
    rounds = dev.runtime is None and dnnl is not None and dnnl.rounds
    return "bfloat16" if rounds and all(a.dtype == BFLOAT16 for a in low) else dev.math


def _each(operands: Iterable[Any]) -> Iterable[Any]:
    """Yield the arrays, those in lists too."""
    for operand in operands:
        for array in operand if isinstance(operand, list) else [operand]:
            if array is not None:
                yield array


def _low(operands: Iterable[Any]) -> Iterable[Any]:
    return (array for array in _each(operands) if is_low(array.dtype))
