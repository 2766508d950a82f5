"""``fluid.nets``."""

from ..graph.layers.nets import (
    glu,
    img_conv_group,
    scaled_dot_product_attention,
    simple_img_conv_pool,
)

__all__ = ["glu", "img_conv_group", "scaled_dot_product_attention", "simple_img_conv_pool"]
