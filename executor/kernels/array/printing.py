"""The op that prints, where the replica runs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ....graph.ops.printing import PRINT, PRINT_IF, Print, PrintIf
from ....graph.program.role import program_name
from ...device.device import Device
from ..registry import Step, kernel

# Paddle writes the letter that C++ has for a type.
_LETTERS = {"f4": "f", "f8": "d", "i4": "i", "i8": "l", "b1": "b", "u1": "h", "i1": "a", "i2": "s"}
_OTHER_PHASE = {True: "BACKWARD", False: "FORWARD"}


@kernel(PRINT, on=("numpy",), low=True)
def print_tensor(dev: Device, a: Print) -> Step:
    """Print the first ``first_n`` times that a program's op runs in the phase it is told.

    Nothing is printed of elements that are computed before a step, to learn shapes: none reads them then.
    Nor is it of a tensor without elements: it is that of a branch which no row takes.
    """
    silent = a.print_phase == _OTHER_PHASE[a.is_forward] or not dev.operands or not a.in_.size
    name, counts = program_name(dev.operands[0]) if dev.operands else "", dev.counts
    counted = program_name(dev.output)
    place = "CPUPlace" if dev.gpu is None else f"CUDAPlace({dev.gpu})"

    def run() -> None:
        a.out[...] = a.in_
        if silent or (isinstance(a, PrintIf) and not a.condition.all()):
            return
        counts[counted] += 1
        if a.first_n <= 0 or counts[counted] <= a.first_n:
            # One write, so that replicas on threads do not mix their lines.
            print(_text(a, name, place), end="", flush=True)

    return run


kernel(PRINT_IF, on=("numpy",), low=True)(print_tensor)


def _text(a: Print, name: str, place: str) -> str:
    """Return the lines that Paddle writes."""
    lines = [f"{int(time.time())}\t{a.message}\tThe place is:{place}"]
    if a.print_tensor_name:
        lines.append(f"Tensor[{name}]")
    if a.print_tensor_shape:
        lines.append(f"\tshape: [{_listed(a.in_.shape)}]")
    if a.print_tensor_type:
        kind = a.in_.dtype.str[1:]
        lines.append(f"\tdtype: {_LETTERS.get(kind, a.in_.dtype.name)}")
    if a.print_tensor_lod and a.in_lod:
        lines.append(f"\tLoD: [{''.join(f'[ {_listed(level)} ]' for level in a.in_lod)}]")
    flat = a.in_.reshape(-1)
    shown = flat if a.summarize < 0 else flat[: a.summarize]
    lines.append(f"\tdata: {''.join(f'{_number(x)},' for x in shown)}")
    return "\n".join(lines) + "\n"


def _listed(numbers: Any) -> str:
    return "".join(f"{n}," for n in numbers)


def _number(x: Any) -> str:
    """Return a number as C++ writes it: of floats six digits."""
    return str(int(x)) if isinstance(x, (np.bool_, np.integer)) else f"{float(x):g}"
