"""fused_feedforward: what it takes along, that results stay, and the memory it saves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.array import attention, feedforward
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.plan.bind import Binder
from rowlock.executor.plan.buckets import Buckets
from rowlock.executor.plan.shapes import infer_specs
from rowlock.graph.compile import compile_program
from rowlock.graph.passes.target import Target
from rowlock.strategies.types import to_numpy
from tests.conftest import draws, sample
from tests.graph.attention_nets import attention_net
from tests.graph.random_nets import RandomNet, run_steps
from tests.programs import own_programs

L = fluid.layers
ROWS, WIDTH, NETS = 3, 4, 100
FUSED = "fused_feedforward"


def feedforward_net(seed: int) -> RandomNet:
    """Draw a way to write a feed-forward block on [N, T, D] or [N, D]."""
    draw = np.random.default_rng(seed)
    fetches: list[str] = []
    flat = 1 if draw.random() < 0.4 else 2
    shape = (ROWS, WIDTH) if flat == 1 else (2, ROWS, WIDTH)
    with own_programs(seed + 1) as (main, startup):
        x = fluid.data("x", [None, *shape[1:]], "float64")
        x = L.elementwise_add(x, L.create_parameter([WIDTH], "float64"))
        loss = L.mean(L.square(_block(draw, x, flat, fetches)))
        fluid.optimizer.SGD(0.1).minimize(loss)
    feeds = [{"x": draw.standard_normal(shape)} for _ in range(2)]
    net = RandomNet(seed, "float64", main, feeds, (loss.name, *fetches))
    run_steps(compile_program(startup, (), (), Target(), capabilities()).program, [{}], net.state)
    return net


def _block(draw: np.random.Generator, x: Any, flat: int, fetches: list[str]) -> Any:
    def chance(part: float) -> bool:
        return bool(draw.random() < part)

    h = L.layer_norm(x, begin_norm_axis=flat if chance(0.8) else 1) if chance(0.6) else x
    if chance(0.1):
        h = h + L.reduce_mean(h)
    h = _linear(draw, h, 6, flat)
    if chance(0.1):
        fetches.append(h.name)
    kind = int(draw.integers(4))
    h = (L.relu, L.gelu, lambda v: L.gelu(v, approximate=True), L.tanh)[kind](h)
    if chance(0.1):
        h = L.elementwise_mul(h, h)
    h = L.dropout(h, 0.4, dropout_implementation="upscale_in_train") if chance(0.3) else h
    h = _linear(draw, h, WIDTH, flat)
    h = L.dropout(h, 0.3, is_test=chance(0.3)) if chance(0.3) else h
    if chance(0.6):
        h = L.elementwise_add(x, h) if chance(0.5) else L.elementwise_add(h, x)
    return h


def _linear(draw: np.random.Generator, x: Any, width: int, flat: int) -> Any:
    if draw.random() < 0.3:
        weight = L.create_parameter([WIDTH if width != WIDTH else 6, width], "float64")
        x = L.matmul(x, weight)
        return L.elementwise_add(x, L.create_parameter([width], "float64")) if flat == 1 else x
    return L.fc(x, width, num_flatten_dims=flat, bias_attr=None if draw.random() < 0.8 else False)


@draws(20, NETS)
def test_random_ways_to_write_it_keep_their_meaning(draws: int) -> None:
    slots: Counter[str] = Counter()
    fused = gradients = dropouts = 0
    for seed in sample(NETS, draws):
        net = feedforward_net(seed)
        graph = same_as_plain(net, fused_feedforward=True)
        nodes = [node for node in graph.nodes if node.op == FUSED]
        fused += len(nodes)
        gradients += sum(node.op == f"{FUSED}_grad" for node in graph.nodes)
        slots.update(slot for node in nodes for slot in (*node.inputs, *node.outputs))
        dropouts += sum(bool(n.attrs["dropout1"]) + bool(n.attrs["dropout2"]) for n in nodes)
    if draws < NETS:
        return
    assert 40 < fused < 95 and gradients == fused and dropouts > 20
    optional = {"Linear1Bias", "Linear2Bias", "Ln1Scale", "Ln1Mean", "Residual"}
    assert all(10 < slots[slot] <= fused for slot in optional), slots


def same_as_plain(net: RandomNet, **flags: bool) -> Any:
    """Check that a net trains alike with flags, in fetches and parameters; returns the graph."""
    plain, other = net.compile(), net.compile(**flags)
    (a, state), (b, after) = net.run(plain.program), net.run(other.program)
    for step, (one, two) in enumerate(zip(a, b, strict=True)):
        for name, x, y in zip(net.fetches, one, two, strict=True):
            message = f"net {net.seed}, step {step}: {name}"
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11, err_msg=message)
    for name, value in state.items():
        message = f"net {net.seed}: {name}"
        np.testing.assert_allclose(after[name], value, rtol=1e-9, atol=1e-11, err_msg=message)
    return other.report.graph


@draws(4, 10)
def test_many_small_blocks_are_as_one(draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks cut through samples, heads and rows; what dropout draws does not depend on them."""
    monkeypatch.setattr(feedforward, "ROWS", 2)
    monkeypatch.setattr(attention, "LEAST_ROWS", 2)
    for nbytes in (1, 60, 100, 200):
        monkeypatch.setattr(attention, "BLOCK_BYTES", nbytes)
        for seed in (nbytes + number for number in sample(20, draws)):
            same_as_plain(attention_net(seed), fused_attention=True)
            same_as_plain(feedforward_net(seed), fused_feedforward=True)


def test_the_hidden_layer_is_not_kept() -> None:
    """Temporaries of a plan hold neither the hidden layer nor its gradients; scratch holds some rows."""
    plain, fused = planned(False), planned(True)
    hidden = 2048 * 64 * 4
    # before and after the activation, whatever memory is reused
    assert plain[0] - fused[0] > 2 * hidden
    assert sum(fused) < sum(plain) / 2


def planned(fused: bool) -> tuple[int, int]:
    """Return the bytes of a plan's temporaries and of its scratch."""
    with own_programs() as (main, _):
        x = fluid.data("x", [2048, 8], "float32")
        loss = L.mean(L.fc(L.fc(x, 64, act="gelu"), 8))
        fluid.optimizer.SGD(0.1).minimize(loss)
    target = Target(strategy=fluid.BuildStrategy(fused_feedforward=fused), has_loss=True)
    numpy_only = capabilities(frozenset())
    program = compile_program(main, ["x"], [loss.name], target, numpy_only).program
    fed = [np.zeros((2048, 8), "float32")]

    def allocate(name: str, spec: Any) -> np.ndarray:
        return np.zeros(spec.shape, to_numpy(spec.dtype))

    specs = infer_specs(program, [spec_of(a) for a in fed], lambda name: None)
    binder = Binder(program, Device(), specs, allocate, Buckets(program, None))
    plan = binder.plan()
    plan.run(fed)
    return binder.arena.nbytes, plan.device.scratch_bytes
