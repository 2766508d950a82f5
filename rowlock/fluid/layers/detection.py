"""``fluid.layers.detection``: layers of object detection."""

from ...graph.layers.boxes import anchor_generator as anchor_generator
from ...graph.layers.boxes import box_coder as box_coder
from ...graph.layers.boxes import box_decoder_and_assign as box_decoder_and_assign
from ...graph.layers.boxes import density_prior_box as density_prior_box
from ...graph.layers.boxes import iou_similarity as iou_similarity
from ...graph.layers.boxes import polygon_box_transform as polygon_box_transform
from ...graph.layers.boxes import prior_box as prior_box
from ...graph.layers.boxes import roi_perspective_transform as roi_perspective_transform
from ...graph.layers.boxes import yolo_box as yolo_box
from ...graph.layers.detection import bipartite_match as bipartite_match
from ...graph.layers.detection import box_clip as box_clip
from ...graph.layers.detection import detection_map as detection_map
from ...graph.layers.detection import detection_output as detection_output
from ...graph.layers.detection import locality_aware_nms as locality_aware_nms
from ...graph.layers.detection import matrix_nms as matrix_nms
from ...graph.layers.detection import multi_box_head as multi_box_head
from ...graph.layers.detection import multiclass_nms as multiclass_nms
from ...graph.layers.detection import retinanet_detection_output as retinanet_detection_output
from ...graph.layers.detection import ssd_loss as ssd_loss
from ...graph.layers.detection import target_assign as target_assign
from ...graph.layers.detection import yolov3_loss as yolov3_loss
from ...graph.layers.label_loss import sigmoid_focal_loss as sigmoid_focal_loss
from ...graph.layers.proposals import collect_fpn_proposals as collect_fpn_proposals
from ...graph.layers.proposals import distribute_fpn_proposals as distribute_fpn_proposals
from ...graph.layers.proposals import generate_mask_labels as generate_mask_labels
from ...graph.layers.proposals import generate_proposal_labels as generate_proposal_labels
from ...graph.layers.proposals import generate_proposals as generate_proposals
from ...graph.layers.proposals import retinanet_target_assign as retinanet_target_assign
from ...graph.layers.proposals import rpn_target_assign as rpn_target_assign
from ...names import publish_imports

publish_imports(__name__)
