"""``fluid.param_attr``: settings of a parameter."""

from ..graph.layers.param_attr import ParamAttr, WeightNormParamAttr
from ..names import listing, missing

__all__ = ["ParamAttr", "WeightNormParamAttr"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
