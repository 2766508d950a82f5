"""An op that prints its operand and returns it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .operands import Input, Offsets, Operands, Output, named
from .registry import Grad, define
from .samples import sample

PRINT, PRINT_IF = "print", "print_if"


class Print(Operands):
    in_: Input = named("In")
    in_lod: Offsets
    out: Output
    first_n: int = -1
    message: str = ""
    summarize: int = -1
    print_tensor_name: bool = True
    print_tensor_type: bool = True
    print_tensor_shape: bool = True
    print_tensor_lod: bool = True
    print_phase: str = "BOTH"
    is_forward: bool = True


class PrintIf(Print):
    """``condition``: of the branch in which it stands; where it is false, nothing is printed."""

    condition: Input


def _backward(attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**attrs, "is_forward": False}


define(
    PRINT,
    Print,
    lambda op: {"Out": op.spec("In")},
    grad=Grad(PRINT, {"In": "Out@GRAD"}, {"Out": "In@GRAD"}, attrs=_backward),
    in_place={"Out": "In"},
    samples=(
        sample("In [3 2], In@LOD [2 1]", summarize=3, message="rows"),
        sample("In 0:9 [4]", first_n=1, print_phase="BACKWARD"),
        sample("In bool [2 2]", print_tensor_name=False),
    ),
)

define(
    PRINT_IF,
    PrintIf,
    lambda op: {"Out": op.spec("In")},
    in_place={"Out": "In"},
    samples=(sample("In [2], Condition bool [1]", message="taken"),),
)
