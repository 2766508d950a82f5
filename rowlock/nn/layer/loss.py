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


class _Loss(FunctionLayer):
    _reductions: tuple[str, ...] = ("mean", "sum", "none")

    def _check(self) -> None:
        if self.reduction not in self._reductions:
            words = ", ".join(map(repr, self._reductions))
            raise InvalidValue(
                f"{type(self).__name__}: reduction is one of {words}, got {self.reduction!r}."
            )


class BCELoss(_Loss, of=F.binary_cross_entropy, shown=()): ...


class BCEWithLogitsLoss(_Loss, of=F.binary_cross_entropy_with_logits, shown=()): ...


class CTCLoss(_Loss, of=F.ctc_loss, without=("norm_by_times",), shown=()): ...


class CrossEntropyLoss(_Loss, of=F.cross_entropy, shown=()): ...


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


class KLDivLoss(_Loss, of=F.kl_div, without=("name",), shown=()):
    _reductions = ("mean", "sum", "none", "batchmean")


class L1Loss(_Loss, of=F.l1_loss, shown=()): ...


class MarginRankingLoss(_Loss, of=F.margin_ranking_loss, shown=()): ...


class MSELoss(_Loss, of=F.mse_loss, without=("name",), shown=()): ...


class NLLLoss(_Loss, of=F.nll_loss, shown=()): ...


class SmoothL1Loss(_Loss, of=F.smooth_l1_loss, shown=()): ...


class CosineEmbeddingLoss(_Loss, of=F.cosine_embedding_loss, shown=()): ...


class GaussianNLLLoss(_Loss, of=F.gaussian_nll_loss, shown=()): ...


class HingeEmbeddingLoss(_Loss, of=F.hinge_embedding_loss, shown=()): ...


class MultiLabelSoftMarginLoss(_Loss, of=F.multi_label_soft_margin_loss, shown=()): ...


class MultiMarginLoss(_Loss, of=F.multi_margin_loss, shown=()): ...


class PoissonNLLLoss(_Loss, of=F.poisson_nll_loss, shown=()): ...


class SoftMarginLoss(_Loss, of=F.soft_margin_loss, shown=()): ...


class TripletMarginLoss(_Loss, of=F.triplet_margin_loss, shown=()): ...


class TripletMarginWithDistanceLoss(_Loss, of=F.triplet_margin_with_distance_loss, shown=()): ...


publish_definitions(__name__)
