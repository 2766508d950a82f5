"""Two linear layers by cuBLASLt: biases, activations and their slopes are epilogues where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ....strategies.types import is_low
from ..array.feedforward import FeedForward, backward_of, forward_of
from ..cuda.random import CudaDropout
from ..cuda.support import part
from ..registry import Step
from .fused_linear import activated, epilogue, linear, weight_gradient
from .product import finished
from .support import copied, cublaslt

_BITS = 128  # relu's epilogue keeps rows of a multiple of so many bits


class CublasLtFeedForward(FeedForward):
    """A feed-forward whose products are cuBLASLt's."""

    drops = CudaDropout
    rows_in_turn = 8192  # enough that a product's tiles fill a GPU several times
    _bits: Any = None  # where the activation of the turn is above zero

    def backward(self, d_out: Array, wanted: Mapping[str, Any]) -> list[Step]:
        """See :class:`FeedForward`. Over several turns gradients of weights are not added up in 16 bits."""
        sums = {}
        if self.rows > self.rows_in_turn and is_low(d_out.dtype):
            weights = {name: wanted[name] for name in ("linear1_weight", "linear2_weight")}
            sums = {
                name: self.dev.scratch(gradient.shape, np.float32)
                for name, gradient in weights.items()
                if gradient is not None
            }
        steps = super().backward(d_out, {**wanted, **sums})
        for name, total in sums.items():
            steps += copied(self.dev, total, wanted[name])
        return steps

    def linear(self, x: Array, weight: Array, bias: Any, out: Array) -> list[Step]:
        return linear(self.dev, x, weight, bias, out)

    def activated(self, x: Array, before: Any, after: Any, *, again: bool) -> list[Step]:
        bias, act = self.a.linear1_bias, self.a.act_method
        self._bits = None
        if again and act == "relu":
            bits = self.dev.scratch(
                (len(after), -(-after.shape[1] // _BITS) * _BITS // 8), np.uint8
            )
            name = epilogue(act, keeps=True, bias=bias)
            whole = finished(self.dev, x, self.first, after, name, bias=bias, aux=bits)
            if whole is not None:
                self._bits = bits
                return whole
        return activated(
            self.dev,
            x,
            self.first,
            bias,
            after,
            act,
            approximate=self.a.approximate,
            before=before if again else None,
        )

    def through(
        self, d_out: Array, before: Any, hidden: Array, mark: Any
    ) -> tuple[Any, list[Step]]:
        relu = self.a.act_method == "relu"
        aux = self._bits if relu else before
        plain = self.dropouts[0].factor == 1.0 and not self.dropouts[0].draws
        if plain and aux is not None and (relu or self.a.approximate):
            d_before = self.dev.scratch(hidden.shape, hidden.dtype)
            name = "drelu" if relu else "dgelu"
            whole = finished(self.dev, d_out, self.second.T, d_before, name, aux=aux)
            if whole is not None:
                return d_before, whole
        return super().through(d_out, before, hidden, mark)

    def _weights(
        self, turn: slice, x: Array, d_rows: Array, d_weight: Any, d_bias: Any
    ) -> list[Step]:
        more, share = turn.start > 0, self._share(turn, d_bias)
        return [
            *weight_gradient(self.dev, x, d_rows, d_weight, share, more=more),
            *self._gathered(d_bias, share),
        ]

    def _part(self, op: str, inputs: Any, outputs: Any, attrs: Any) -> list[Step]:
        return part(
            self.dev, op, {s: a for s, a in inputs.items() if a is not None}, outputs, attrs
        )


cublaslt("fused_feedforward")(forward_of(CublasLtFeedForward, "cuda"))
cublaslt("fused_feedforward_grad")(backward_of(CublasLtFeedForward, "cuda"))
