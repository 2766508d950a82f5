"""Random ways to write attention, drawn by a seed: for tests that each keeps its meaning when it is fused."""

from __future__ import annotations

from typing import Any

import numpy as np

import rowlock.fluid as fluid
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.graph.compile import compile_program
from rowlock.graph.passes.target import Target
from tests.graph.random_nets import RandomNet, run_steps
from tests.programs import own_programs

L = fluid.layers
B, H, T, D = 2, 2, 3, 4
DTYPE = "float64"
# shapes of masks and where they are placed in scores [B, H, T, T]
MASKS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((T, T), -1), ((T, T), 2), ((T,), -1), ((B, 1, 1, T), -1), ((B, H, T, T), 0), ((B,), 0),
    ((H, T), 1), ((H, 1, 1), 1), ((1, H, T, T), -1),
)  # fmt: skip


class AttentionNet:
    """Draws one way to write attention; ``build`` adds it to the default program."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.feeds: list[dict[str, np.ndarray]] = [{}, {}]
        self.fetches: list[str] = []

    def chance(self, part: float) -> bool:
        """Tell true in this part of the draws."""
        return bool(self.draw.random() < part)

    def fed(self, name: str, *shape: int) -> Any:
        """Return a variable that is fed with drawn numbers."""
        for feed in self.feeds:
            feed[name] = self.draw.standard_normal(shape)
        return fluid.data(name, list(shape), DTYPE)

    def build(self) -> Any:
        """Return the loss."""
        x = self.fed("x", B, T, H * D)
        q, k, v = self.packed(x) if self.chance(0.4) else self.apart(x)
        weights = self.weights(q, k)
        out = L.matmul(weights, v)
        if self.chance(0.1):
            out = out + L.reduce_mean(v)
        if self.chance(0.7):
            out = L.transpose(out, [0, 2, 1, 3])
        if self.chance(0.15):
            self.fetches.append(out.name)
        return L.mean(L.square(L.fc(out, D, num_flatten_dims=3)))

    def packed(self, x: Any) -> list[Any]:
        """One projection to all three."""
        x = L.fc(x, 3 * H * D, num_flatten_dims=2, bias_attr=False)
        x = L.transpose(L.reshape(x, [0, T, 3, H, D]), [2, 0, 3, 1, 4])
        return [L.squeeze(part, [0]) for part in L.split(x, 3, 0)]

    def apart(self, x: Any) -> list[Any]:
        """A projection each, with heads before rows or (fewer fuse then) in one dimension with the batch."""
        parts = [L.fc(x, H * D, num_flatten_dims=2, bias_attr=False) for _ in range(3)]
        heads = [L.transpose(L.reshape(a, [0, T, H, D]), [0, 2, 1, 3]) for a in parts]
        if self.chance(0.15):
            heads[2].stop_gradient = True
        if self.chance(0.15):
            heads[0] = heads[1]
        return heads

    def weights(self, q: Any, k: Any) -> Any:
        """Softmax of scaled, masked scores; dropout."""
        place = int(self.draw.integers(5))
        q = L.scale(q, 0.5) if place == 0 else q
        scores = L.matmul(q, k, transpose_y=True, alpha=0.5 if place == 1 else 1.0)
        half = L.fill_constant([1], DTYPE, 0.5)
        scores = L.scale(scores, 0.5) if place == 2 else scores
        scores = L.elementwise_mul(scores, half) if place == 3 else scores
        scores = L.elementwise_div(scores, half) if place == 4 else scores
        if self.chance(0.1):
            self.fetches.append(scores.name)
        if self.chance(0.7):
            scores = self.masked(scores)
        weights = L.softmax(scores)
        if self.chance(0.4):
            kind = ("upscale_in_train", "downgrade_in_infer")[int(self.draw.integers(2))]
            test = self.chance(0.3)
            weights = L.dropout(weights, 0.4, is_test=test, dropout_implementation=kind)
        if self.chance(0.1):
            weights = L.elementwise_add(weights, L.scale(weights, 0.1))
        return weights

    def masked(self, scores: Any) -> Any:
        """Scores plus a mask that is fed, or learned."""
        shape, axis = MASKS[int(self.draw.integers(len(MASKS)))]
        learned = self.chance(0.3)
        mask = L.create_parameter(list(shape), DTYPE) if learned else self.fed("mask", *shape)
        if len(shape) == 4 and self.chance(0.5):
            return L.elementwise_add(mask, scores) if shape[0] == B and shape[1] == H else scores
        return L.elementwise_add(scores, mask, axis=axis)


def attention_net(seed: int) -> RandomNet:
    """Draw a net around one attention, with the state that it starts from."""
    drawn = AttentionNet(seed)
    with own_programs(seed + 1) as (main, startup):
        loss = drawn.build()
        fluid.optimizer.SGD(0.1).minimize(loss)
    net = RandomNet(seed, DTYPE, main, drawn.feeds, (loss.name, *drawn.fetches))
    compiled = compile_program(startup, (), (), Target(), capabilities())
    run_steps(compiled.program, [{}], net.state)
    return net
