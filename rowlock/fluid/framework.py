"""``fluid.framework``: programs, variables and graphs by the module that Paddle keeps them in."""

from typing import Any

from ..executor.device.place import cpu_places, cuda_pinned_places, cuda_places
from ..graph.program.block import Block
from ..graph.program.operator import Operator
from ..graph.program.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
    switch_main_program,
    switch_startup_program,
)
from ..graph.program.program_graph import IrGraph
from ..graph.program.scopes import device_guard, name_scope
from ..graph.program.variable import Parameter, Variable
from ..names import publish_listed
from ..strategies.flags import get_flags, set_flags
from ..strategies.types import FLOATS, VarType, to_var_type
from ..version import require_version
from .core import is_compiled_with_cuda

__all__ = [
    "Block",
    "IrGraph",
    "Operator",
    "Parameter",
    "Program",
    "Variable",
    "convert_np_dtype_to_dtype_",
    "cpu_places",
    "cuda_pinned_places",
    "cuda_places",
    "default_main_program",
    "default_startup_program",
    "device_guard",
    "disable_dygraph",
    "disable_imperative",
    "dtype_is_floating",
    "get_flags",
    "grad_var_name",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "name_scope",
    "program_guard",
    "require_version",
    "set_flags",
    "switch_main_program",
    "switch_startup_program",
]


def in_dygraph_mode() -> bool:
    """Return False: there is no imperative mode."""
    return False


def disable_dygraph() -> None:
    """Do nothing: scripts of Paddle 1.8 leave the imperative mode by it, which is never entered here."""


disable_imperative = disable_dygraph


def _get_var(name: str, program: Program | None = None) -> Variable:
    """Return the variable of this name in the first block of a program (None: the default main program).

    Raises:
        NotFound: the block has none.
    """
    return (program or default_main_program()).global_block().var(name)


def grad_var_name(var_name: str) -> str:
    """Return the name of a variable's gradient."""
    return f"{var_name}@GRAD"


def convert_np_dtype_to_dtype_(np_dtype: Any) -> VarType:
    """Return the ``VarType`` of a NumPy dtype or its name."""
    return to_var_type(np_dtype)


def dtype_is_floating(dtype: Any) -> bool:
    """Tell whether a dtype is a floating-point type."""
    return to_var_type(dtype) in FLOATS


publish_listed(__name__)
