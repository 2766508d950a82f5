"""``fluid.layers.detection``: layers of object detection."""

from ...graph.layers.boxes import (
    anchor_generator,
    box_coder,
    density_prior_box,
    iou_similarity,
    polygon_box_transform,
    prior_box,
    yolo_box,
)
from ...graph.layers.label_loss import sigmoid_focal_loss
from ...names import listing, missing

__all__ = [
    "anchor_generator",
    "box_coder",
    "density_prior_box",
    "iou_similarity",
    "polygon_box_transform",
    "prior_box",
    "sigmoid_focal_loss",
    "yolo_box",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
