"""``fluid.layer_helper``: the helper of layers that users write outside of Paddle."""

from ..graph.layers.layer_helper import LayerHelper as LayerHelper
from ..names import publish_imports

publish_imports(__name__)
