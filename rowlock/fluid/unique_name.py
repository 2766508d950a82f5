"""``fluid.unique_name``: names of variables and parameters."""

from ..graph.program.unique_name import UniqueNameGenerator, generate, guard, switch
from ..names import listing, missing

__all__ = ["UniqueNameGenerator", "generate", "guard", "switch"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
