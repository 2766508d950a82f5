"""``fluid.layers.detection``: layers of object detection."""

from ...graph.layers.label_loss import sigmoid_focal_loss
from ...names import listing, missing

__all__ = ["sigmoid_focal_loss"]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
