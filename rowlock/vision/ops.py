"""``paddle.vision.ops``: boxes and regions of images, with Paddle 2.x's signatures.

Boxes are (x0, y0, x1, y1) in pixels. The boxes of each image stand one behind the other, and a tensor says how
many each has: ops of 1.x, which these are made of, know that as sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..functions import math as functions
from ..functions.creation import constant, full_like
from ..functions.search import argsort, where
from ..functions.signatures import reordered
from ..graph.layers import boxes as regions
from ..graph.layers import detection, proposals, sequence
from ..graph.layers import shape as layers
from ..graph.layers.arguments import check_integers
from ..graph.layers.conv import several
from ..graph.layers.helper import constant_layers, layer
from ..graph.layers.initializer import NormalInitializer
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..nn.layer.conv import _ConvBase
from ..nn.layer.layers import Layer
from ..strategies.errors import InvalidValue, Unsupported

_BELOW_ALL = -3e38  # no score is lower


def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Any,
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
    iou_aware: bool = False,
    iou_aware_factor: float = 0.5,
) -> tuple[Variable, Variable]:
    """Boxes [N, A H W, 4] and scores [N, A H W, classes]: ``fluid.layers.yolo_box``.

    Raises:
        Unsupported: ``iou_aware`` is True.
    """
    if iou_aware:
        raise Unsupported("yolo_box: iou_aware=True is not built.")
    options = (conf_thresh, downsample_ratio, clip_bbox, name, scale_x_y)
    return regions.yolo_box(x, img_size, anchors, class_num, *options)


yolo_loss = reordered(
    detection.yolov3_loss,
    "x gt_box gt_label anchors anchor_mask class_num ignore_thresh downsample_ratio gt_score "
    "use_label_smooth name scale_x_y",
    "yolo_loss",
)
prior_box = reordered(
    regions.prior_box,
    "input image min_sizes max_sizes aspect_ratios variance flip clip steps offset "
    "min_max_aspect_ratios_order name",
)
box_coder = reordered(
    regions.box_coder, "prior_box prior_box_var target_box code_type box_normalized axis name"
)


def deform_conv2d(
    x: Variable,
    offset: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    deformable_groups: int = 1,
    groups: int = 1,
    mask: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Convolution of images whose windows ``offset`` bends, and ``mask`` weighs: Dai et al., arXiv 1703.06211.

    Shapes are those of ``fluid.layers.deformable_conv``.
    """
    out = layer(
        "deformable_conv_v1" if mask is None else "deformable_conv",
        name or "deformable_conv",
        input=x,
        offset=offset,
        filter=weight,
        strides=several(stride, 2, "stride", "deform_conv2d"),
        paddings=several(padding, 2, "padding", "deform_conv2d"),
        dilations=several(dilation, 2, "dilation", "deform_conv2d"),
        groups=groups,
        deformable_groups=deformable_groups,
        im2col_step=1,
        **({} if mask is None else {"mask": mask}),
    )
    return out if bias is None else layer("elementwise_add", x=out, y=bias, axis=1)


