"""Paddle's op roles (forward, backward, optimize, ...), and the attributes that carry them."""

from __future__ import annotations

from enum import IntFlag


class OpRole(IntFlag):
    """Bit flags; the op that computes the loss is ``Forward | Loss``, its gradient seed ``Backward | Loss``."""

    Forward = 0
    Backward = 1
    Optimize = 2
    RPC = 4
    Dist = 8
    LRSched = 16
    Loss = 256


ROLE = "op_role"
ROLE_VAR = "op_role_var"
NAMESCOPE = "op_namescope"
CALLSTACK = "op_callstack"
DEVICE = "op_device"
STAMPED = (ROLE, ROLE_VAR, NAMESCOPE, CALLSTACK, DEVICE)

EMPTY_VAR = "@EMPTY@"
GRAD_SUFFIX = "@GRAD"
_RECOMPUTED = ".subprog_"
# what readers of blocks, and copies to hosts, put behind names
_IN_BLOCK, _ON_HOST = "@BLOCK", "@HOST"


def grad_name(name: str) -> str:
    """Return the name of the gradient of variable ``name``."""
    return name + GRAD_SUFFIX


def differentiated_name(gradient: str) -> str:
    """Return the name of the variable of which another is the gradient, in whatever pass; else the name."""
    name, suffix, _ = gradient.partition(GRAD_SUFFIX)
    while suffix and name.startswith("grad/"):
        name = name.removeprefix("grad/")
    return name


def recomputed_name(name: str, number: int) -> str:
    """Return the name under which the backward pass computes a variable again, in a numbered segment."""
    return f"{name}{_RECOMPUTED}{number}"


def overwritten_name(name: str, number: int) -> str:
    """Return a name for a value of a variable that another one takes the place of."""
    return f"{name}@OVERWRITTEN@{number}"


def original_name(name: str) -> str:
    """Return the name of the variable that this one computes again, if it does, else its own."""
    return name.partition(_RECOMPUTED)[0]


def program_name(name: str) -> str:
    """Return the name that a value of a graph has in the program: in every round of a block the same."""
    return name.partition(_IN_BLOCK)[0].removesuffix(_ON_HOST)
