"""``fluid.param_attr``: settings of a parameter."""

from ..graph.param_attr import ParamAttr
from ..names import listing, missing

__all__ = ["ParamAttr"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
