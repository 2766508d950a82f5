"""Passes keep the meaning of random training programs, and each of their rules fires on some of them."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from rowlock.graph.compile import Compiled
from tests.conftest import draws, sample
from tests.graph.random_nets import RandomNet, State, random_net

GRAPHS = 60
Flags = dict[str, Any]
# The flags of a pass (off otherwise), and what its notes must count on some of the graphs: its rules.
PASSES: dict[str, tuple[Flags, set[str]]] = {
    "fuse_relu_depthwise_conv": (
        {"fuse_relu_depthwise_conv": True},
        {"relu into depthwise_conv2d", "of their gradients"},
    ),
    "fuse_bn_act_ops": (
        {"fuse_bn_act_ops": True},
        {"batch_norm with its activation", "of their gradients"},
    ),
    "fuse_bn_add_act_ops": (
        {"fuse_bn_add_act_ops": True},
        {"batch_norm with sum and activation", "of their gradients"},
    ),
    "fuse_gemm_epilogue": (
        {"fuse_gemm_epilogue": True},
        {"product(s) with bias", "of them with activation", "of their gradients"},
    ),
    "fuse_elewise_add_act_ops": (
        {"fuse_elewise_add_act_ops": True},
        {"act(X + Y)", "X + act(Y)", "of their gradients"},
    ),
    "enable_auto_fusion": ({"enable_auto_fusion": True}, {"group(s) of elementwise ops"}),
    "fuse_all_optimizer_ops": (
        {"fuse_all_optimizer_ops": True},
        {f"updates in one {op}" for op in ("fused_sgd", "merged_momentum", "fused_adam")},
    ),
    "enable_addto": ({"enable_addto": True}, {"sum(s) of gradients became running additions"}),
    "fused_attention": ({"fused_attention": True}, {"attention(s)"}),
    "fused_feedforward": ({"fused_feedforward": True}, {"feed-forward(s)"}),
}
OFF: Flags = {"fuse_bn_add_act_ops": False}  # on by default


@cache
def net(seed: int) -> RandomNet:
    return random_net(seed)


@cache
def plainly(seed: int, trains: bool) -> tuple[Compiled, list[list[np.ndarray]], State]:
    """How a drawn net runs without the passes."""
    plain = net(seed).compile(trains, **OFF)
    return plain, *net(seed).run(plain.program)


def ops(compiled: Compiled) -> Counter[str]:
    return Counter(node.op for node in compiled.report.graph.nodes)


def counted(compiled: Compiled, name: str) -> Counter[str]:
    """What the note of a pass counts."""
    note = next(n for n in compiled.report.graph.notes if n.startswith(f"{name}: "))
    counts = note.removeprefix(f"{name}: ").removeprefix("fused ").partition("; ")[0]
    if not counts[0].isdigit():
        return Counter()
    pairs = (part.split(" ", 1) for part in counts.split(", "))
    return Counter({what: int(count) for count, what in pairs})


def compare(seed: int, trains: bool, compiled: Compiled) -> None:
    drawn = net(seed)
    _, fetched, state = plainly(seed, trains)
    results, after = drawn.run(compiled.program)
    near = 1e-9 if drawn.dtype == "float64" else 2e-5
    for step, (ours, theirs) in enumerate(zip(results, fetched, strict=True)):
        for name, one, other in zip(drawn.fetches, ours, theirs, strict=True):
            np.testing.assert_allclose(
                one, other, rtol=near, atol=near, err_msg=f"net {seed}, step {step}: {name}"
            )
    assert set(after) == set(state)
    for name, other in state.items():
        np.testing.assert_allclose(
            after[name], other, rtol=near, atol=near, err_msg=f"net {seed}: {name}"
        )


@draws(20, GRAPHS)
def test_the_nets_train(draws: int) -> None:
    """Each net has finite losses, changes its parameters, and some hold every kind of layer."""
    kinds: Counter[str] = Counter()
    for seed in sample(GRAPHS, draws):
        plain, fetched, state = plainly(seed, True)
        assert all(np.isfinite(array).all() for step in fetched for array in step), seed
        assert any((state[name] != net(seed).state[name]).any() for name in state), seed
        kinds += ops(plain)
    expected = {
        "mul",
        "matmul",
        "batch_norm",
        "depthwise_conv2d",
        "gelu",
        "softmax",
        "lookup_table",
    }
    assert draws < GRAPHS or expected <= set(kinds)


@draws(10, GRAPHS)
@pytest.mark.parametrize("name", PASSES)
def test_a_pass_keeps_the_meaning(name: str, draws: int) -> None:
    """It changes what it says it changes; every fourth net is run forward only, too."""
    flags, rules = PASSES[name]
    fired: Counter[str] = Counter()
    for seed in sample(GRAPHS, draws):
        for trains in (True, False) if seed % 4 == 0 else (True,):
            compiled = net(seed).compile(trains, **{**OFF, **flags})
            count = counted(compiled, name)
            fired += count
            assert bool(count) == (ops(compiled) != ops(plainly(seed, trains)[0])), seed
            if count:
                compare(seed, trains, compiled)
    assert draws < GRAPHS or rules <= set(fired), f"{name} never fused {rules - set(fired)}"
