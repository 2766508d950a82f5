"""Losses."""

from __future__ import annotations

from typing import Any

from ...functions.framework import get_default_dtype
from ...graph.program.variable import Variable
from ...names import publish_definitions
from ...strategies.errors import InvalidValue
from .. import functional as F
from .function_layer import FunctionLayer
from .layers import Layer


class BCELoss(FunctionLayer, of=F.binary_cross_entropy, shown=()): ...


class BCEWithLogitsLoss(FunctionLayer, of=F.binary_cross_entropy_with_logits, shown=()): ...


class CTCLoss(FunctionLayer, of=F.ctc_loss, without=("norm_by_times",), shown=()): ...


class CrossEntropyLoss(FunctionLayer, of=F.cross_entropy, shown=()): ...


class HSigmoidLoss(Layer):
    """The loss of binary decisions on the way to each class, with their weights.

    Raises:
        InvalidValue: the default tree has less than two classes.
    """

    def __init__(
        self,
        feature_size: int,
        num_classes: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        is_custom: bool = False,
        is_sparse: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype())
        if num_classes < 2 and not is_custom:
            raise InvalidValue(f"HSigmoidLoss: num_classes must be 2 or more, got {num_classes}.")
        self._num_classes, self._name = num_classes, name
        self._is_sparse = is_sparse and is_custom
        nodes = num_classes if is_custom else num_classes - 1
        self.weight = self.create_parameter([nodes, feature_size], weight_attr)
        self.bias = self.create_parameter([nodes, 1], bias_attr, is_bias=True)

    def forward(
        self,
        input: Variable,
        label: Variable,
        path_table: Variable | None = None,
        path_code: Variable | None = None,
    ) -> Variable:
        """[N, feature_size] and labels [N, 1] to [N, 1]."""
        return F.hsigmoid_loss(
            input, label, self._num_classes, self.weight, self.bias, path_table, path_code,
            self._is_sparse, self._name,
        )  # fmt: skip


class KLDivLoss(FunctionLayer, of=F.kl_div, without=("name",), shown=()): ...


class L1Loss(FunctionLayer, of=F.l1_loss, shown=()): ...


class MarginRankingLoss(FunctionLayer, of=F.margin_ranking_loss, shown=()): ...


class MSELoss(FunctionLayer, of=F.mse_loss, without=("name",), shown=()): ...


class NLLLoss(FunctionLayer, of=F.nll_loss, shown=()): ...


class SmoothL1Loss(FunctionLayer, of=F.smooth_l1_loss, shown=()): ...


class CosineEmbeddingLoss(FunctionLayer, of=F.cosine_embedding_loss, shown=()): ...


class GaussianNLLLoss(FunctionLayer, of=F.gaussian_nll_loss, shown=()): ...


class HingeEmbeddingLoss(FunctionLayer, of=F.hinge_embedding_loss, shown=()): ...


class MultiLabelSoftMarginLoss(FunctionLayer, of=F.multi_label_soft_margin_loss, shown=()): ...


class MultiMarginLoss(FunctionLayer, of=F.multi_margin_loss, shown=()): ...


class PoissonNLLLoss(FunctionLayer, of=F.poisson_nll_loss, shown=()): ...


class SoftMarginLoss(FunctionLayer, of=F.soft_margin_loss, shown=()): ...


class TripletMarginLoss(FunctionLayer, of=F.triplet_margin_loss, shown=()): ...


class TripletMarginWithDistanceLoss(
    FunctionLayer, of=F.triplet_margin_with_distance_loss, shown=()
): ...


publish_definitions(__name__)
