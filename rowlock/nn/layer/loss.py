"""Losses."""

from __future__ import annotations

from ...strategies.errors import InvalidValue
from .. import functional as F
from .function_layer import FunctionLayer


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


class CrossEntropyLoss(_Loss, of=F.cross_entropy, shown=()): ...


class KLDivLoss(_Loss, of=F.kl_div, without=("name",), shown=()):
    _reductions = ("mean", "sum", "none", "batchmean")


class L1Loss(_Loss, of=F.l1_loss, shown=()): ...


class MarginRankingLoss(_Loss, of=F.margin_ranking_loss, shown=()): ...


class MSELoss(_Loss, of=F.mse_loss, without=("name",), shown=()): ...


class NLLLoss(_Loss, of=F.nll_loss, shown=()): ...


class SmoothL1Loss(_Loss, of=F.smooth_l1_loss, shown=()): ...
