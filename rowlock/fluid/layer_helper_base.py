"""``fluid.layer_helper_base``: the class of every layer's helper; what is set on it, all layers do."""

from ..graph.layers import helper as _helper
from ..names import publish_imports

LayerHelperBase = _helper.LayerHelper
publish_imports(__name__)
