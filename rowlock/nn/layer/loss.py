"""Losses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...functions.framework import get_default_dtype
from ...functions.manipulation import concat
from ...functions.search import argmax
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


class MultiLabelMarginLoss(FunctionLayer, of=F.multi_label_margin_loss, shown=()): ...


class AdaptiveLogSoftmaxWithLoss(Layer):
    """Log probabilities of many classes, frequent ones first: see ``adaptive_log_softmax_with_loss``.

    Args:
        cutoffs: where clusters of rare classes begin, rising, between 1 and ``n_classes`` - 1.
        div_value: each cluster's hidden size is so many times smaller than that of the one before.

    Raises:
        InvalidValue: ``cutoffs`` are others.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        weight_attr: Any = None,
        bias_attr: Any = None,
        div_value: float = 4.0,
        head_bias: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=get_default_dtype())
        ends = list(cutoffs)
        if not ends or ends != sorted({*ends}) or ends[0] < 1 or ends[-1] >= n_classes:
            raise InvalidValue(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs must rise between 1 and {n_classes - 1}, got {ends}."
            )
        self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
        self.cutoffs = [*ends, n_classes]
        self.shortlist_size, self.n_clusters = ends[0], len(ends)
        self.head_size = ends[0] + len(ends)
        self.is_head_bias = head_bias
        self.head_weight = self.create_parameter([in_features, self.head_size], weight_attr)
        self.head_bias = (
            self.create_parameter([self.head_size], bias_attr, is_bias=True) if head_bias else None
        )
        self.tail_weights = []
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            hidden = int(in_features // div_value ** (i + 1))
            shapes = ([in_features, hidden], [hidden, high - low])
            weights = [self.create_parameter(shape, weight_attr) for shape in shapes]
            for j, weight in enumerate(weights):
                self.add_parameter(f"tail_weight_{i}_{j}", weight)
            self.tail_weights.append(weights)

    def forward(self, input: Variable, label: Variable) -> tuple[Variable, Variable]:
        """Return the log probabilities [N] of labels [N], and minus their mean."""
        weights = self.head_weight, self.tail_weights, self.cutoffs, self.head_bias
        return F.adaptive_log_softmax_with_loss(input, label, *weights)

    def log_prob(self, input: Variable) -> Variable:
        """Return the log probabilities of all classes: [N, n_classes]."""
        head = F.log_softmax(F.linear(input, self.head_weight, self.head_bias), axis=1)
        parts = [head[:, : self.shortlist_size]]
        for i, (first, second) in enumerate(self.tail_weights):
            place = self.shortlist_size + i
            tail = F.log_softmax(F.linear(F.linear(input, first), second), axis=1)
            parts.append(tail + head[:, place : place + 1])
        return concat(parts, 1)

    def predict(self, input: Variable) -> Variable:
        """Return the most probable class of each row: int64 [N]."""
        return argmax(self.log_prob(input), 1)


class PoissonNLLLoss(FunctionLayer, of=F.poisson_nll_loss, shown=()): ...


class SoftMarginLoss(FunctionLayer, of=F.soft_margin_loss, shown=()): ...


class TripletMarginLoss(FunctionLayer, of=F.triplet_margin_loss, shown=()): ...


class TripletMarginWithDistanceLoss(
    FunctionLayer, of=F.triplet_margin_with_distance_loss, shown=()
): ...


publish_definitions(__name__)
