"""Random training programs, drawn by a seed, and a bare way to run them: for tests of compiler passes.

The nets are small and of three kinds: rows [N, D], images [N, C, H, W] and sequences [N, T, D]. They hold what
passes look for (products with bias and activation, normalised convolutions, residuals, attention, gated sums),
and what must stop them: second readers, intermediate values that are fetched, operands that are broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import rowlock.fluid as fluid
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.capabilities import capabilities, installed
from rowlock.executor.plan.bind import Binder
from rowlock.executor.plan.buckets import Buckets
from rowlock.executor.plan.shapes import infer_specs
from rowlock.graph.compile import Compiled, compile_program
from rowlock.graph.ir.replica_program import ReplicaProgram
from rowlock.graph.lowering.memory import ALL_MEMORY_OPTIONS, MemoryOptions
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.types import to_numpy
from tests.programs import own_programs

L = fluid.layers
ROWS, WIDTH, WORDS, TOKENS = 3, 4, 7, 3
ACTIVATIONS: Sequence[Callable[[Any], Any]] = (
    L.relu, L.tanh, L.sigmoid, L.gelu, L.softsign, L.leaky_relu, L.softplus,
    L.mish, L.selu, L.stanh, L.atan, L.erf,
    lambda x: L.gelu(x, approximate=True),
    lambda x: L.scale(x, 0.5, bias=0.25),
)  # fmt: skip
OPTIMIZERS: Sequence[Callable[[], Any]] = (
    lambda: fluid.optimizer.SGD(0.05),
    lambda: fluid.optimizer.Momentum(0.05, 0.9),
    # Some gradients are zero but for rounding (a bias before a softmax); a small epsilon would blow it up.
    lambda: fluid.optimizer.Adam(0.01, epsilon=1e-3),
)
State = dict[str, np.ndarray]


@dataclass
class RandomNet:
    """A program that trains, its feeds step by step, what is fetched, and the ``state`` it starts from."""

    seed: int
    dtype: str
    main: fluid.Program
    feeds: list[dict[str, np.ndarray]]
    fetches: tuple[str, ...]
    state: State = field(default_factory=dict)

    def compile(self, trains: bool = True, **flags: Any) -> Compiled:
        """Compile for one place and NumPy, with the build strategy's fields that are given.

        ``trains``: the whole program, else no more than what is fetched needs. Libraries round otherwise, of
        which Adam makes whole steps where a slope is zero; their kernels have tests of their own.
        """
        target = Target(strategy=BuildStrategy(**flags), has_loss=True)
        return compile_program(
            self.main,
            tuple(self.feeds[0]),
            self.fetches,
            target,
            capabilities(frozenset({"xla"} & installed().keys())),
            keep=None if trains else self.fetches,
        )

    def run(
        self, program: ReplicaProgram, memory_options: MemoryOptions = ALL_MEMORY_OPTIONS
    ) -> tuple[list[list[np.ndarray]], State]:
        """Run as many steps as there are feeds, from the same start each time: fetches, and the state after."""
        state = {name: array.copy() for name, array in self.state.items()}
        return run_steps(program, self.feeds, state, memory_options), state


def run_steps(
    program: ReplicaProgram,
    feeds: Sequence[dict[str, np.ndarray]],
    state: State,
    memory_options: MemoryOptions = ALL_MEMORY_OPTIONS,
) -> list[list[np.ndarray]]:
    """Run a compiled program on one place, without a gang; ``state`` is read and updated."""

    def allocate(name: str, spec: Any) -> np.ndarray:
        return state.setdefault(name, np.zeros(spec.shape, to_numpy(spec.dtype)))

    def held(name: str) -> Any:
        return spec_of(state[name]) if name in state else None

    first = list(feeds[0].values())
    specs = infer_specs(program, [spec_of(array) for array in first], held)
    device = Device(seed=program.seed)
    buckets = Buckets(program, None)
    plan = Binder(program, device, specs, allocate, buckets, memory_options=memory_options).plan()
    fetched = []
    for step, feed in enumerate(feeds):
        plan.device.clock.step = step
        with np.errstate(all="ignore"):
            plan.run(list(feed.values()))
        fetched.append([np.array(array) for array in plan._fetched])
    return fetched


def random_net(seed: int) -> RandomNet:
    """Draw a net: what is fed, how many layers of which kind, the loss, the optimizer and what is fetched."""
    draw = np.random.default_rng(seed)
    dtype = "float64" if seed % 2 else "float32"
    with own_programs(seed + 1) as (main, startup):
        build = (_rows, _images, _sequences)[seed % 3]
        feeds, features = build(draw, dtype)
        label = fluid.data("label", [None, 1], dtype)
        cost = L.square_error_cost(L.fc(features, 1), label)
        loss = L.mean(cost)
        seen = [op.output(slot)[0] for op in main.global_block().ops for slot in op.outputs]
        _choose(draw, OPTIMIZERS)().minimize(loss)
    for feed in feeds:
        feed["label"] = draw.standard_normal((ROWS, 1)).astype(dtype)
    fetches = draw.choice(seen, 2).tolist() if draw.random() < 0.3 else []
    net = RandomNet(seed, dtype, main, feeds, tuple(dict.fromkeys([loss.name, *fetches])))
    compiled = compile_program(startup, (), (), Target(), capabilities(frozenset()))
    run_steps(compiled.program, [{}], net.state)
    return net


def _choose(draw: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(draw.integers(len(options)))]


def _floats(draw: np.random.Generator, dtype: str, *shape: int) -> list[dict[str, np.ndarray]]:
    return [{"x": draw.standard_normal(shape).astype(dtype)} for _ in range(2)]


def _activated(draw: np.random.Generator, x: Any) -> Any:
    return _choose(draw, ACTIVATIONS)(x) if draw.random() < 0.8 else x


def _vector(dtype: str, *shape: int) -> Any:
    return L.create_parameter(list(shape), dtype)


def _rows(draw: np.random.Generator, dtype: str) -> tuple[list[dict[str, np.ndarray]], Any]:
    """Layers on [N, D]: products with bias, sums of two branches, broadcasts, gates."""
    x = fluid.data("x", [None, WIDTH], dtype)
    past = [x, _activated(draw, L.fc(x, WIDTH))]
    steps: Sequence[Callable[[Any, Any], Any]] = (
        lambda a, b: _activated(draw, L.fc(a, WIDTH)),
        lambda a, b: L.fc([a, b], WIDTH, act="relu"),
        lambda a, b: _activated(draw, L.elementwise_add(a, b)),
        lambda a, b: L.elementwise_add(a, _activated(draw, b)),
        lambda a, b: _activated(draw, L.elementwise_add(a, _vector(dtype, WIDTH))),
        lambda a, b: _activated(
            draw, L.elementwise_add(L.matmul(a, _vector(dtype, WIDTH, WIDTH)), b)
        ),
        lambda a, b: _activated(
            draw,
            L.elementwise_add(
                L.matmul(a, _vector(dtype, WIDTH, WIDTH), transpose_y=True), _vector(dtype, WIDTH)
            ),
        ),
        lambda a, b: L.elementwise_mul(L.sigmoid(a), L.tanh(b)),
        lambda a, b: L.batch_norm(L.fc(a, WIDTH), act="relu"),
        lambda a, b: L.layer_norm(L.elementwise_add(a, b)),
        lambda a, b: L.sums([a, L.elementwise_sub(b, a), L.scale(b, 0.5)]),
        lambda a, b: L.dropout(_activated(draw, a), 0.3, seed=3),
    )
    for _ in range(int(draw.integers(2, 6))):
        older = past[int(draw.integers(len(past)))]
        past.append(_choose(draw, steps)(past[-1], older))
    return _floats(draw, dtype, ROWS, WIDTH), past[-1]


def _images(draw: np.random.Generator, dtype: str) -> tuple[list[dict[str, np.ndarray]], Any]:
    """Convolutions on [N, C, H, W]: biased, normalised, residual, depthwise."""
    x = fluid.data("x", [None, 2, 4, 4], dtype)
    steps: Sequence[Callable[[Any, Any], Any]] = (
        lambda a, b: _activated(draw, _conv(draw, a)),
        lambda a, b: _activated(draw, L.batch_norm(_conv(draw, a))),
        lambda a, b: L.relu(L.elementwise_add(L.batch_norm(_conv(draw, a)), b)),
        lambda a, b: L.relu(L.elementwise_add(b, L.batch_norm(_conv(draw, a)))),
        lambda a, b: L.relu(L.elementwise_add(_conv(draw, a), b)),
        lambda a, b: _depthwise(L.relu(a)),
        lambda a, b: _depthwise(L.relu(L.batch_norm(a))),
        lambda a, b: _activated(draw, L.elementwise_add(a, _vector(dtype, 2), axis=1)),
        lambda a, b: L.pool2d(a, 3, "avg", pool_padding=1),
        lambda a, b: L.relu(a),
    )
    past = [x, _conv(draw, x)]
    for _ in range(int(draw.integers(2, 5))):
        older = past[int(draw.integers(len(past)))]
        past.append(_choose(draw, steps)(past[-1], older))
    return _floats(draw, dtype, ROWS, 2, 4, 4), past[-1]


def _conv(draw: np.random.Generator, x: Any) -> Any:
    size = _choose(draw, (1, 3))
    biased = None if draw.random() < 0.5 else False
    return L.conv2d(x, 2, size, padding=size // 2, bias_attr=biased)


def _depthwise(x: Any) -> Any:
    return L.conv2d(x, 2, 3, padding=1, groups=2, use_cudnn=False, bias_attr=False)


def _sequences(draw: np.random.Generator, dtype: str) -> tuple[list[dict[str, np.ndarray]], Any]:
    """Blocks of a transformer on [N, T, D], over embedded words."""
    words = fluid.data("words", [None, TOKENS, 1], "int64")
    steps: Sequence[Callable[[Any], Any]] = (
        lambda h: _attention(draw, h, dtype),
        lambda h: _feed_forward(draw, h),
        lambda h: L.layer_norm(h, begin_norm_axis=2),
        lambda h: _activated(draw, L.elementwise_add(h, _vector(dtype, WIDTH))),
        lambda h: L.elementwise_add(h, _vector(dtype, TOKENS, WIDTH)),
        lambda h: L.elementwise_add(h, _feed_forward(draw, L.layer_norm(h, begin_norm_axis=2))),
    )
    h = L.embedding(words, [WORDS, WIDTH], dtype=dtype)
    for _ in range(int(draw.integers(2, 5))):
        h = _choose(draw, steps)(h)
    fed = [{"words": draw.integers(0, WORDS, (ROWS, TOKENS, 1))} for _ in range(2)]
    return fed, h


def _attention(draw: np.random.Generator, h: Any, dtype: str) -> Any:
    """Self-attention over the tokens; the mask, the place of the scale and dropout vary."""
    # Keys without bias: it adds the same to all scores of a row, so its gradient is rounding alone.
    q, k, v = (
        L.fc(h, WIDTH, num_flatten_dims=2, bias_attr=biased) for biased in (None, False, None)
    )
    inside = draw.random() < 0.5
    scores = L.matmul(q, k, transpose_y=True, alpha=0.5 if inside else 1.0)
    scores = scores if inside else L.scale(scores, 0.5)
    if draw.random() < 0.5:
        scores = L.elementwise_add(scores, _vector(dtype, TOKENS, TOKENS))
    weights = L.softmax(scores)
    if draw.random() < 0.3:
        weights = L.dropout(weights, 0.2, dropout_implementation="upscale_in_train")
    return L.fc(L.matmul(weights, v), WIDTH, num_flatten_dims=2)


def _feed_forward(draw: np.random.Generator, h: Any) -> Any:
    hidden = L.fc(h, 2 * WIDTH, num_flatten_dims=2)
    hidden = _choose(draw, (L.relu, L.gelu, lambda x: L.gelu(x, approximate=True)))(hidden)
    if draw.random() < 0.3:
        hidden = L.dropout(hidden, 0.2)
    return L.fc(hidden, WIDTH, num_flatten_dims=2)