class DeformConv2D(_ConvBase, data_format="NCHW"):
    """:func:`deform_conv2d` with a weight [out_channels, in_channels / groups, kh, kw] and a bias."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        deformable_groups: int = 1,
        groups: int = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        self._store(in_channels, out_channels, (kernel_size, stride, dilation), groups)
        self._padding, self._deformable_groups = padding, deformable_groups
        height, width = self._kernel_size
        start = NormalInitializer(0.0, (2.0 / (height * width * in_channels)) ** 0.5)
        shape = [out_channels, in_channels // groups, height, width]
        self.weight = self.create_parameter(shape, weight_attr, default_initializer=start)
        self.bias = self.create_parameter([out_channels], bias_attr, is_bias=True)

    def forward(self, x: Variable, offset: Variable, mask: Variable | None = None) -> Variable:
        """Return the convolution of x whose windows ``offset`` bends."""
        window = (self._stride, self._padding, self._dilation)
        groups = (self._deformable_groups, self._groups)
        return deform_conv2d(x, offset, self.weight, self.bias, *window, *groups, mask)


def _ends(counts: Variable, function: str) -> Variable:
    """Return the offsets [N + 1] of rows, int64, of which each image has as many as ``counts`` says.

    Raises:
        InvalidType: ``counts`` holds no integers.
        InvalidValue: it is not [N].
    """
    check_integers(counts, "boxes_num", function)
    if counts.ndim != 1:
        raise InvalidValue(
            f"{function}: boxes_num must be [images], got {counts.name!r} of shape {list(counts.shape or ())}."
        )
    ends = functions.cumsum(layers.cast(counts, "int64"), 0)
    return layers.concat([constant([0], "int64"), ends], 0)


def roi_pool(
    x: Variable,
    boxes: Variable,
    boxes_num: Variable,
    output_size: Any,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> Variable:
    """The largest pixel of each bin of regions [R, 4] of images [N, C, H, W]: [R, C, height, width].

    ``boxes_num`` (int32 [N]) says how many regions each image has; ``output_size`` are the bins.
    """
    height, width = several(output_size, 2, "output_size", "roi_pool")
    return regions.roi_pool(x, boxes, height, width, spatial_scale, _ends(boxes_num, "roi_pool"))


def roi_align(
    x: Variable,
    boxes: Variable,
    boxes_num: Variable,
    output_size: Any,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = True,
    name: str | None = None,
) -> Variable:
    """The mean of points in each bin of regions, as for :func:`roi_pool`: He et al., arXiv 1703.06870.

    A bin has ``sampling_ratio`` by as many points, up to 0 one for each pixel that it is high and wide.
    ``aligned``: the middle of pixel 0 is at 0, not at 0.5, and regions may be smaller than a pixel.
    """
    height, width = several(output_size, 2, "output_size", "roi_align")
    return layer(
        "roi_align",
        name,
        x=x,
        ROIs=boxes,
        RoisLod=_ends(boxes_num, "roi_align"),
        pooled_height=height,
        pooled_width=width,
        spatial_scale=spatial_scale,
        sampling_ratio=sampling_ratio,
        aligned=aligned,
    )


def psroi_pool(
    x: Variable,
    boxes: Variable,
    boxes_num: Variable,
    output_size: Any,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> Variable:
    """The mean of the pixels of each bin, of channels of its own: [R, C / (height width), height, width].

    Raises:
        InvalidValue: the channels do not divide by the bins.
    """
    height, width = several(output_size, 2, "output_size", "psroi_pool")
    channels = (x.shape or ())[1]
    if channels % (height * width):
        raise InvalidValue(
            f"psroi_pool: {channels} channels of {x.name!r} do not divide by {height} x {width} bins."
        )
    by_image = sequence.lod_reset(boxes, _ends(boxes_num, "psroi_pool"))
    channels //= height * width
    return regions.psroi_pool(x, by_image, channels, spatial_scale, height, width)


class _RegionLayer(Layer):
    """A pool over regions of a size that is set once."""

    _pool: ClassVar[Callable[..., Variable]]

    def __init__(self, output_size: Any, spatial_scale: float = 1.0) -> None:
        super().__init__()
        self._output_size, self._spatial_scale = output_size, spatial_scale

    def forward(self, x: Variable, boxes: Variable, boxes_num: Variable) -> Variable:
        """Return bins of regions: see the function."""
        return self._pool(x, boxes, boxes_num, self._output_size, self._spatial_scale)

    def extra_repr(self) -> str:
        """Return the arguments that matter."""
        return f"output_size={self._output_size}, spatial_scale={self._spatial_scale}"


class RoIPool(_RegionLayer):
    """:func:`roi_pool`."""

    _pool = staticmethod(roi_pool)


class RoIAlign(_RegionLayer):
    """:func:`roi_align`."""

    def forward(
        self, x: Variable, boxes: Variable, boxes_num: Variable, aligned: bool = True
    ) -> Variable:
        """Return the means of points in bins."""
        size, scale = self._output_size, self._spatial_scale
        return roi_align(x, boxes, boxes_num, size, scale, aligned=aligned)


class PSRoIPool(_RegionLayer):
    """:func:`psroi_pool`."""

    _pool = staticmethod(psroi_pool)


def nms(
    boxes: Variable,
    iou_threshold: float = 0.3,
    scores: Variable | None = None,
    category_idxs: Variable | None = None,
    categories: Sequence[int] | None = None,
    top_k: int | None = None,
) -> Variable:
    """The numbers, int64 [K], of the boxes [M, 4] that stay: no better one covers more than ``iou_threshold``.

    Args:
        scores: [M]; the best come first. Without them earlier boxes are better.
        category_idxs: int64 [M]; boxes of other categories do not count.
        categories: all numbers in ``category_idxs``.
        top_k: how many stay at most; as in Paddle it counts only where there are categories.

    Raises:
        InvalidValue: categories without ``scores``, or ``category_idxs`` without ``categories``.
    """
    if category_idxs is not None and (scores is None or categories is None):
        raise InvalidValue("nms: category_idxs need scores and categories.")
    if scores is None:
        scores = -functions.cumsum(layers.ones_like(boxes[:, 0]), 0)
    rows = layers.unsqueeze(scores, [0])
    if category_idxs is not None:
        every = constant([[number] for number in categories or ()], category_idxs.dtype)
        rows = where(category_idxs == every, rows, full_like(rows, _BELOW_ALL))
    _, index = detection.multiclass_nms2(
        layers.unsqueeze(boxes, [0]),
        layers.unsqueeze(rows, [0]),
        score_threshold=_BELOW_ALL / 2,
        nms_top_k=-1,
        keep_top_k=-1,
        nms_threshold=iou_threshold,
        background_label=-1,
        return_index=True,
    )
    index = layers.cast(layers.reshape(_plain(index), [-1]), "int64")
    if category_idxs is None:
        return index
    best = argsort(layers.gather(scores, index), descending=True)
    return layers.gather(index, best if top_k is None else best[:top_k])


def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    return_rois_num: bool = True,
    name: str | None = None,
) -> tuple[Variable, Variable | None, Variable | None]:
    """Rows of ``fluid.layers.matrix_nms`` [K, 6], those of each image, int32 [N], and their numbers [K, 1].

    Without ``return_rois_num``, or ``return_index``, the second, or third, is None.
    """
    limits = (score_threshold, post_threshold, nms_top_k, keep_top_k)
    ways = (use_gaussian, gaussian_sigma, background_label, normalized)
    rows, index = detection.matrix_nms(bboxes, scores, *limits, *ways, return_index=True, name=name)
    counts = _counts(rows) if return_rois_num else None
    return _plain(rows), counts, _plain(index) if return_index else None


def distribute_fpn_proposals(
    fpn_rois: Variable,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    pixel_offset: bool = False,
    rois_num: Variable | None = None,
    name: str | None = None,
) -> tuple[list[Variable], Variable, list[Variable] | None]:
    """Regions [R, 4] by the map that they are read from: those of each, where each stands, and their numbers.

    A region as large as a square of side ``refer_scale`` is read from the map ``refer_level``, larger ones from
    coarser maps. With ``rois_num`` (int32 [N]: those of each image) there are such numbers for each map.
    """
    rows = layers.shape(fpn_rois)[:1] if rois_num is None else rois_num
    by_image = sequence.lod_reset(fpn_rois, _ends(rows, "distribute_fpn_proposals"))
    levels = {"min_level": min_level, "max_level": max_level, "refer_level": refer_level}
    levels |= {"refer_scale": refer_scale, "pixel_offset": pixel_offset}
    maps, index = proposals.regions_by_map(by_image, name, **levels)
    counts = None if rois_num is None else [_counts(rois) for rois in maps]
    return [_plain(rois) for rois in maps], index, counts


def _plain(rows: Variable) -> Variable:
    """Return a matrix without sequences, which a transposition does not keep."""
    return layers.transpose(rows, [0, 1])


def _counts(rows: Variable) -> Variable:
    """Return how many rows each sequence has, int32 [N]."""
    _, lengths = sequence.sequence_pad(rows, constant(0.0, rows.dtype))
    return layers.cast(lengths, "int32")


def generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    img_size: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    pixel_offset: bool = False,
    return_rois_num: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable | None]:
    """Regions [R, 4] that may hold an object, their scores [R, 1], and those of each image, int32 [N], or None.

    ``img_size`` [N, 2] are heights and widths. ``pixel_offset``: the last pixel of a box belongs to it. Other
    arguments are those of ``fluid.layers.generate_proposals``.
    """
    unscaled = layers.ones_like(img_size[:, :1])
    im_info = layers.concat([img_size, unscaled], 1)
    rois, probs, ends = constant_layers(
        "generate_proposals",
        name,
        "RpnRois RpnRoiProbs RpnRoisLod",
        scores=scores,
        bbox_deltas=bbox_deltas,
        im_info=im_info,
        anchors=anchors,
        variances=variances,
        pre_nms_topN=pre_nms_top_n,
        post_nms_topN=post_nms_top_n,
        nms_thresh=nms_thresh,
        min_size=min_size,
        eta=eta,
        pixel_offset=pixel_offset,
    )
    counts = ends - layers.concat([constant([0], "int32"), ends[:-1]], 0)
    return _plain(rois), _plain(probs), counts if return_rois_num else None


publish_definitions(__name__)
