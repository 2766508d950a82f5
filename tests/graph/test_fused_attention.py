"""fused_attention: what it finds, what it leaves alone and says why, and that results stay."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.device.device import Device
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.array import attention as kernels
from rowlock.executor.kernels.capabilities import capabilities, installed
from rowlock.executor.kernels.loops import attention_tiles as tiles
from rowlock.executor.plan.bind import Binder
from rowlock.executor.plan.buckets import Buckets
from rowlock.executor.plan.shapes import infer_specs
from rowlock.graph.compile import compile_program
from rowlock.graph.passes.target import Target
from tests.conftest import draws, sample
from tests.graph import gpt
from tests.graph.attention_nets import attention_net
from tests.programs import on_places, own_programs
from tests.reference import models

L = fluid.layers
FUSED = "fused_dot_product_attention"
NETS = 100
# Paddle 1.8.5, five steps of Adam on the net of gpt.py, values from models.set_initial_values
PADDLE = [3.5678136, 2.8443208, 2.6169143, 2.7352967, 2.6502619]


@cache
@cache
def train(
    places: int = 1, dropout: float = 0.0, steps: int = 5, **flags: bool
) -> tuple[list[float], str]:
    """Return the losses of a small GPT, and what explain() says."""
    with own_programs(5) as (main, startup):
        loss = gpt.build(fluid, dropout=dropout)
        fluid.optimizer.Adam(0.01).minimize(loss)
    build = fluid.BuildStrategy(**flags)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()), rowlock.cluster(launcher="threads"):
        exe.run(startup)
        models.set_initial_values(main, fluid.global_scope(), fluid.CPUPlace())
        program = on_places(main, places, loss, build=build)
        feeds = [gpt.feed(step) for step in range(steps)]
        if places > 1:  # the mask is no batch: each place gets its own feed
            halves = [
                [{**f, "words": f["words"][i::2], "next": f["next"][i::2]} for i in range(2)]
                for f in feeds
            ]
            losses = [exe.run(program, feed=f, fetch_list=[loss])[0].mean() for f in halves]
        else:
            losses = [exe.run(program, feed=f, fetch_list=[loss])[0].item() for f in feeds]
        return [float(value) for value in losses], str(program.explain())


@pytest.mark.parametrize(
    "flags",
    [
        {"fused_attention": True},
        {"fuse_dot_product_attention": True},
        {"fused_feedforward": True},
        {"fused_attention": True, "fused_feedforward": True},
        {
            "fused_attention": True,
            "fused_feedforward": True,
            "fuse_gemm_epilogue": True,
            "fuse_elewise_add_act_ops": True,
            "fuse_all_optimizer_ops": True,
        },
    ],
    ids=lambda flags: "+".join(flags),
)
def test_a_gpt_follows_paddle(flags: dict[str, bool]) -> None:
    plain, _ = train()
    fused, notes = train(**flags)
    np.testing.assert_allclose(plain, PADDLE, rtol=1e-4)
    np.testing.assert_allclose(fused, PADDLE, rtol=1e-4)
    np.testing.assert_allclose(fused, plain, rtol=1e-5)
    if "fused_feedforward" in flags:
        assert "fused_feedforward: fused 2 feed-forward(s)" in notes
    if "fused_feedforward" not in flags or len(flags) > 1:
        assert "fused_attention: fused 2 attention(s), 2 of them with the views around" in notes


def test_two_places_and_dropout_draw_what_they_drew() -> None:
    both = {"fused_attention": True, "fused_feedforward": True}
    for places in (1, 2):
        plain, _ = train(places, dropout=0.3)
        fused, _ = train(places, dropout=0.3, **both)
        np.testing.assert_allclose(fused, plain, rtol=1e-5)
        assert abs(plain[0] - PADDLE[0]) > 1e-3  # something was dropped


@draws(20, NETS)
def test_random_ways_to_write_attention_keep_their_meaning(draws: int) -> None:
    layouts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    masks = dropouts = gradients = 0
    for seed in sample(NETS, draws):
        net = attention_net(seed)
        plain, fused = net.compile(), net.compile(fused_attention=True)
        nodes = [node for node in fused.report.graph.nodes if node.op == FUSED]
        if not nodes:
            refused[str(fused.report.graph.notes[-1])] += 1
        layouts.update(node.attrs["layout"] for node in nodes)
        masks += sum("Mask" in node.inputs for node in nodes)
        dropouts += sum(bool(node.attrs["dropout"]) for node in nodes)
        gradients += sum(
            n.op == f"{FUSED}_grad" and "Mask@GRAD" in n.outputs for n in fused.report.graph.nodes
        )
        for one, other in zip(net.run(plain.program), net.run(fused.program), strict=True):
            compare(one, other, seed)
    if draws < NETS:
        return
    assert set(layouts) == {"bhtd", "bthd", "packed"} and min(layouts.values()) > 5, layouts
    assert masks > 20 and dropouts > 20 and gradients > 5
    assert 10 < sum(refused.values()) < 100, refused


def compare(one: Any, other: Any, seed: int) -> None:
    if isinstance(one, dict):
        assert set(one) == set(other)
        one, other = ([state[name] for name in sorted(state)] for state in (one, other))
    if isinstance(one, list):
        for a, b in zip(one, other, strict=True):
            compare(a, b, seed)
        return
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11, err_msg=f"net {seed}")


def explained(build: Callable[[], tuple[Any, list[Any]]], **flags: bool) -> str:
    """Return the note of the pass on a program; ``build`` returns the loss and what is fetched besides."""

    with own_programs() as (main, _):
        loss, fetched = build()
        if main.all_parameters():
            fluid.optimizer.SGD(0.1).minimize(loss)
        else:
            fluid.append_backward(loss)
    feeds = [v.name for v in main.list_vars() if v.name in ("q", "k", "v", "mask")]
    target = Target(
        strategy=fluid.BuildStrategy(**(flags or {"fused_attention": True})), has_loss=True
    )
    names = [v.name for v in (loss, *fetched)]
    compiled = compile_program(main, feeds, names, target, capabilities())
    (note,) = [n for n in compiled.report.graph.notes if n.startswith("fused_")]
    return note


def written(case: str) -> tuple[Any, list[Any]]:
    """A bare attention, with one thing that stops its fusion."""
    q, k, v = (fluid.data(name, [None, 3, 4], "float32") for name in "qkv")
    q.stop_gradient = False
    scores = (
        L.matmul(q, k, transpose_y=case != "keys", alpha=0.5)
        if case != "keys"
        else L.matmul(q, L.transpose(k, [0, 2, 1]))
    )
    for _ in range(2 if case == "two masks" else 0):
        scores = L.elementwise_add(scores, L.create_parameter([3, 3], "float32"))
    weights = L.softmax(scores, axis=1 if case == "axis" else -1)
    out = L.matmul(weights, v, alpha=2.0 if case == "scaled" else 1.0)
    loss = L.mean(out)
    if case == "second reader":
        loss = loss + L.mean(L.square(weights))
    return loss, [weights] if case == "fetched" else []


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("fetched", "the output of softmax .* is fetched"),
        ("second reader", "the output of softmax .* has another reader, square"),
        ("axis", "is not along the last dimension"),
        ("scaled", "is multiplied transposed or scaled"),
        ("keys", "is not a product with transposed keys"),
        ("two masks", "is not of a product, scaled and with one mask"),
    ],
)
def test_what_stops_it_is_told(case: str, why: str) -> None:

    note = explained(lambda: written(case))
    assert re.match(rf"fused_attention: nothing fused: .*{why}", note), note


def _masks() -> dict[str, Callable[[], Any]]:
    """Ways to write a mask of scores [3, 3]."""
    later, low = np.triu(np.ones((3, 3), "float32"), 1), np.float32(-1e9)
    full = functools.partial(L.fill_constant, [3, 3], "float32")
    return {
        "assigned": lambda: L.assign(later * low),
        "assigned for each head": lambda: L.assign((later * low)[None]),
        "triangle": lambda: L.triu(full(-np.inf), 1),
        "scaled": lambda: L.scale(L.tril(full(1.0)), scale=1e4, bias=-1e4),
        "difference": lambda: (1.0 - L.tril(L.ones_like(full(3.0)))) * -1e9,
        "unsqueezed": lambda: L.unsqueeze(L.triu(full(-65504.0), 1), [0]),
        "too weak": lambda: L.triu(full(-100.0), 1),
        "from the diagonal on": lambda: L.triu(full(-1e9), 0),
        "the other way": lambda: L.tril(full(-1e9), -1),
        "trained": lambda: L.create_parameter([3, 3], "float32"),
        "fed": lambda: fluid.data("mask", [3, 3], "float32"),
        "of ones above": lambda: L.assign(later * low + 1),
    }


@pytest.mark.parametrize("name", _masks())
def test_a_mask_of_constants_that_hides_what_follows_is_told(name: str) -> None:
    def build() -> tuple[Any, list[Any]]:
        q, k, v = (fluid.data(letter, [None, 3, 4], "float32") for letter in "qkv")
        q.stop_gradient = False
        scores = L.elementwise_add(L.matmul(q, k, transpose_y=True), _masks()[name]())
        return L.mean(L.matmul(L.softmax(scores), v)), []

    before = list(_masks()).index("too weak")
    assert ("1 causal" in explained(build)) is (list(_masks()).index(name) < before)


def test_nothing_to_find_is_told() -> None:
    def build() -> tuple[Any, list[Any]]:
        return L.mean(L.fc(fluid.data("q", [None, 4], "float32"), 1)), []

    assert (
        explained(build)
        == "fused_attention: nothing fused: the program has no matmul, softmax, matmul"
    )
    assert "no relu or gelu between two linear layers" in explained(build, fused_feedforward=True)


def test_an_inference_program_is_fused_forward_alone() -> None:
    with own_programs() as (main, _):
        loss = gpt.build(fluid, dropout=0.3)

    flags = fluid.BuildStrategy(fused_attention=True, fused_feedforward=True)
    compiled = compile_program(
        main.clone(for_test=True),
        list(gpt.feed(0)),
        [loss.name],
        Target(strategy=flags),
        capabilities(),
    )
    ops = Counter(node.op for node in compiled.report.graph.nodes)
    assert ops[FUSED] == ops["fused_feedforward"] == 2
    assert not ops["softmax"] and not ops["gelu"]


@pytest.mark.parametrize("libraries", [(), ("llvm",), ("llvm", "onednn")], ids="+".join)
def test_memory_grows_with_rows_alone(
    libraries: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan's temporaries and scratch, at 64 and 256 rows: four times as much, not sixteen."""
    monkeypatch.setattr(kernels, "LEAST_ROWS", 8)
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 1 << 12)
    for name in ("LEAST_ROWS", "TILE_ROWS"):
        monkeypatch.setattr(tiles, name, 8)
    for name in ("FORWARD_BYTES", "TILE_BYTES"):
        monkeypatch.setattr(tiles, name, 1 << 12)
    here = frozenset(libraries).intersection(installed())
    used = {flag: [planned(rows, flag, here) for rows in (64, 256)] for flag in (False, True)}
    assert used[True][1] < 4.5 * used[True][0]
    assert used[False][1] > 10 * used[False][0]
    assert used[True][1] < used[False][1] / 8


def planned(rows: int, fused: bool, libraries: frozenset[str]) -> int:
    """Return the bytes of a plan: temporaries and scratch."""

    with own_programs() as (main, _):
        q, k, v = (fluid.data(name, [2, rows, 4], "float32") for name in "qkv")
        q.stop_gradient = False
        loss = L.mean(L.matmul(L.softmax(L.matmul(q, k, transpose_y=True)), v))
        fluid.gradients(loss, [q])
    target = Target(strategy=fluid.BuildStrategy(fused_attention=fused), has_loss=True)
    program = compile_program(
        main, ["q", "k", "v"], [loss.name, "q@GRAD"], target, capabilities(libraries)
    ).program
    fed = [np.zeros((2, rows, 4), "float32") for _ in range(3)]
    specs = infer_specs(program, [spec_of(a) for a in fed], lambda name: None)
    binder = Binder(
        program, Device(), specs, lambda name, spec: np.zeros(spec.shape), Buckets(program, None)
    )
    plan = binder.plan()
    plan.run(fed)
    return binder.arena.nbytes + plan.device.scratch_bytes
