"""``fluid.layer_helper_base``: the class of every layer's helper; what is set on it, all layers do."""

from ..graph.layers import helper
from ..names import publish_imports

LayerHelperBase = helper.LayerHelper
publish_imports(__name__)
