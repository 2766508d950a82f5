"""A layer that prints a tensor whenever it is computed."""

from __future__ import annotations

from ...strategies.errors import InvalidValue
from ..ops.printing import PRINT
from ..program.variable import Variable
from .helper import LayerHelper

_PHASES = ("FORWARD", "BACKWARD", "BOTH")


def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """Return ``input``, of any shape and type, and print it, and its gradient, whenever they are computed.

    Each replica prints its own rows to its standard output; Ray brings it to the driver's. The text is that of
    Paddle: ``message``, place, name, shape, type, sequences, and the first ``summarize`` elements (-1: all).

    Args:
        first_n: how often each replica prints in all runs of a program, the gradient counted apart; -1: always.
        print_phase: "forward" prints the tensor, "backward" its gradient, "both" both.

    Raises:
        InvalidType: ``input`` is no Variable.
        InvalidValue: ``print_phase`` is none of these.
    """
    phase = str(print_phase).upper()
    if phase not in _PHASES:
        raise InvalidValue(
            f"Print: print_phase must be 'forward', 'backward' or 'both', got {print_phase!r}."
        )
    return LayerHelper(f"print_{input.name}").layer(
        PRINT,
        In=input,
        first_n=first_n,
        message=message or "",
        summarize=summarize,
        print_tensor_name=print_tensor_name,
        print_tensor_type=print_tensor_type,
        print_tensor_shape=print_tensor_shape,
        print_tensor_lod=print_tensor_lod,
        print_phase=phase,
    )
