"""``fluid.nets``."""

from ..graph.layers.nets import (
    glu,
    img_conv_group,
    scaled_dot_product_attention,
    sequence_conv_pool,
    simple_img_conv_pool,
)
from ..names import listing, missing

__all__ = [
    "glu",
    "img_conv_group",
    "scaled_dot_product_attention",
    "sequence_conv_pool",
    "simple_img_conv_pool",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
