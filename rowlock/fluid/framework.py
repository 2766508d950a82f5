"""``fluid.framework``: programs, variables and graphs by the module that Paddle keeps them in."""

from ..graph.operator import Operator
from ..graph.program import (
    Block,
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
)
from ..graph.program_graph import IrGraph
from ..graph.scopes import name_scope
from ..graph.variable import Parameter, Variable
from ..strategies.flags import get_flags, set_flags

__all__ = [
    "Block",
    "IrGraph",
    "Operator",
    "Parameter",
    "Program",
    "Variable",
    "default_main_program",
    "default_startup_program",
    "get_flags",
    "name_scope",
    "program_guard",
    "set_flags",
]
