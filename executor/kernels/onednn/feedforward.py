"""Two linear layers by oneDNN, which also adds biases and collects gradients over turns."""

from __future__ import annotations

from typing import Any

from ....graph.ops.operands import Array
from ..array.feedforward import FeedForward, backward_of, forward_of
from ..registry import Step
from .linear import product
from .primitive import SUM
from .support import onednn


class OneDnnFeedForward(FeedForward):
    """A feed-forward whose products are oneDNN's."""

    def linear(self, x: Array, weight: Array, bias: Any, out: Array) -> list[Step]:
        return list(product(self.dev, x, weight, out, bias=bias))

    def collect(self, turn: slice, left: Array, right: Array, total: Any) -> list[Step]:
        """See :class:`FeedForward`. The product is added where the total is."""
        more = (SUM,) if turn.start > 0 else ()
        return list(product(self.dev, left, right, total, post_ops=more))


_WEIGHTS = ("Linear1Weight", "Linear2Weight")
onednn("fused_feedforward", factors=dict.fromkeys(_WEIGHTS, ("Out",)))(
    forward_of(OneDnnFeedForward, "onednn")
)
onednn("fused_feedforward_grad", factors=dict.fromkeys(_WEIGHTS, ("X@GRAD",)))(
    backward_of(OneDnnFeedForward, "onednn")
)
