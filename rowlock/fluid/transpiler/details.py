"""``fluid.transpiler.details``."""

from ...graph.transpiler.ports import wait_server_ready
from ...names import listing, missing

__all__ = ["wait_server_ready"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
