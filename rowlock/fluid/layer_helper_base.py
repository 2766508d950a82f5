"""``fluid.layer_helper_base``: the class of every layer's helper; what is set on it, all layers do."""

from ..graph.layers.helper import LayerHelper as LayerHelperBase
from ..names import publish_imports

publish_imports(__name__)
