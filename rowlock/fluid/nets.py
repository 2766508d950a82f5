"""``fluid.nets``."""

from ..graph.layers.nets import glu as glu
from ..graph.layers.nets import img_conv_group as img_conv_group
from ..graph.layers.nets import scaled_dot_product_attention as scaled_dot_product_attention
from ..graph.layers.nets import sequence_conv_pool as sequence_conv_pool
from ..graph.layers.nets import simple_img_conv_pool as simple_img_conv_pool
from ..names import publish_imports

publish_imports(__name__)
