"""``fluid.param_attr``: settings of a parameter."""

from ..graph.layers.param_attr import ParamAttr as ParamAttr
from ..graph.layers.param_attr import WeightNormParamAttr as WeightNormParamAttr
from ..names import publish_imports

publish_imports(__name__)
