"""Two linear layers, some rows at a time: the hidden layer stands in scratch memory only.

Legend: R rows of one turn, K width of X, F of the hidden layer, N of Out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.feedforward import FusedFeedforward, FusedFeedforwardGrad
from ....graph.ops.operands import Array
from ....graph.ops.registry import OPS
from ...device.device import Device
from ..back_ends import BACK_ENDS
from ..loops.elementwise import in_float32
from ..loops.random import CompiledDropout
from ..registry import KERNELS, Step, bind, kernel
from .part_dropout import Dropout

ROWS = 256  # in one turn: enough that adding up the gradients of weights is small beside their products


def _matrix(array: Array | None, rows: int) -> Any:
    return None if array is None else array.reshape(rows, array.size // max(rows, 1))


class FeedForward:
    """Binds both passes. ``parts``: the library for activation and layer norm, if it has them."""

    rows_in_turn = ROWS
    drops = Dropout

    def __init__(
        self, dev: Device, a: FusedFeedforward | FusedFeedforwardGrad, parts: str = ""
    ) -> None:
        self.dev, self.a, self.parts = dev, a, parts
        x, n = a.x, a.x_num_col_dims
        self.rows = math.prod(x.shape[:n])
        self.x_RK = _matrix(x, self.rows)
        self.first, self.second = a.linear1_weight, a.linear2_weight
        samples = max(x.shape[0], 1)
        drops = CompiledDropout if parts == "llvm" else self.drops
        self.dropouts = [
            drops(dev, self.rows * weight.shape[1] // samples, dropout)
            for dropout, weight in ((a.dropout1, self.first), (a.dropout2, self.second))
        ]

    def turns(self) -> Iterator[slice]:
        """Yield the rows of each turn."""
        for start in range(0, self.rows, self.rows_in_turn):
            yield slice(start, min(start + self.rows_in_turn, self.rows))

    def forward(self, out: Array) -> list[Step]:
        """Return the calls of the forward pass."""
        steps: list[Step] = []
        out_RN, residual = _matrix(out, self.rows), _matrix(self.a.residual, self.rows)
        for turn in self.turns():
            with self.dev.in_turn():
                rows = out_RN[turn]
                _, _, hidden, calls = self._hidden(turn, again=False)
                steps += calls
                steps += self.linear(hidden, self.second, self.a.linear2_bias, rows)
                mark, calls = self._mark(1, turn, rows.shape)
                steps += [*calls, *self._drop(1, rows, mark)]
                if residual is not None:
                    steps.append(partial(self.dev.xp.add, rows, residual[turn], rows))
        return steps

    def backward(self, d_out: Array, wanted: Mapping[str, Any]) -> list[Step]:
        """Return the calls of the backward pass; ``wanted`` holds gradients by slot, or None."""
        d_RN = _matrix(d_out, self.rows)
        steps: list[Step] = []
        if not self.rows:
            return [partial(a.fill, 0) for a in wanted.values() if a is not None]
        residual = _matrix(wanted["residual"], self.rows)
        for turn in self.turns():
            with self.dev.in_turn():
                if residual is not None:
                    steps.append(partial(self.dev.xp.copyto, residual[turn], d_RN[turn]))
                steps += self._back(turn, d_RN[turn], wanted)
        return steps

    def _hidden(self, turn: slice, *, again: bool) -> tuple[Any, Any, Any, list[Step]]:
        """Return the first layer's operand, hidden rows before and after the activation, and the calls."""
        operand, steps = self._operand(turn, again=again)
        space = partial(self.dev.scratch, (len(operand), self.first.shape[1]), operand.dtype)
        before, after = space(), space()
        steps += self.activated(operand, before, after, again=again)
        mark, calls = self._mark(0, turn, after.shape)
        self.mark = mark
        return operand, before, after, [*steps, *calls, *self._drop(0, after, mark)]

    def _operand(self, turn: slice, *, again: bool) -> tuple[Any, list[Step]]:
        rows = self.x_RK[turn]
        if not self.a.pre_layer_norm:
            return rows, []
        operand = self.dev.scratch(rows.shape, rows.dtype)
        scale, bias = self.a.ln1_scale, self.a.ln1_bias
        # The backward pass must not write what the forward pass kept; it finds the same once more.
        stats = self._statistics(turn)
        stats = [self.dev.scratch(a.shape, a.dtype) for a in stats] if again else stats
        attrs = {"begin_norm_axis": 1, "epsilon": self.a.ln1_epsilon}
        outputs = {"Y": operand, "Mean": stats[0], "Variance": stats[1]}
        return operand, self._part(
            "layer_norm", {"X": rows, "Scale": scale, "Bias": bias}, outputs, attrs
        )

    def _statistics(self, turn: slice) -> list[Array]:
        """Return Mean and Variance of a turn's rows."""
        return [a[turn] for a in (self.a.ln1_mean, self.a.ln1_variance) if a is not None]

    def linear(self, x: Array, weight: Array, bias: Any, out: Array) -> list[Step]:
        """Return the calls for out = x @ weight + bias; ``bias`` may be None."""
        add = [] if bias is None else [partial(self.dev.xp.add, out, bias, out)]
        return [partial(self.dev.xp.matmul, x, weight, out), *add]

    def activated(self, x: Array, before: Any, after: Any, *, again: bool) -> list[Step]:
        """Return the calls for the first layer: ``before`` takes what the activation is applied to.

        ``again``: the backward pass needs that.
        """
        attrs = {"approximate": self.a.approximate}
        return [
            *self.linear(x, self.first, self.a.linear1_bias, before),
            *self._part(self.a.act_method, {"X": before}, {"Out": after}, attrs),
        ]

    def through(
        self, d_out: Array, before: Any, hidden: Array, mark: Any
    ) -> tuple[Any, list[Step]]:
        """Return the gradient of what the activation is applied to, in scratch, and the calls for it."""
        d_hidden = d_before = self.dev.scratch(hidden.shape, hidden.dtype)
        steps = [*self.linear(d_out, self.second.T, None, d_hidden)]
        steps += self._drop(0, d_hidden, mark)
        source = {"Out": hidden} if self.a.act_method == "relu" else {"X": before}
        attrs = {"approximate": self.a.approximate}
        name = f"{self.a.act_method}_grad"
        if "X@GRAD" not in OPS[name].in_place:
            d_before = self.dev.scratch(hidden.shape, hidden.dtype)
        return d_before, [
            *steps,
            *self._part(name, {**source, "Out@GRAD": d_hidden}, {"X@GRAD": d_before}, attrs),
        ]

    def collect(self, turn: slice, left: Array, right: Array, total: Any) -> list[Step]:
        """Return the calls that add a turn's left @ right to a total; the first turn's is written there."""
        share = self._share(turn, total)
        return [partial(self.dev.xp.matmul, left, right, share), *self._gathered(total, share)]

    def _part(
        self,
        op: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        attrs: Mapping[str, Any],
    ) -> list[Step]:
        sources = {slot: [array] for slot, array in inputs.items() if array is not None}
        targets = {slot: [array] for slot, array in outputs.items()}
        back_end = self.parts if (op, self.parts) in KERNELS else ""
        return bind(op, sources, targets, {**OPS[op].attrs, **attrs}, self.dev, back_end)

    def _mark(self, which: int, turn: slice, shape: tuple[int, ...]) -> tuple[Any, list[Step]]:
        dropout = self.dropouts[which]
        mark = self.dev.scratch(shape, np.bool_) if dropout.draws else None
        return mark, dropout.mark(turn.start * shape[1], mark)

    def _drop(self, which: int, rows: Array, mark: Any) -> list[Step]:
        dropout = self.dropouts[which]
        scale = partial(self.dev.xp.multiply, rows, dropout.factor, rows)
        return [*([] if dropout.factor == 1.0 else [scale]), *dropout.zero(rows, mark)]

    def _back(self, turn: slice, d_out: Array, wanted: Mapping[str, Any]) -> list[Step]:
        xp, scratch = self.dev.xp, self.dev.scratch
        operand, before, hidden, steps = self._hidden(turn, again=True)
        hidden_mark = self.mark
        mark, calls = self._mark(1, turn, d_out.shape)
        steps += calls  # first: scratch that it gave back already may be lent again below
        if self.dropouts[1].factor != 1.0 or self.dropouts[1].draws:
            d_out, source = scratch(d_out.shape, d_out.dtype), d_out
            steps += [partial(xp.copyto, d_out, source), *self._drop(1, d_out, mark)]
        steps += self._weights(
            turn, hidden, d_out, wanted["linear2_weight"], wanted["linear2_bias"]
        )
        d_before, calls = self.through(d_out, before, hidden, hidden_mark)
        steps += calls
        steps += self._weights(
            turn, operand, d_before, wanted["linear1_weight"], wanted["linear1_bias"]
        )
        return [*steps, *self._back_to_x(turn, d_before, wanted)]

    def _back_to_x(self, turn: slice, d_before: Any, wanted: Mapping[str, Any]) -> list[Step]:
        """Through the first product, and the layer norm if there is one."""
        d_x = _matrix(wanted["x"], self.rows)
        d_x = None if d_x is None else d_x[turn]
        norm = {"Scale": wanted["ln1_scale"], "Bias": wanted["ln1_bias"]}
        normed = self.a.pre_layer_norm
        if d_x is None and all(a is None for a in norm.values()):
            return []
        rows = self.x_RK[turn]
        d_rows: Any = self.dev.scratch(rows.shape, rows.dtype) if normed else d_x
        steps = self.linear(d_before, self.first.T, None, d_rows)
        if not normed:
            return steps
        mean, variance = self._statistics(turn)
        inputs = {
            "X": rows,
            "Scale": self.a.ln1_scale,
            "Bias": self.a.ln1_bias,
            "Mean": mean,
            "Variance": variance,
            "Y@GRAD": d_rows,
        }
        attrs = {"begin_norm_axis": 1, "epsilon": self.a.ln1_epsilon}
        parts = {slot: self._share(turn, total) for slot, total in norm.items()}
        outputs = {"X@GRAD": d_x, **{f"{slot}@GRAD": a for slot, a in parts.items()}}
        steps += self._part("layer_norm_grad", inputs, outputs, attrs)
        for slot, total in norm.items():
            steps += self._gathered(total, parts[slot])
        return steps

    def _share(self, turn: slice, total: Any) -> Any:
        """Return where a turn's share of a sum over rows is written: the first turn's in its place."""
        if total is None or turn.start == 0:
            return total
        return self.dev.scratch(total.shape, total.dtype)

    def _gathered(self, total: Any, share: Any) -> list[Step]:
        return [] if share is total else [partial(self.dev.xp.add, total, share, total)]

    def _weights(
        self, turn: slice, x: Array, d_rows: Array, d_weight: Any, d_bias: Any
    ) -> list[Step]:
        """Gradients of a layer's weight and bias."""
        steps = [] if d_weight is None else self.collect(turn, x.T, d_rows, d_weight)
        if d_bias is not None:
            share = self._share(turn, d_bias)
            steps.append(partial(self.dev.xp.add.reduce, d_rows, 0, None, share))
            steps += self._gathered(d_bias, share)
        return steps


def forward_of(feed_forward: type[FeedForward], parts: str) -> Callable[..., list[Step]]:
    """Return the kernel of the forward op, by this class and with this library for its parts."""

    def fused_feedforward(dev: Device, a: FusedFeedforward) -> list[Step]:
        return feed_forward(dev, a, parts).forward(a.out)

    return fused_feedforward


def backward_of(feed_forward: type[FeedForward], parts: str) -> Callable[..., list[Step]]:
    """Return the kernel of the gradient op."""

    def fused_feedforward_grad(dev: Device, a: FusedFeedforwardGrad) -> list[Step]:
        wanted = {name[2:]: d for name, d in vars(a).items() if name.startswith("d_")}
        del wanted["out"]
        return feed_forward(dev, a, parts).backward(a.d_out, wanted)

    return fused_feedforward_grad


for _back_ends, _parts, _takes in ((BACK_ENDS, "", None), (("llvm",), "llvm", in_float32)):
    kernel("fused_feedforward", on=_back_ends, takes=_takes)(forward_of(FeedForward, _parts))
    kernel("fused_feedforward_grad", on=_back_ends, takes=_takes)(backward_of(FeedForward, _parts))
